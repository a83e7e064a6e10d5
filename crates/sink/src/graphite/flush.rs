//! Turns current values into batches.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use pegel_metric::{Input, MetricKind, Millis, Selector, Series, format_value, glob_matches};
use pegel_store::{LatestValue, Store};

use super::path::PathBuilder;
use super::pickle::{PATH_BYTES_MAX, PickleWriter};
use super::settings::{GraphiteFormat, GraphiteSettings};

/// Values that are sent together.
#[derive(Debug, Default)]
pub struct Batch {
    pub bytes: Vec<u8>,
    pub values: u64,
    /// Values that Graphite cannot store: NaN, infinities, times before 1970, and those whose path
    /// is too long.
    pub unsuitable: u64,
}

/// What is known about the series of one server.
#[derive(Debug)]
pub struct Flush {
    paths: PathBuilder,
    names: Vec<String>,
    format: GraphiteFormat,
    store_rates: bool,
    /// By the address of the series, which stays valid because the entry holds it.
    entries: HashMap<usize, SeriesEntry>,
    /// The number of the last flush.
    flushes: u64,
    text: String,
}

#[derive(Debug)]
struct SeriesEntry {
    series: Arc<Series>,
    path: SeriesPath,
    time: Millis,
    value: f64,
    /// The last flush in which the series was among the current values.
    flush: u64,
}

#[derive(Debug)]
enum SeriesPath {
    /// No pattern of `names` selects the series.
    NotSelected,
    /// Longer than a message can contain.
    TooLong,
    Path(Box<str>),
}

impl Flush {
    pub fn new(settings: &GraphiteSettings, node: &str) -> Flush {
        Flush {
            paths: PathBuilder::new(settings, node),
            names: settings.names.clone(),
            format: settings.format,
            store_rates: settings.store_rates,
            entries: HashMap::new(),
            flushes: 0,
            text: String::new(),
        }
    }

    /// Returns the values that are new since the last flush.
    pub fn read(&mut self, store: &Store, now: Millis) -> Batch {
        self.flushes += 1;
        let mut batch = Batch {
            bytes: Vec::with_capacity(self.entries.len() * 80),
            ..Batch::default()
        };
        let mut pickle = PickleWriter::default();
        store.latest(&Selector::all(), 0, &mut |series, latest| {
            self.add(series, latest, now, &mut batch, &mut pickle);
        });
        pickle.finish(&mut batch.bytes);
        let flush = self.flushes;
        self.entries.retain(|_, entry| entry.flush == flush);
        batch
    }

    fn add(
        &mut self,
        series: &Arc<Series>,
        latest: LatestValue,
        now: Millis,
        batch: &mut Batch,
        pickle: &mut PickleWriter,
    ) {
        let key = Arc::as_ptr(series) as usize;
        let (names, paths) = (&self.names, &self.paths);
        let mut is_new = false;
        let entry = self.entries.entry(key).or_insert_with(|| {
            is_new = true;
            let is_selected = names.is_empty()
                || names
                    .iter()
                    .any(|pattern| glob_matches(pattern, series.name()));
            let path = is_selected.then(|| paths.path(series));
            SeriesEntry {
                series: series.clone(),
                path: match path {
                    None => SeriesPath::NotSelected,
                    Some(path) if path.len() >= PATH_BYTES_MAX => SeriesPath::TooLong,
                    Some(path) => SeriesPath::Path(path.into_boxed_str()),
                },
                time: Millis::MIN,
                value: 0.0,
                flush: 0,
            }
        });
        entry.flush = self.flushes;
        if matches!(entry.path, SeriesPath::NotSelected) {
            return;
        }
        // The value of a program holds until the program changes it.
        let time = match entry.series.family().input {
            _ if latest.last_sampled > entry.time => latest.last_sampled,
            Input::Lane | Input::Programs | Input::Statsd => now,
            _ => return,
        };
        let (last_time, last_value) = (entry.time, entry.value);
        (entry.time, entry.value) = (time, latest.value);
        let value = if self.store_rates && entry.series.family().kind == MetricKind::Counter {
            // The first value has no rate, and neither has one after a restart of its source.
            if is_new || latest.value < last_value || time <= last_time {
                return;
            }
            (latest.value - last_value) * 1000.0 / (time - last_time) as f64
        } else {
            latest.value
        };
        let seconds = time.div_euclid(1000);
        let path = match &entry.path {
            SeriesPath::Path(path) if value.is_finite() && seconds >= 0 => path,
            _ => {
                batch.unsuitable += 1;
                return;
            }
        };
        batch.values += 1;
        match self.format {
            GraphiteFormat::Pickle => pickle.push(&mut batch.bytes, path, seconds, value),
            GraphiteFormat::Plaintext => {
                self.text.clear();
                format_value(&mut self.text, value);
                let out = &mut batch.bytes;
                out.extend_from_slice(path.as_bytes());
                out.push(b' ');
                out.extend_from_slice(self.text.as_bytes());
                // Writing to a Vec cannot fail.
                let _ = writeln!(out, " {seconds}");
            }
        }
    }
}
