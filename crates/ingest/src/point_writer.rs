//! Writes points with their own timestamps: `POST /api/metrics`, `put`, statsd gauges with times,
//! the rings of lanes. OTLP finds its series here ([`PointWriter::session`]) and writes them
//! itself.
//!
//! Points go to the store individually and are never merged. The writer caches the admitted series
//! of each sender, so that admission runs once per series. When [`PointWriter::write`] returns,
//! accepted points are in the log and readable. It waits for the log and must not be called from
//! async workers or from threads that read sockets.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use pegel_metric::{DropReason, Input, Level, MetricKind, Millis, Point, Series};
use pegel_store::{PushError, Store};

use crate::admission::{Admission, AdmissionError, AdmittedSeries, SeriesPermit, SeriesSpec};
use crate::reserved_names::USER_LABEL;
use crate::senders::{POINT_BYTES, Sender};

/// A series without points for this long is released from its sender's account.
const UNUSED_MS: Millis = 10 * 60 * 1000;
/// The interval between searches for such series.
const SWEEP_MS: Millis = 60 * 1000;

/// A point as a program sends it.
#[derive(Debug, Clone, Copy)]
pub struct IncomingPoint<'a> {
    pub name: &'a str,
    pub labels: &'a [(&'a str, &'a str)],
    /// The help text that the store keeps for the series.
    pub help: &'a str,
    pub kind: MetricKind,
    pub level: Level,
    pub time: Millis,
    pub value: f64,
}

/// The reason why a point is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PointError {
    #[error(transparent)]
    Series(#[from] AdmissionError),
    #[error("the value is not a finite number")]
    NotFinite,
    #[error("the sender exceeds limits.sender_bytes")]
    SenderRate,
    #[error("the timestamp is older than the store's retention")]
    TooOld,
    #[error("the timestamp is more than ten minutes in the future")]
    Future,
    #[error("the store rejected the point: {}", .0.as_str())]
    Store(DropReason),
}

impl PointError {
    fn from_store_reason(reason: DropReason) -> PointError {
        match reason {
            DropReason::TooOld => PointError::TooOld,
            DropReason::Future => PointError::Future,
            reason => PointError::Store(reason),
        }
    }

    pub fn reason(&self) -> DropReason {
        match self {
            PointError::Series(refusal) => refusal.reason(),
            PointError::NotFinite => DropReason::BadValue,
            PointError::SenderRate => DropReason::SenderRate,
            PointError::TooOld => DropReason::TooOld,
            PointError::Future => DropReason::Future,
            PointError::Store(reason) => *reason,
        }
    }
}

/// The result of a batch of points. Points that were kept are readable and survive a kill.
#[derive(Debug, Default)]
pub struct PointsResult {
    pub kept: u64,
    /// The refused points with their errors, by their index in the batch.
    pub refused: Vec<(usize, PointError)>,
}

/// Writes points to the store.
#[derive(Debug)]
pub struct PointWriter {
    admission: Arc<Admission>,
    store: Store,
    /// All senders share it: locked only to look up or to add one series, never while texts are
    /// composed, checked or admitted.
    cache: Mutex<PointSeriesCache>,
}

#[derive(Debug, Default)]
struct PointSeriesCache {
    /// Series by input, user, and name and labels as they were sent.
    series: HashMap<Box<str>, CachedPointSeries>,
    last_swept: Millis,
    /// The number of takeovers when the entries were last checked.
    takeovers: u64,
}

#[derive(Debug)]
struct CachedPointSeries {
    series: Arc<Series>,
    _pass: SeriesPermit,
    last_used: Millis,
}

