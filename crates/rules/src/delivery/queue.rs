//! The queue of alerts that wait for one receiver.
//!
//! When it is full, the oldest alerts are dropped and counted: the newest state matters most. In a
//! queue that merges, a newer state of an alert replaces a waiting one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::alert::DueAlert;

/// Counts of one receiver since the start of the agent.
#[derive(Debug, Default)]
pub(crate) struct DeliveryCounts {
    pub sent: AtomicU64,
    /// Failed attempts.
    pub errors: AtomicU64,
    pub dropped: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct DeliveryQueue {
    state: Mutex<WaitingAlerts>,
    wake: Condvar,
    capacity: usize,
    merges: bool,
    pub counts: DeliveryCounts,
}

#[derive(Debug, Default)]
struct WaitingAlerts {
    alerts: VecDeque<DueAlert>,
    /// Set when the agent stops: until then, what waits is still sent.
    stop_at: Option<Instant>,
}

impl DeliveryQueue {
    pub(crate) fn new(capacity: usize, merges: bool) -> DeliveryQueue {
        DeliveryQueue {
            state: Mutex::default(),
            wake: Condvar::new(),
            capacity,
            merges,
            counts: DeliveryCounts::default(),
        }
    }

    pub(crate) fn push(&self, alert: DueAlert) {
        let mut state = self.state.lock();
        if self.merges {
            let labels = &alert.alert.labels;
            let waiting = { state.alerts.iter_mut() }.find(|one| one.alert.labels == *labels);
            if let Some(waiting) = waiting {
                *waiting = alert;
                return;
            }
        }
        state.alerts.push_back(alert);
        self.drop_excess(&mut state);
        self.wake.notify_one();
    }

    /// Returns alerts to the front of the queue after a failure.
    pub(crate) fn put_back(&self, alerts: Vec<DueAlert>) {
        let mut state = self.state.lock();
        for alert in alerts.into_iter().rev() {
            let is_known = |one: &DueAlert| one.alert.labels == alert.alert.labels;
            if !(self.merges && state.alerts.iter().any(is_known)) {
                state.alerts.push_front(alert);
            }
        }
        self.drop_excess(&mut state);
    }

    fn drop_excess(&self, state: &mut WaitingAlerts) {
        while state.alerts.len() > self.capacity {
            state.alerts.pop_front();
            self.count_dropped(1);
        }
    }

    pub(crate) fn count_dropped(&self, count: usize) {
        self.counts
            .dropped
            .fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Waits for alerts and takes up to `count_max` of them. With `by_name`, all have the same
    /// `alertname`. Returns `None` when the agent stops.
    pub(crate) fn take(&self, count_max: usize, by_name: bool) -> Option<Vec<DueAlert>> {
        let mut state = self.state.lock();
        loop {
            if let Some(stop_at) = state.stop_at
                && (state.alerts.is_empty() || Instant::now() >= stop_at)
            {
                return None;
            }
            if !state.alerts.is_empty() {
                break;
            }
            self.wake.wait(&mut state);
        }
        let name = |alert: &DueAlert| alert.alert.labels.get("alertname").to_owned();
        let first = name(&state.alerts[0]);
        let is_same = |alert: &&DueAlert| !by_name || name(alert) == first;
        let count = state
            .alerts
            .iter()
            .take(count_max)
            .take_while(is_same)
            .count();
        Some(state.alerts.drain(..count).collect())
    }

    /// Waits before a retry. Returns false when the agent stops.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.state.lock();
        while state.stop_at.is_none() {
            if self.wake.wait_until(&mut state, until).timed_out() {
                return true;
            }
        }
        false
    }

    /// Lets the workers end: at once if nothing waits, else after one attempt for what waits.
    pub(crate) fn stop(&self, grace: Duration) {
        self.state.lock().stop_at = Some(Instant::now() + grace);
        self.wake.notify_all();
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().alerts.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pegel_query::promql::LabelSet;

    use super::*;
    use crate::alert::Alert;

    fn alert(name: &str, instance: &str, value: f64) -> DueAlert {
        let labels = LabelSet::new([("alertname", name), ("instance", instance)]);
        DueAlert {
            alert: Alert::pending(labels, BTreeMap::new(), value, 0),
            expression: String::new(),
            is_news: true,
        }
    }

    fn values(taken: Option<Vec<DueAlert>>) -> Vec<f64> {
        let taken = taken.expect("not stopped");
        taken.iter().map(|one| one.alert.value).collect()
    }

    #[test]
    fn a_full_queue_drops_the_oldest_and_counts() {
        let queue = DeliveryQueue::new(2, false);
        for value in [1.0, 2.0, 3.0] {
            queue.push(alert("a", "x", value));
        }
        assert_eq!(queue.counts.dropped.load(Ordering::Relaxed), 1);
        let taken = queue.take(10, false).expect("not stopped");
        queue.push(alert("a", "x", 4.0));
        queue.put_back(taken);
        assert_eq!(values(queue.take(10, false)), [3.0, 4.0]);
        assert_eq!(queue.counts.dropped.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_merging_queue_keeps_the_newest_state_of_an_alert() {
        let queue = DeliveryQueue::new(10, true);
        queue.push(alert("a", "x", 1.0));
        queue.push(alert("a", "y", 2.0));
        let taken = queue.take(1, false).expect("not stopped");
        queue.push(alert("a", "x", 3.0));
        queue.push(alert("a", "y", 4.0));
        queue.put_back(taken);
        assert_eq!(values(queue.take(10, false)), [4.0, 3.0]);
        assert_eq!(queue.counts.dropped.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn batches_have_one_name_and_a_stop_ends_the_wait() {
        let queue = DeliveryQueue::new(10, false);
        for (name, value) in [("a", 1.0), ("a", 2.0), ("b", 3.0)] {
            queue.push(alert(name, "x", value));
        }
        assert_eq!(values(queue.take(10, true)), [1.0, 2.0]);
        queue.stop(Duration::from_secs(60));
        assert_eq!(values(queue.take(10, true)), [3.0]);
        assert!(queue.take(10, true).is_none());
        assert!(!queue.pause(Duration::from_secs(60)));
    }
}
