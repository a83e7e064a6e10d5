//! The settings of the store: retention (`keep`) and its keys of the section `limits`.

use std::num::NonZeroU32;

use pegel_config::{ByteSize, TimeSpan, settings};

settings! {
    /// How long samples are kept.
    pub struct RetentionSettings {
        /// How long samples stay in memory before they are written to a block on disk.
        memory: TimeSpan = TimeSpan::seconds(5 * 60),
        /// How long samples are kept in total.
        disk: TimeSpan = TimeSpan::seconds(2 * 86_400),
        /// Maximum size of the store on disk; the oldest samples are removed first. Half is
        /// reserved for the node's own samples, a tenth each for lanes, statsd, points, remote
        /// write and derived series; a share that is not used is available to the others. Without
        /// this key: 1GiB, or 64MiB if the store is on a tmpfs.
        bytes: Option<ByteSize> = None => "1GiB",
    }
}

impl RetentionSettings {
    /// Returns the maximum size of the store on disk.
    pub fn bytes_max(&self) -> u64 {
        self.bytes.as_ref().map_or(1 << 30, ByteSize::count)
    }
}

settings! {
    /// What the store may take at most, whatever its inputs send.
    pub struct StoreLimits {
        /// Maximum number of live series. Samples of further series are dropped and counted.
        series: NonZeroU32 = NonZeroU32::new(200_000).expect("not zero"),
        /// Maximum memory for samples and series.
        memory: ByteSize = ByteSize::mebibytes(256),
    }
}
