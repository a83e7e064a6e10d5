//! The settings of the store: retention (`keep`) and limits (`limits`).

use std::num::NonZeroU32;

use pegel_config::{ByteSize, TimeSpan, settings};

settings! {
    /// How long samples are kept.
    pub struct RetentionSettings {
        /// How long samples stay in memory before they are written to a block on disk.
        memory: TimeSpan = TimeSpan::seconds(5 * 60),
        /// How long samples are kept in total.
        disk: TimeSpan = TimeSpan::seconds(2 * 86_400),
        /// Maximum size of the store on disk; the oldest samples are removed first. Half is reserved for the node's own
        /// samples, a sixth each for lanes, statsd and points; a share that is not used is available to the others.
        /// Without this key: 1GiB, or 64MiB if the store is on a tmpfs.
        bytes: Option<ByteSize> = None => "1GiB",
    }
}

settings! {
    /// What the agent may take at most, whatever is offered to it.
    pub struct LimitSettings {
        /// Maximum number of live series. Samples of further series are dropped and counted.
        series: NonZeroU32 = NonZeroU32::new(200_000).expect("not zero"),
        /// Maximum number of live series of one sender: a user's programs, or a host that sends statsd.
        series_per_sender: NonZeroU32 = NonZeroU32::new(50_000).expect("not zero"),
        /// Bytes per second that one sender may have written to disk, averaged over ten minutes; the agent's user and
        /// root are not limited. Values that change more often are stored less often, further points are rejected.
        /// Without this key: keep.bytes per day, and at least 4KiB.
        sender_bytes: Option<ByteSize> = None => "12KiB",
        /// Maximum memory for samples and series.
        memory: ByteSize = ByteSize::mebibytes(256),
        /// Maximum number of open connections to the servers.
        connections: NonZeroU32 = NonZeroU32::new(512).expect("not zero"),
        /// Maximum size of a request body.
        body: ByteSize = ByteSize::mebibytes(1),
        /// Maximum memory for all request bodies being received or processed.
        bodies: ByteSize = ByteSize::mebibytes(32),
    }
}
