use std::num::NonZeroU32;

use pegel_config::{ByteSize, TimeSpan, settings};

settings! {
    /// How long samples are kept.
    pub struct RetentionSettings {
        /// How long samples stay in memory before they go to a block on disk.
        memory: TimeSpan = TimeSpan::seconds(5 * 60),
        /// How long samples are kept at all.
        disk: TimeSpan = TimeSpan::seconds(2 * 86_400),
        /// How large the store may grow on disk; the oldest samples go first. Half is reserved for the node's own, a
        /// sixth each for lanes, statsd and points; what one does not use the others may.
        /// Without this key: 1GiB, or 64MiB where the store lies on a tmpfs.
        bytes: Option<ByteSize> = None => "1GiB",
    }
}

settings! {
    /// What the agent may take at most, whatever is offered to it.
    pub struct LimitSettings {
        /// How many series may be live at one time. Samples of further ones are dropped and counted.
        series: NonZeroU32 = NonZeroU32::new(200_000).expect("not zero"),
        /// How many of them one sender may have: a user's programs, or a host that sends statsd.
        series_per_sender: NonZeroU32 = NonZeroU32::new(50_000).expect("not zero"),
        /// How many bytes in a second one sender may have written to the disk, on average over ten minutes; the agent's user
        /// and root may have any number. Values that change more often are stored less often, further points are refused.
        /// Without this key: keep.bytes in a day, and at least 4KiB.
        sender_bytes: Option<ByteSize> = None => "12KiB",
        /// How much memory samples and series may take.
        memory: ByteSize = ByteSize::mebibytes(256),
        /// How many connections the servers hold open at one time.
        connections: NonZeroU32 = NonZeroU32::new(512).expect("not zero"),
        /// The largest body of a request.
        body: ByteSize = ByteSize::mebibytes(1),
        /// How much memory all bodies may take that are being read or worked on.
        bodies: ByteSize = ByteSize::mebibytes(32),
    }
}
