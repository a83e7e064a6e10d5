//! The kernel's entropy pool, from `/proc/sys/kernel/random`.

use crate::families::families;
use crate::file_collector::{FirstNumberParser, open_files};
use crate::{CollectorEntry, Context, OpenResult, Tier};

families! {
    AVAILABLE Gauge 2 "node_entropy_available_bits" "bits" "Entropy available, in bits; always 256 since Linux 5.18.";
    POOL Gauge 2 "node_entropy_pool_size_bits" "bits" "Size of the entropy pool, in bits.";
}

pub static ENTRY: CollectorEntry = CollectorEntry::inline("entropy", Tier::Minute, FAMILIES, open);

fn open(context: &Context) -> OpenResult {
    open_files([
        FirstNumberParser::file(context, "proc/sys/kernel/random/entropy_avail", &AVAILABLE),
        FirstNumberParser::file(context, "proc/sys/kernel/random/poolsize", &POOL),
    ])
}
