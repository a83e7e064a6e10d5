//! The dashboards: one per level, one for MPI and system calls, one for the agent itself.

mod agent;
mod level1;
mod level2;
mod level3;
mod level4;
mod programs;

use super::dashboard::Dashboard;

pub(super) const ALL: [&Dashboard; 6] = [
    &level1::DASHBOARD,
    &level2::DASHBOARD,
    &level3::DASHBOARD,
    &level4::DASHBOARD,
    &programs::DASHBOARD,
    &agent::DASHBOARD,
];
