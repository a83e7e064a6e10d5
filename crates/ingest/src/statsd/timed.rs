//! Gauges whose line says when they were taken (DogStatsD's `|T`): points with their own time, not current values.

use std::sync::{Arc, Mutex, PoisonError};

use pegel_metric::{Millis, Reason};
use pegel_wire::statsd::{Metric, Sign, Type};

use super::table::{LEVEL, Origin};
use super::tally::Tally;
use crate::points::{Offered, Points};
use crate::senders::Sender;

/// How many wait for the pulse, which stores them. Further ones are dropped and counted.
const WAITING_MAX: usize = 20_000;

/// Whether this is a value for a time of its own. Counters with a time add to their total like all others.
pub(super) fn has_own_time(metric: &Metric<'_>) -> bool {
    metric.time.is_some()
        && metric.kind == Type::Gauge
        && metric.values().all(|number| number.sign == Sign::None)
}

/// Those that wait for the pulse: the threads that read do not wait for the store's log.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    waiting: Mutex<Vec<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    sender: Arc<Sender>,
    name: String,
    labels: Vec<(String, String)>,
    time: Millis,
    value: f64,
}

impl Timed {
    pub fn add(&self, metric: &Metric<'_>, origin: &Origin, tally: &mut Tally) {
        let Some(seconds) = metric.time else { return };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut tags = Vec::new();
        metric.tags().append_ordered(&mut tags);
        let labels: Vec<(String, String)> = text(&tags)
            .split(',')
            .filter_map(|tag| tag.split_once(':'))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // A quarter is reserved for the agent's user and root.
        let max = match origin.sender.is_trusted() {
            true => WAITING_MAX,
            false => WAITING_MAX - WAITING_MAX / 4,
        };
        for number in metric.values() {
            if waiting.len() >= max {
                tally.dropped(Reason::QueueFull, 1);
                continue;
            }
            waiting.push(Waiting {
                sender: origin.sender.clone(),
                name: text(metric.name),
                labels: labels.clone(),
                time: seconds.saturating_mul(1000),
                value: number.value,
            });
        }
    }

    /// Hands all to the store, sender by sender in the order in which they came.
    pub fn store(&self, points: &Points, now: Millis) {
        let waiting =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for batch in waiting.chunk_by(|a, b| Arc::ptr_eq(&a.sender, &b.sender)) {
            let labels: Vec<Vec<(&str, &str)>> = batch
                .iter()
                .map(|one| one.labels.iter().map(|(k, v)| (&**k, &**v)).collect())
                .collect();
            let offered: Vec<Offered<'_>> = batch
                .iter()
                .zip(&labels)
                .map(|(one, labels)| Offered {
                    name: &one.name,
                    labels,
                    help: "",
                    level: LEVEL,
                    time: one.time,
                    value: one.value,
                })
                .collect();
            // The books are kept on the way: a store that takes nothing is a drop under its reason.
            if let Err(error) = points.offer(&batch[0].sender, &offered, now) {
                tracing::warn!(%error, "statsd values with times could not be stored");
            }
        }
    }
}
