//! The store through its public interface: what it keeps, its limits, damaged and failing disks, crashes and kills.

mod bounds;
mod crash;
mod current_values;
mod damage;
mod hangs;
mod kill;
mod memory;
mod model;
mod public_api;
mod readers;
mod shares;
mod slow_sync;
