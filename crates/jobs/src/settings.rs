//! The section `jobs` of the configuration.

use std::num::NonZeroU32;

use pegel_config::{TimeSpan, settings};

settings! {
    /// How jobs are kept: `pegel jobs`.
    pub struct JobsSettings {
        /// How long a job is listed after its end.
        keep: TimeSpan = TimeSpan::seconds(30 * 86_400),
        /// Maximum number of jobs and job steps; the oldest are removed.
        count: NonZeroU32 = NonZeroU32::new(20_000).expect("not zero"),
    }
}