impl PointWriter {
    pub fn new(admission: Arc<Admission>, store: Store) -> PointWriter {
        PointWriter {
            admission,
            store,
            cache: Mutex::default(),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Stores a batch. A refused point does not affect the others. Fails only as a whole, if the
    /// store accepts nothing at this time. Blocks on the log: do not call from async workers.
    pub fn write(
        &self,
        sender: &Arc<Sender>,
        offered: &[IncomingPoint<'_>],
        now: Millis,
    ) -> Result<PointsResult, PushError> {
        let mut outcome = PointsResult::default();
        let mut points = Vec::with_capacity(offered.len());
        let mut places = Vec::with_capacity(offered.len());
        {
            let mut session = self.session(now);
            let mut before = None;
            for (place, point) in offered.iter().enumerate() {
                match session.charge_and_resolve(sender, point, &mut before) {
                    Ok(series) => {
                        points.push(Point {
                            series,
                            time: point.time,
                            value: point.value,
                        });
                        places.push(place);
                    }
                    Err(refusal) => {
                        self.admission.count_received(sender, 1);
                        self.admission.count_dropped(sender, refusal.reason(), 1);
                        outcome.refused.push((place, refusal));
                    }
                }
            }
        }
        if points.is_empty() {
            return Ok(outcome);
        }
        let count = points.len() as u64;
        sender.add_received(count);
        // The store counts points that reach it in the ledger; the sender's account is updated
        // here.
        let pushed = self
            .store
            .push(sender.input, points)
            .inspect_err(|error| sender.add_dropped(error.reason(), count))?;
        outcome.kept = pushed.kept;
        for (at, reason) in pushed.refused {
            sender.add_dropped(reason, 1);
            outcome
                .refused
                .push((places[at], PointError::from_store_reason(reason)));
        }
        outcome.refused.sort_by_key(|(place, _)| *place);
        Ok(outcome)
    }

    /// Begins to look up series.
    pub(crate) fn session(&self, now: Millis) -> PointSession<'_> {
        let mut known = self.cache.lock();
        known.remove_unused(now);
        known.remove_taken_over(&self.admission);
        PointSession {
            writer: self,
            key: String::new(),
            now,
        }
    }

    /// Returns whether another input claimed the name of a statsd gauge with times since it was
    /// admitted. statsd claims no names, so this is not a takeover.
    fn is_taken_from_statsd(&self, series: &Series) -> bool {
        let input = series.family().input;
        input == Input::Statsd
            && self
                .admission
                .name_owners()
                .is_owned_by_other(series.text(), input)
    }

    /// Returns a known series.
    fn find(&self, cache: &mut PointSeriesCache, key: &str, now: Millis) -> Option<Arc<Series>> {
        let entry = cache.series.get_mut(key)?;
        if self.is_taken_from_statsd(&entry.series) {
            return None;
        }
        entry.last_used = now;
        Some(entry.series.clone())
    }
}

/// The lookup of series of one batch.
#[derive(Debug)]
pub(crate) struct PointSession<'a> {
    writer: &'a PointWriter,
    /// The key of the last point.
    key: String,
    now: Millis,
}

/// A point with its series, or why it has none.
type ResolvedBefore<'a> = (IncomingPoint<'a>, Result<Arc<Series>, AdmissionError>);

impl PointSession<'_> {
    /// `before` is the last point that was resolved. Many values of a statsd line share their name
    /// and labels: these are looked up, or refused, once.
    fn charge_and_resolve<'p>(
        &mut self,
        sender: &Arc<Sender>,
        point: &IncomingPoint<'p>,
        before: &mut Option<ResolvedBefore<'p>>,
    ) -> Result<Arc<Series>, PointError> {
        if !point.value.is_finite() {
            return Err(PointError::NotFinite);
        }
        if !sender.try_charge(POINT_BYTES) {
            return Err(PointError::SenderRate);
        }
        if let Some((known, series)) = before
            && std::ptr::eq(known.name, point.name)
            && std::ptr::eq(known.labels, point.labels)
        {
            return Ok(series.clone()?);
        }
        let series = self.resolve(sender, point);
        *before = Some((*point, series.clone()));
        Ok(series?)
    }

    /// Returns the series of a point, which is admitted if it is new. Does not look at the value
    /// and charges no bytes for it.
    pub(crate) fn resolve(
        &mut self,
        sender: &Arc<Sender>,
        point: &IncomingPoint<'_>,
    ) -> Result<Arc<Series>, AdmissionError> {
        Series::check_lengths(point.name, point.labels)?;
        let PointSession { writer, key, now } = self;
        write_key(key, sender, point);
        if let Some(series) = writer.find(&mut writer.cache.lock(), key, *now) {
            return Ok(series);
        }
        let identity = sender.user().map(|user| (USER_LABEL, user));
        let offer = SeriesSpec {
            name: point.name,
            labels: point.labels,
            identity: identity.as_slice(),
            kind: point.kind,
            help: point.help,
            level: point.level,
            input: sender.input,
        };
        let AdmittedSeries {
            series,
            permit: mut pass,
            ..
        } = writer.admission.admit(sender, &offer)?;
        let beyond_text = key.len().saturating_sub(series.text().len());
        writer.admission.charge_key(&mut pass, beyond_text as u64)?;
        let entry = CachedPointSeries {
            series: series.clone(),
            _pass: pass,
            last_used: *now,
        };
        let mut known = writer.cache.lock();
        // Another writer may have added it meanwhile.
        if let Some(series) = writer.find(&mut known, key, *now) {
            return Ok(series);
        }
        known.series.insert(key.as_str().into(), entry);
        Ok(series)
    }
}

