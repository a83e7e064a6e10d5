use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_store::Store;

/// What questions are asked of: a store, and the node whose series it holds.
#[derive(Debug, Clone)]
pub struct Engine {
    pub store: Store,
    /// The host of every series that names none.
    pub node: Arc<str>,
    /// Answers as Dragon's dashboards expect them: a filter on `*` gives one line per host and value, names are
    /// suggested wherever they hold the text, and an unknown metric has no lines.
    pub dragon_compat: bool,
    pub limits: Limits,
}

/// What one request may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub bytes_max: usize,
    pub time_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bytes_max: 32 << 20,
            time_max: Duration::from_secs(10),
        }
    }
}

impl Engine {
    pub fn new(store: Store, node: &str, dragon_compat: bool) -> Engine {
        Engine {
            store,
            node: node.into(),
            dragon_compat,
            limits: Limits::default(),
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.time_max
    }
}
