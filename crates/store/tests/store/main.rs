//! The store through its public interface: what it keeps, its limits, damaged and failing disks,
//! crashes.

mod block_limits;
mod bounds;
mod complete_since;
mod crash;
mod current_values;
mod damage;
mod finished_blocks;
mod hangs;
mod log_readers;
mod model;
mod public_api;
mod read_filters;
mod readers;
mod shares;
mod slow_sync;
mod tick_completion;
