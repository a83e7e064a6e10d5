//! Batches of points as the parsers return them: valid points go to the store, every one is
//! counted.
//!
//! HTTP handlers and the push socket call [`Ingest::store_batch`]. Each point of the batch ends up
//! either kept or refused with a reason, in the ledger and in the result; one malformed point does
//! not affect the others.

use std::sync::Arc;

use pegel_metric::{DropReason, Level, Millis};
use pegel_store::PushError;
use pegel_wire::{PointBatch, PointFault};

use crate::Ingest;
use crate::admission::AdmissionError;
use crate::point_writer::{IncomingPoint, PointError};
use crate::senders::Sender;

/// Properties of points that do not have their own.
#[derive(Debug, Clone, Copy)]
pub struct PointDefaults<'a> {
    pub help: &'a str,
    pub level: Level,
    /// Points older than this are refused: they were removed on request.
    pub not_before: Option<Millis>,
}

/// The result of a batch.
#[derive(Debug, Default)]
pub struct BatchResult {
    pub kept: u64,
    /// The refused points with their errors, by their index in the batch, ascending.
    pub refused: Vec<(usize, BatchPointError)>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchPointError {
    #[error(transparent)]
    Fault(#[from] PointFault),
    #[error(transparent)]
    Point(#[from] PointError),
    #[error("the timestamp is before the last clean-up")]
    BeforeCleanup,
}

impl BatchPointError {
    pub fn reason(&self) -> DropReason {
        match self {
            BatchPointError::Fault(PointFault::Value(_)) => DropReason::BadValue,
            BatchPointError::Fault(
                PointFault::Utf8
                | PointFault::Control
                | PointFault::TooManyTags
                | PointFault::TextTooLong,
            ) => DropReason::BadName,
            BatchPointError::Fault(PointFault::TextField) => DropReason::Unsupported,
            BatchPointError::Fault(_) => DropReason::Malformed,
            BatchPointError::Point(refusal) => refusal.reason(),
            BatchPointError::BeforeCleanup => DropReason::TooOld,
        }
    }
}

impl Ingest {
    /// Stores the valid points of a batch. Fails only as a whole, if the store accepts nothing at
    /// this time. Blocks on the log: do not call from async workers.
    pub fn store_batch(
        &self,
        sender: &Arc<Sender>,
        batch: &PointBatch<'_>,
        defaults: PointDefaults<'_>,
    ) -> Result<BatchResult, PushError> {
        let (now, kept_level) = (self.now(), self.admission().level());
        let level = |level: Option<Level>| level.unwrap_or(defaults.level);
        let labels: Vec<(&str, &str)> = batch.labels().iter().map(|(k, v)| (&**k, &**v)).collect();
        let mut verdict = BatchResult::default();
        let mut offered = Vec::with_capacity(batch.len());
        let mut places = Vec::with_capacity(batch.len());
        for (place, point) in batch.points.iter().enumerate() {
            let time = |time: Option<Millis>| time.unwrap_or(now);
            let refused = match point {
                Err(fault) => BatchPointError::Fault(*fault),
                Ok(point) if defaults.not_before.is_some_and(|at| time(point.time) < at) => {
                    BatchPointError::BeforeCleanup
                }
                // Admission checks a series once; points of one series may have several levels.
                Ok(point) if level(point.level) > kept_level => {
                    PointError::from(AdmissionError::Level(level(point.level), kept_level)).into()
                }
                Ok(point) => {
                    places.push(place);
                    offered.push(IncomingPoint {
                        name: &point.name,
                        labels: &labels[batch.labels_of(point)],
                        help: match batch.help_of(point) {
                            "" => defaults.help,
                            help => help,
                        },
                        kind: point.kind,
                        level: level(point.level),
                        time: time(point.time),
                        value: point.value,
                    });
                    continue;
                }
            };
            self.count_refused(sender, refused.reason());
            verdict.refused.push((place, refused));
        }
        let outcome = self.store_points(sender, &offered)?;
        verdict.kept = outcome.kept;
        let refused = outcome.refused.into_iter();
        verdict
            .refused
            .extend(refused.map(|(at, refusal)| (places[at], refusal.into())));
        verdict.refused.sort_by_key(|(place, _)| *place);
        Ok(verdict)
    }

    /// Counts one line, point or body that cannot be used.
    pub fn count_refused(&self, sender: &Sender, reason: DropReason) {
        self.admission().count_received(sender, 1);
        self.admission().count_dropped(sender, reason, 1);
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::{Clock, Input, Ledger, SystemClock};
    use pegel_store::{Store, StoreOptions};
    use pegel_testkit::TempDir;
    use pegel_wire::{dragon, opentsdb};

    use super::*;
    use crate::admission::{AdmissionSettings, SenderLimits};

    const DEFAULTS: PointDefaults<'static> = PointDefaults {
        help: "Sent by a test.",
        level: 1,
        not_before: None,
    };

    fn intake(store: &Store) -> Ingest {
        let settings = AdmissionSettings {
            series_max: 100,
            senders: SenderLimits::of_series(3),
            ..AdmissionSettings::for_tests()
        };
        let clock = Arc::new(SystemClock);
        let rate = std::time::Duration::from_secs(1);
        Ingest::start(settings, None, store, clock, rate).expect("started")
    }

    fn ledger_of(ledger: &Ledger, input: Input) -> (u64, u64, u64) {
        let dropped = DropReason::ALL.iter();
        let dropped = dropped.map(|reason| ledger.dropped_total(input, *reason));
        (
            ledger.received_total(input),
            ledger.kept_total(input),
            dropped.sum(),
        )
    }

    #[test]
    fn good_points_are_kept_and_all_are_in_the_books() {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("a store");
        let intake = intake(&store);
        let sender = intake.sender(Input::Put, "a test");
        let now = SystemClock.utc();
        let point = |name: &str, time: i64, value: &str| {
            format!(r#"{{"metric":"{name}","timestamp":{time},"value":{value}}}"#)
        };
        let body = format!(
            "[{}]",
            [
                point("a", now, "1"),
                point("a", now, "NaN"),
                point("b", now, "2"),
                "7".to_owned(),
                point("c", now + 3_600_000, "3"),
                point("d", now, "4"),
                point("", now, "5"),
            ]
            .join(",")
        );
        let batch = opentsdb::put(body.as_bytes()).expect("readable");
        let verdict = intake
            .store_batch(&sender, &batch, DEFAULTS)
            .expect("taken");
        assert_eq!(verdict.kept, 2);
        let refused: Vec<(usize, DropReason)> = verdict
            .refused
            .iter()
            .map(|(place, refused)| (*place, refused.reason()))
            .collect();
        assert_eq!(
            refused,
            [
                (1, DropReason::BadValue),
                (3, DropReason::Malformed),
                (4, DropReason::Future),
                (5, DropReason::SenderLimit),
                (6, DropReason::BadName),
            ]
        );
        assert_eq!(ledger_of(store.ledger(), Input::Put), (7, 2, 5));
        let account = &intake.sender_statuses()[0];
        assert_eq!((account.received, account.series), (7, 3));
        assert_eq!(account.dropped.values().sum::<u64>(), 5);
    }

    #[test]
    fn points_that_the_store_does_not_take_are_dropped_on_the_senders_account() {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("a store");
        let intake = intake(&store);
        let sender = intake.sender(Input::Put, "a test");
        store.close();
        let body =
            br#"[{"metric":"a","timestamp":1,"value":1},{"metric":"b","timestamp":1,"value":1}]"#;
        let batch = opentsdb::put(body).expect("readable");
        intake
            .store_batch(&sender, &batch, DEFAULTS)
            .expect_err("the store is closed");
        let account = &intake.sender_statuses()[0];
        assert_eq!(account.received, 2);
        assert_eq!(account.dropped.get("closed"), Some(&2));
        assert_eq!(ledger_of(store.ledger(), Input::Put), (2, 0, 2));
    }

    #[test]
    fn what_is_older_than_a_clean_up_is_refused() {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("a store");
        let intake = intake(&store);
        let sender = intake.sender(Input::Http, "a test");
        let now = intake.now();
        let body = format!(r#"{{"timestamp":{now},"dps":[{{"metric":"a","value":1}}]}}"#);
        let batch = dragon::metrics(body.as_bytes()).expect("readable");
        for (not_before, kept) in [(now, 1), (now + 1, 0)] {
            let defaults = PointDefaults {
                not_before: Some(not_before),
                ..DEFAULTS
            };
            let verdict = intake
                .store_batch(&sender, &batch, defaults)
                .expect("taken");
            assert_eq!(verdict.kept, kept);
        }
        assert_eq!(
            store
                .ledger()
                .dropped_total(Input::Http, DropReason::TooOld),
            1
        );
        let batch = dragon::metrics(br#"{"dps":[{"metric":"a","value":1}]}"#).expect("readable");
        let verdict = intake
            .store_batch(&sender, &batch, DEFAULTS)
            .expect("taken");
        assert_eq!(
            verdict.kept, 1,
            "a point without a time is stored at the current time"
        );
    }
}
