//! Dashboard of MPI and system calls, counted by `pegel run`.

use crate::grafana::dashboard::{Dashboard, DashboardPanel, DashboardRow, rate};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "programs",
    title: "Pegel / Programs: MPI and system calls",
    description: "MPI calls and system calls of programs started with pegel run -m and -s, summed over the processes of each node. A metric exists after the first call.",
    variables: &[],
    rows: &[
        DashboardRow::expanded("MPI", MPI),
        DashboardRow::expanded("System calls", SYSTEM_CALLS),
        DashboardRow::collapsed("By job", JOBS),
    ],
};

const MPI: &[DashboardPanel] = &[
    DashboardPanel::new("Time in MPI", "short", &[rate("mpi_time_total", &["call"])])
        .with_description("Seconds per second, over all processes of the node: 8 means that eight processes spent all their time in MPI."),
    DashboardPanel::new("Calls", "ops", &[rate("mpi_hits_total", &["call"])]),
    DashboardPanel::new("Data", "Bps", &[rate("mpi_size_total", &["call"])]),
];

const SYSTEM_CALLS: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Time in system calls",
        "short",
        &[rate("strace_time_total", &["scall"])],
    )
    .with_description("Seconds per second, over all processes of the node."),
    DashboardPanel::new("Calls", "ops", &[rate("strace_hits_total", &["scall"])]),
    DashboardPanel::new("Data", "Bps", &[rate("strace_size_total", &["scall"])]),
    DashboardPanel::new(
        "Programs started",
        "cps",
        &[rate("tau_metric_proxy_run_total", &["operation"])],
    ),
];

const JOBS: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Time in MPI",
        "short",
        &[rate("mpi_time_total", &["jobid"])],
    )
    .with_description("Only programs that ran under a batch system have a job."),
    DashboardPanel::new(
        "Time in system calls",
        "short",
        &[rate("strace_time_total", &["jobid"])],
    ),
];
