//! The section `session` of the configuration.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use pegel_config::{ByteSize, OptionalTimeSpan, TimeSpan, settings};

use crate::storage::RecordPlace;

settings! {
    /// Records of tasks: `pegel session`, docs/sessions.md.
    pub struct SessionSettings {
        /// How often samples are added to a record: the most that is lost with the node. Without
        /// this key: 10s for append blobs and files, 60s for object stores.
        flush: Option<TimeSpan> = None => "120s",
        /// Write count, minimum, maximum, mean, standard deviation and last value of each interval
        /// instead of every sample; 0 writes every sample.
        aggregate: OptionalTimeSpan = OptionalTimeSpan::NEVER,
        /// Patterns with * and ? for the names of the metrics to record. Without this key: all but
        /// the agent's own.
        names: Vec<String> = Vec::new(),
        /// How many bytes of one record wait on disk while its storage does not accept them. When
        /// they are used up, the oldest samples are dropped; the record shows the gap.
        spool_bytes: ByteSize = ByteSize::mebibytes(256),
        /// How many tasks are recorded at the same time.
        sessions: u16 = 16,
        /// Directories below which users other than the agent's may store records. Without this
        /// key: they may use cloud storage only, because files are written with the rights of the
        /// agent.
        directories: Vec<PathBuf> = Vec::new(),
        /// How long the agent may take to store its records when it stops. What remains is stored
        /// by the next agent.
        stop_timeout: TimeSpan = TimeSpan::seconds(5),
        /// How long `pegel session start` waits for an agent that does not respond and records the
        /// same task, before it sends SIGINT.
        same_task_timeout: TimeSpan = TimeSpan::seconds(10),
        /// The same for an agent that records another task.
        other_task_timeout: TimeSpan = TimeSpan::seconds(30),
        /// How long it waits between SIGINT and SIGTERM, and between SIGTERM and SIGKILL.
        quit_timeout: TimeSpan = TimeSpan::seconds(5),
        /// How long the supervisor waits before it starts an agent again that ended twice within
        /// 30 s.
        restart_pause: TimeSpan = TimeSpan::seconds(300),
    }
}

impl SessionSettings {
    /// Returns the interval of aggregation in milliseconds; `None` records every sample.
    pub(crate) fn aggregate_millis(&self) -> Option<i64> {
        let interval = self.aggregate.duration()?;
        i64::try_from(interval.as_millis()).ok()
    }

    /// Returns whether a user other than the agent's may store records at this place.
    pub(crate) fn permits_other_users(&self, place: &RecordPlace) -> bool {
        match place {
            RecordPlace::Directory(dir) => self.permitted_directory(dir).is_some(),
            _ => true,
        }
    }

    /// Returns the directory of `session.directories` that this one is in, by its path alone. The
    /// storage refuses symbolic links between the two.
    pub(crate) fn permitted_directory(&self, dir: &Path) -> Option<&Path> {
        let is_plain = dir.components().all(|part| part != Component::ParentDir);
        let mut permitted = self.directories.iter().map(PathBuf::as_path);
        permitted.find(|permitted| is_plain && dir.starts_with(permitted))
    }

    /// Returns the interval between two blocks, given the default of the storage.
    pub(crate) fn flush_interval(&self, default: Duration) -> Duration {
        let flush = self.flush.as_ref().map_or(default, TimeSpan::duration);
        flush.max(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_store_files_only_in_permitted_directories() {
        let settings = SessionSettings {
            directories: vec![PathBuf::from("/shared/records")],
            ..SessionSettings::default()
        };
        for (place, expected) in [
            ("file:///shared/records/a", true),
            ("file:///shared/records", true),
            ("file:///shared/recordsX", false),
            ("file:///shared/records/../x", false),
            ("file:///etc", false),
            ("s3://bucket", true),
        ] {
            let permits = place
                .parse()
                .is_ok_and(|place| settings.permits_other_users(&place));
            assert_eq!(permits, expected, "{place}");
        }
    }
}