/// Writes a cache key. Lengths keep names distinct that contain each other's separators.
fn write_key(key: &mut String, sender: &Sender, point: &IncomingPoint<'_>) {
    key.clear();
    for part in [sender.input.as_str(), sender.user().unwrap_or_default()] {
        key.push_str(part);
        key.push('\u{1}');
    }
    key.push_str(point.name);
    for (label, value) in point.labels {
        // Writing to a string cannot fail.
        let _ = write!(key, "\u{1}{}\u{1}{label}{value}", label.len());
    }
}

impl PointSeriesCache {
    fn remove_unused(&mut self, now: Millis) {
        if (now - self.last_swept).abs() >= SWEEP_MS {
            self.last_swept = now;
            self.series
                .retain(|_, entry| now - entry.last_used < UNUSED_MS);
        }
    }

    /// Removes series whose names another input took over: their next points get the label `input`.
    fn remove_taken_over(&mut self, admission: &Admission) {
        let takeovers = admission.name_owners().takeovers();
        if std::mem::replace(&mut self.takeovers, takeovers) != takeovers {
            self.series.retain(|_, entry| {
                let series = &entry.series;
                let input = series.family().input;
                !admission
                    .name_owners()
                    .is_owned_by_other(series.text(), input)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use pegel_store::StoreOptions;
    use pegel_testkit::TempDir;

    use super::*;
    use crate::admission::AdmissionSettings;

    fn point<'a>(
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
        time: Millis,
    ) -> IncomingPoint<'a> {
        IncomingPoint {
            name,
            labels,
            help: "",
            kind: MetricKind::Unknown,
            level: 1,
            time,
            value: 1.0,
        }
    }

    #[test]
    fn texts_are_checked_and_admitted_while_the_cache_is_in_use() {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("a store");
        let settings = AdmissionSettings::for_tests();
        let admission = Arc::new(Admission::new(settings, store.ledger().clone()));
        let writer = PointWriter::new(admission.clone(), store);
        let sender = admission.sender(Input::Put, "uid 4000000001");
        let mut session = writer.session(0);
        let long = "v".repeat(100_000);
        let (send, refused) = mpsc::channel();
        std::thread::scope(|threads| {
            let in_use = writer.cache.lock();
            threads.spawn(|| {
                let labels = [("t", &*long)];
                for _ in 0..3 {
                    let refused = session.resolve(&sender, &point("m", &labels, 0));
                    let _ = send.send(refused);
                }
            });
            for _ in 0..3 {
                let refused = refused.recv_timeout(Duration::from_secs(30));
                let error = refused.expect("does not wait").expect_err("too long");
                assert_eq!(error.reason(), DropReason::BadName);
            }
            drop(in_use);
        });
    }

    #[test]
    fn values_of_one_line_are_looked_up_or_refused_once() {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("a store");
        let settings = AdmissionSettings::for_tests();
        let admission = Arc::new(Admission::new(settings, store.ledger().clone()));
        let writer = PointWriter::new(admission.clone(), store);
        let sender = admission.sender(Input::Statsd, "a test");
        let now = pegel_testkit::now_millis();
        let labels = [("a", "b")];
        for name in ["good", "bad{"] {
            let offered: Vec<IncomingPoint<'_>> =
                (0..100).map(|at| point(name, &labels, now - at)).collect();
            let mut session = writer.session(now);
            let mut before = None;
            let results = offered.iter().map(|point| {
                session
                    .charge_and_resolve(&sender, point, &mut before)
                    .is_ok()
            });
            let results: Vec<bool> = results.collect();
            assert_eq!(results, [name == "good"; 100]);
            let written = writer.write(&sender, &offered, now).expect("taken");
            let expected = if name == "good" { (100, 0) } else { (0, 100) };
            assert_eq!((written.kept, written.refused.len() as u64), expected);
            // A key is written for each series, not for each value.
            session.key.clear();
            let again = session.charge_and_resolve(&sender, &offered[0], &mut before);
            assert_eq!((again.is_ok(), &*session.key), (name == "good", ""));
        }
    }
}
