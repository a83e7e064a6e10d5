//! What one attempt to read an input gets from its thread: limits, labels, and the way to the
//! store.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use pegel_metric::{DropReason, Millis};
use pegel_wire::PointBatch;

use super::{OnceValues, PullError};
use crate::Ingest;
use crate::point_batch::BatchPointError;
use crate::point_writer::IncomingPoint;
use crate::senders::Sender;

/// The level of all pulled metrics: the configuration names each input.
const LEVEL: u8 = 1;
/// How often a label may get the prefix `exported_`.
const RENAMES_MAX: usize = 3;

/// The labels that the agent adds to the samples of one input.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddedLabels {
    labels: Vec<(String, String)>,
    /// For each label, the names that a label of the source with the same name may get.
    renamed: Vec<[String; RENAMES_MAX]>,
}

impl AddedLabels {
    /// Later labels replace earlier ones of the same name.
    pub(crate) fn new(labels: impl IntoIterator<Item = (String, String)>) -> AddedLabels {
        let mut added = AddedLabels::default();
        for (key, value) in labels {
            match added.labels.iter_mut().find(|(known, _)| *known == key) {
                Some(known) => known.1 = value,
                None => {
                    let renamed = |count: usize| format!("{}{key}", "exported_".repeat(count));
                    added
                        .renamed
                        .push(std::array::from_fn(|at| renamed(at + 1)));
                    added.labels.push((key, value));
                }
            }
        }
        added
    }

    /// Writes the labels of one sample: those of the source and those of the agent. Of two with one
    /// name, that of the source is renamed, as Prometheus does it, or wins if it is honored.
    fn merge<'a>(
        &'a self,
        of_source: &[(&'a str, &'a str)],
        honor: bool,
        merged: &mut Vec<(&'a str, &'a str)>,
    ) {
        let is_taken = |key: &str| of_source.iter().any(|(known, _)| *known == key);
        for (key, value) in of_source {
            let at = self.labels.iter().position(|(known, _)| known == key);
            let key = match at.filter(|_| !honor) {
                Some(at) => {
                    let mut names = self.renamed[at].iter();
                    // With all names taken, the duplicate label is refused by admission.
                    names
                        .find(|name| !is_taken(name))
                        .map_or(*key, String::as_str)
                }
                None => key,
            };
            merged.push((key, value));
        }
        let of_agent = self.labels.iter().map(|(key, value)| (&**key, &**value));
        let is_free = |key: &str| !(honor && is_taken(key));
        merged.extend(of_agent.filter(|(key, _)| is_free(key)));
    }
}

/// How samples of a source are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SampleOptions {
    /// Labels of the source win over those that the agent adds.
    pub honor_labels: bool,
    /// Samples keep the times that the source gave them.
    pub honor_times: bool,
}

impl Default for SampleOptions {
    fn default() -> SampleOptions {
        SampleOptions {
            honor_labels: false,
            honor_times: true,
        }
    }
}

/// One attempt.
pub(crate) struct PullContext<'a> {
    pub ingest: &'a Ingest,
    pub sender: &'a Arc<Sender>,
    pub labels: &'a AddedLabels,
    /// When the attempt began: the time of samples without one.
    pub time: Millis,
    pub timeout: Duration,
    pub deadline: Instant,
    pub stop: &'a Arc<AtomicBool>,
    pub counts: Cell<PullCounts>,
    pub first_refusal: RefCell<Option<String>>,
    /// Parts that were switched on or off by a command.
    pub switches: BTreeMap<String, bool>,
    /// The parts of the source and whether they are read, as the reader found them.
    pub parts: RefCell<BTreeMap<String, bool>>,
    /// Filled only for inputs that are read once.
    pub kept_values: Option<RefCell<OnceValues>>,
}

/// The samples of one attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PullCounts {
    pub kept: u64,
    pub refused: u64,
}

