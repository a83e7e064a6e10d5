//! Reads the samples of a record from the store: those of a time window, and the current values at
//! the start and the end of a session, so that a task shorter than the sampling interval has a
//! first and a last sample.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pegel_metric::{Clock, Millis, Selector, Series, glob_matches};
use pegel_record::RecordSamples;
use pegel_store::{QueryError, RangeQuery, SeriesChoice, Store};

/// The prefix of the agent's own metrics, which describe no task.
const OWN_PREFIX: &str = "pegel_";
/// The prefix of the agent's metrics that describe a task.
const TASK_PREFIX: &str = "pegel_task_";

/// How often the values at the start of a session are read while samples are newer than the clock
/// reading.
const SESSION_START_ATTEMPTS: u32 = 8;

/// The values of all recorded series at one time.
struct CurrentSamples {
    samples: Vec<RecordSamples>,
    /// Whether a series was left out because it has been sampled since.
    has_newer: bool,
}

/// Reads the series that a session records.
#[derive(Debug, Clone)]
pub(crate) struct SampleSource {
    pub(crate) store: Store,
    /// Patterns of names; empty selects all but the agent's own.
    pub(crate) patterns: Arc<[String]>,
}

impl SampleSource {
    fn is_recorded(patterns: &[String], series: &Series) -> bool {
        let name = series.name();
        if name.starts_with(TASK_PREFIX) {
            return true;
        }
        match patterns.is_empty() {
            true => !name.starts_with(OWN_PREFIX),
            false => patterns.iter().any(|pattern| glob_matches(pattern, name)),
        }
    }

    /// Returns the samples after `after`, up to and including `until`.
    pub(crate) fn window(
        &self,
        after: Millis,
        until: Millis,
    ) -> Result<Vec<RecordSamples>, QueryError> {
        let mut query = RangeQuery::new(Selector::all(), after.saturating_add(1), until, None);
        let patterns = self.patterns.clone();
        let choose = move |list: &mut Vec<Arc<Series>>| {
            list.retain(|series| SampleSource::is_recorded(&patterns, series));
        };
        query.choice = Some(SeriesChoice(Arc::new(choose)));
        let mut samples = Vec::new();
        self.store.query_columns(&query, &mut |series, column| {
            samples.push(RecordSamples {
                series: series.text().into(),
                kind: series.family().kind,
                times: column.times.clone(),
                values: column.values.to_vec(),
            });
        })?;
        Ok(samples)
    }

    /// Returns the time at which a session starts, and the value of each series at that time.
    /// A tick between the reading of the clock and of the values hides the values before it, so
    /// both are read again; samples with times in the future end this after a few attempts.
    pub(crate) fn session_start(&self, clock: &dyn Clock) -> (Millis, Vec<RecordSamples>) {
        for _ in 1..SESSION_START_ATTEMPTS {
            let begin = clock.utc();
            let current = self.current(begin);
            if !current.has_newer {
                return (begin, current.samples);
            }
        }
        let begin = clock.utc();
        (begin, self.current(begin).samples)
    }

    /// Returns the current value of each series whose last sample is not after `until`, with the
    /// time of that sample.
    fn current(&self, until: Millis) -> CurrentSamples {
        let mut samples = Vec::new();
        let mut has_newer = false;
        // Series that were sampled together share their times.
        let mut times: HashMap<Millis, Arc<[Millis]>> = HashMap::new();
        self.store
            .latest(&Selector::all(), 0, &mut |series, latest| {
                if !SampleSource::is_recorded(&self.patterns, series) {
                    return;
                }
                let time = latest.last_sampled;
                if time > until {
                    has_newer = true;
                } else {
                    let times = times.entry(time).or_insert_with(|| Arc::from([time]));
                    samples.push(RecordSamples {
                        series: series.text().into(),
                        kind: series.family().kind,
                        times: times.clone(),
                        values: vec![latest.value],
                    });
                }
            });
        samples.sort_by(|a, b| a.series.cmp(&b.series));
        CurrentSamples { samples, has_newer }
    }

    /// Adds the current values of series that have no sample in `samples` and were sampled after
    /// `after`, up to `until`: series of programs that do not change are stored once a minute only.
    pub(crate) fn add_current(
        &self,
        samples: &mut Vec<RecordSamples>,
        after: Millis,
        until: Millis,
    ) {
        let known: HashSet<Arc<str>> = samples.iter().map(|one| one.series.clone()).collect();
        let current = self.current(until).samples.into_iter();
        samples.extend(current.filter(|one| {
            !known.contains(&one.series) && one.times.first().is_some_and(|time| *time > after)
        }));
    }
}
