//! What all parts of the tree of one agent share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use pegel_credentials::Reloadable;
use pegel_metric::{Clock, Millis};
use pegel_store::Store;

use crate::credentials::{TreeCredentials, TreeStartError};
use crate::figures::TreeCounts;
use crate::local_users::LocalUserPolicy;
use crate::problems::Problems;
use crate::settings::TreeSettings;
use crate::tick_reader::millis;

pub(crate) struct TreeContext {
    pub(crate) settings: TreeSettings,
    pub(crate) reloadable: Reloadable<TreeCredentials, TreeStartError>,
    pub(crate) node: String,
    pub(crate) version: String,
    pub(crate) instance: Bytes,
    /// The agent's directory.
    pub(crate) dir: PathBuf,
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started: Millis,
    pub(crate) sample_interval: Duration,
    pub(crate) local_users: Arc<dyn LocalUserPolicy>,
    /// `limits.series` of the store.
    pub(crate) series_max: usize,
    pub(crate) counts: Arc<TreeCounts>,
    pub(crate) problems: Mutex<Problems>,
    /// The nodes above this agent, from its parent to the root.
    pub(crate) path: RwLock<Vec<String>>,
}

impl TreeContext {
    /// The certificates and the token for a new connection.
    pub(crate) fn credentials(&self) -> Arc<TreeCredentials> {
        self.reloadable.get()
    }

    pub(crate) fn now(&self) -> Millis {
        self.clock.utc()
    }

    /// The interval of the configuration; that of a parent may differ.
    pub(crate) fn interval(&self) -> Millis {
        millis(self.settings.interval.duration())
    }

    /// Counts series that are not reduced because of a limit, and lists them as a problem.
    pub(crate) fn refused_series(&self, peer: &str, node: &str, count: u64) {
        if count > 0 {
            self.counts.refused_series.add(count);
            let message = format!("{count} series are not reduced: too many (limits.series)");
            self.problem(peer, node, "series", &message);
        }
    }

    /// Counts a problem with a peer and logs it.
    pub(crate) fn problem(&self, peer: &str, node: &str, reason: &'static str, message: &str) {
        tracing::debug!(peer, node, reason, message, "problem in the tree");
        let mut problems = self.problems.lock();
        problems.add(peer, node, reason, message, self.now());
    }
}