impl PullContext<'_> {
    /// Returns the time left until the deadline.
    pub(crate) fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Stores the valid points of a batch. Each point is counted as kept or dropped. Fails only if
    /// the store accepts nothing.
    pub(crate) fn store(
        &self,
        batch: &PointBatch<'_>,
        options: SampleOptions,
    ) -> Result<(), PullError> {
        let of_batch: Vec<(&str, &str)> =
            batch.labels().iter().map(|(k, v)| (&**k, &**v)).collect();
        let mut labels = Vec::with_capacity(of_batch.len() + batch.len());
        let mut valid = Vec::with_capacity(batch.len());
        for point in &batch.points {
            match point {
                Ok(point) => {
                    let first = labels.len();
                    let of_source = &of_batch[batch.labels_of(point)];
                    self.labels
                        .merge(of_source, options.honor_labels, &mut labels);
                    valid.push((point, first..labels.len()));
                }
                Err(fault) => {
                    let refused = BatchPointError::from(*fault);
                    self.ingest.count_refused(self.sender, refused.reason());
                    self.count_refused(&refused.to_string());
                }
            }
        }
        let offered: Vec<IncomingPoint<'_>> = valid
            .iter()
            .map(|(point, range)| IncomingPoint {
                name: &point.name,
                labels: &labels[range.clone()],
                help: batch.help_of(point),
                kind: point.kind,
                level: LEVEL,
                time: point
                    .time
                    .filter(|_| options.honor_times)
                    .unwrap_or(self.time),
                value: point.value,
            })
            .collect();
        let result = self.ingest.store_points(self.sender, &offered);
        let result = result.map_err(PullError::new)?;
        for (at, refused) in &result.refused {
            self.count_refused(&format!("{}: {refused}", offered[*at].name));
        }
        let mut counts = self.counts.get();
        counts.kept += result.kept;
        self.counts.set(counts);
        if let Some(kept) = &self.kept_values {
            keep_values(&mut kept.borrow_mut(), &offered);
        }
        Ok(())
    }

    /// Counts something that is not in its format.
    pub(crate) fn count_malformed(&self, message: &str) {
        self.ingest
            .count_refused(self.sender, DropReason::Malformed);
        self.count_refused(message);
    }

    fn count_refused(&self, message: &str) {
        let mut counts = self.counts.get();
        counts.refused += 1;
        self.counts.set(counts);
        let mut first = self.first_refusal.borrow_mut();
        first.get_or_insert_with(|| message.to_owned());
    }
}

/// Records the values for the snapshot, named as in `name{k="v"}`.
fn keep_values(kept: &mut OnceValues, offered: &[IncomingPoint<'_>]) {
    for point in offered.iter().filter(|point| point.value.is_finite()) {
        let labels: Vec<String> = point
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value:?}"))
            .collect();
        let series = match labels.is_empty() {
            true => point.name.to_owned(),
            false => format!("{}{{{}}}", point.name, labels.join(",")),
        };
        kept.insert(series, point.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(added: &[(&str, &str)], source: &[(&str, &str)], honor: bool) -> String {
        let added = added
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let added = AddedLabels::new(added);
        let mut labels = Vec::new();
        added.merge(source, honor, &mut labels);
        let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        labels.join(",")
    }

    #[test]
    fn labels_of_the_source_are_renamed_or_honored() {
        let added = [("job", "web"), ("instance", "a:1")];
        let source = [("job", "x"), ("code", "200")];
        assert_eq!(
            merged(&added, &source, false),
            "exported_job=x,code=200,job=web,instance=a:1"
        );
        assert_eq!(merged(&added, &source, true), "job=x,code=200,instance=a:1");
        let twice = [("job", "x"), ("exported_job", "y")];
        assert_eq!(
            merged(&added, &twice, false),
            "exported_exported_job=x,exported_job=y,job=web,instance=a:1"
        );
    }

    #[test]
    fn configured_labels_replace_the_default_ones() {
        let added = [("job", "web"), ("rack", "a"), ("job", "other")];
        assert_eq!(merged(&added, &[], false), "job=other,rack=a");
    }
}
