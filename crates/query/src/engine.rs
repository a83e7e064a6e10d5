use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::{Millis, Selector, Series};
use pegel_store::{Question, Store};

use crate::annotation::Annotations;
use crate::problem::Problem;

/// What questions are asked of: a store, and the node whose series it holds.
#[derive(Debug, Clone)]
pub struct Engine {
    pub store: Store,
    pub annotations: Arc<Annotations>,
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
    pub fn new(
        store: Store,
        annotations: Arc<Annotations>,
        node: &str,
        dragon_compat: bool,
    ) -> Engine {
        Engine {
            store,
            annotations,
            node: node.into(),
            dragon_compat,
            limits: Limits::default(),
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.time_max
    }

    /// Visits every series that the store holds, whether it is live or not.
    pub(crate) fn each_series(
        &self,
        selector: Selector,
        deadline: Instant,
        visit: &mut dyn FnMut(&Arc<Series>),
    ) -> Result<(), Problem> {
        let mut question = Question::new(selector, 0, Millis::MAX, None);
        question.bytes_max = self.limits.bytes_max;
        question.deadline = deadline;
        Ok(self.store.series(&question, visit)?)
    }

    /// An error where no series has this name.
    pub(crate) fn check_known(&self, metric: &str, deadline: Instant) -> Result<(), Problem> {
        let mut is_known = false;
        self.each_series(Selector::name(metric), deadline, &mut |_| is_known = true)?;
        match is_known {
            true => Ok(()),
            false => Err(Problem::unknown_name("metrics", metric)),
        }
    }
}
