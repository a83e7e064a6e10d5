//! Gauges with their own timestamp (DogStatsD's `|T`): they are stored as points, not as current
//! values.
//!
//! Receiving threads queue them, so that they never wait for the store's log; the program sampler
//! writes the queue at each pass. The queue is bounded by values and by bytes: a line of 64 KiB may
//! have thousands of values, which share its name and labels. Gauges beyond the bounds are dropped
//! and counted.

use std::sync::Arc;

use parking_lot::Mutex;
use pegel_metric::{DropReason, MetricKind, Millis};
use pegel_wire::PointBatch;
use pegel_wire::statsd::{NumberSign, StatsdLines, StatsdMessage, StatsdMetric, StatsdType};

use super::line_counts::LineCounts;
use super::table::{KEY_BYTES_MAX, LineOrigin, PROGRAM_LEVEL};
use crate::point_writer::{IncomingPoint, PointWriter};
use crate::senders::Sender;

/// The most queued values. Further ones are dropped and counted.
const QUEUE_MAX: usize = 20_000;
/// The most memory of the queue: room for as many values with a line of 350 bytes each.
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// The memory of a value.
const VALUE_BYTES: usize = size_of::<f64>();
/// The memory of a label besides its text.
const LABEL_BYTES: usize = size_of::<(String, String)>();

/// Returns whether this is a value with its own timestamp. Counters with a time add to their total
/// like all others.
pub(super) fn has_own_time(metric: &StatsdMetric<'_>) -> bool {
    metric.time.is_some()
        && metric.kind == StatsdType::Gauge
        && metric
            .values()
            .all(|number| number.sign == NumberSign::None)
}

/// Adds the values of a line to a batch of points if it is a gauge with its own timestamp. Returns
/// whether it is. The push socket acknowledges lines, so that it cannot queue them.
pub(crate) fn add_timed_gauge<'a>(line: &'a [u8], batch: &mut PointBatch<'a>) -> bool {
    let Some(Ok(StatsdMessage::Metric(metric))) = StatsdLines::new(line).next() else {
        return false;
    };
    let Some(seconds) = metric.time.filter(|_| has_own_time(&metric)) else {
        return false;
    };
    let time = seconds.saturating_mul(1000);
    let values = metric.values().map(|number| number.value);
    let name = String::from_utf8_lossy(metric.name);
    batch.add_values(name, time, values, labels_of(&metric));
    true
}

fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn labels_of(metric: &StatsdMetric<'_>) -> Vec<(String, String)> {
    let mut tags = Vec::new();
    metric.tags().append_ordered(&mut tags);
    lossy_text(&tags)
        .split(',')
        .filter_map(|tag| tag.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The queue for the program sampler: receiving threads must not wait for the store's log.
#[derive(Debug, Default)]
pub(crate) struct TimedGauges {
    queue: Mutex<GaugeQueue>,
}

#[derive(Debug, Default)]
struct GaugeQueue {
    lines: Vec<QueuedLine>,
    values: usize,
    bytes: usize,
}

/// The values of one line.
#[derive(Debug)]
struct QueuedLine {
    sender: Arc<Sender>,
    name: String,
    labels: Vec<(String, String)>,
    time: Millis,
    values: Vec<f64>,
}

impl QueuedLine {
    /// Returns the length of its name and labels.
    fn text_bytes(&self) -> usize {
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| key.len() + value.len());
        self.name.len() + labels.sum::<usize>()
    }

    fn bytes(&self) -> usize {
        let labels = self.labels.len() * LABEL_BYTES;
        let values = self.values.len() * VALUE_BYTES;
        size_of::<QueuedLine>() + self.text_bytes() + labels + values
    }

    fn point<'a>(&'a self, labels: &'a [(&'a str, &'a str)], value: f64) -> IncomingPoint<'a> {
        IncomingPoint {
            name: &self.name,
            labels,
            help: "",
            kind: MetricKind::Unknown,
            level: PROGRAM_LEVEL,
            time: self.time,
            value,
        }
    }
}

impl TimedGauges {
    pub(super) fn add(
        &self,
        metric: &StatsdMetric<'_>,
        origin: &LineOrigin,
        counts: &mut LineCounts,
    ) {
        let Some(seconds) = metric.time else { return };
        let mut line = QueuedLine {
            sender: origin.sender.clone(),
            name: lossy_text(metric.name),
            labels: labels_of(metric),
            time: seconds.saturating_mul(1000),
            values: Vec::new(),
        };
        // Admission would refuse such a series later, once for each value.
        if line.text_bytes() > KEY_BYTES_MAX {
            return counts.count_dropped(DropReason::BadName, metric.values().count() as u64);
        }
        let is_trusted = origin.sender.is_trusted();
        let mut queue = self.queue.lock();
        let room = queue.room(line.bytes(), is_trusted);
        let values = metric.values().take(room);
        line.values.extend(values.map(|number| number.value));
        line.values.shrink_to_fit();
        let refused = metric.values().count() - line.values.len();
        if refused > 0 {
            counts.count_dropped(DropReason::QueueFull, refused as u64);
        }
        if !line.values.is_empty() {
            queue.values += line.values.len();
            queue.bytes += line.bytes();
            queue.lines.push(line);
        }
    }

    /// Writes the queue to the store, sender by sender in the order of arrival.
    pub(super) fn write_queued(&self, points: &PointWriter, now: Millis) {
        let queue = std::mem::take(&mut *self.queue.lock());
        for batch in queue
            .lines
            .chunk_by(|a, b| Arc::ptr_eq(&a.sender, &b.sender))
        {
            let labels: Vec<Vec<(&str, &str)>> = batch
                .iter()
                .map(|line| line.labels.iter().map(|(k, v)| (&**k, &**v)).collect())
                .collect();
            let mut offered = Vec::new();
            for (line, labels) in batch.iter().zip(&labels) {
                let values = line.values.iter();
                offered.extend(values.map(|value| line.point(labels, *value)));
            }
            // Drops are counted by the writer, including those of a store that accepts nothing.
            if let Err(error) = points.write(&batch[0].sender, &offered, now) {
                tracing::warn!(%error, "cannot store statsd gauges with timestamps");
            }
        }
    }

    /// Returns the number of queued values, and the memory of the queue.
    #[cfg(test)]
    pub(super) fn queued(&self) -> (usize, usize) {
        let queue = self.queue.lock();
        (queue.values, queue.bytes)
    }
}

impl GaugeQueue {
    /// Returns how many values of a line there is room for. A quarter is reserved for the agent's
    /// user and root.
    fn room(&self, line_bytes: usize, is_trusted: bool) -> usize {
        let part = |max: usize| match is_trusted {
            true => max,
            false => max - max / 4,
        };
        let bytes = part(QUEUE_BYTES_MAX).saturating_sub(self.bytes + line_bytes);
        let values = part(QUEUE_MAX).saturating_sub(self.values);
        values.min(bytes / VALUE_BYTES)
    }
}
