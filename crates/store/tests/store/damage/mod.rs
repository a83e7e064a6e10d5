//! Damaged files and failing disks: the store opens, loses no more than what was damaged, never
//! returns wrong data, and recovers.

mod blocks;
mod faults;
mod fixture;
mod leftovers;
mod log;
