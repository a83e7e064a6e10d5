//! The contribution of one series of a lane to the totals: one counter, or several for calls and
//! histograms.
//!
//! [`super::open_lane`] calls it at each pass with the values of a fresh copy. Only increases are
//! added; a counter that decreases is ignored, because a lane may contain anything.

use std::sync::Arc;

use pegel_lane::reader::{DecodedSeriesSpec as Declared, LaneHeader, LaneValue, LaneView};
use pegel_lane::{BUCKETS, LaneKind, bucket_bound};
use pegel_metric::{Millis, format_value};

use super::amount::{CounterAmount, CounterKind};
use super::totals::{LaneTotals, TotalId, TotalKind, TotalSeriesSpec};
use crate::admission::AdmissionError;
use crate::senders::Sender;

/// The totals to which one series of a lane contributes.
#[derive(Debug)]
pub(super) enum LaneContribution {
    Counter(Contribution),
    /// With the time at which the program set the value that was read last.
    Gauge(TotalId, i64),
    Calls(Box<[Contribution; 3]>),
    Distribution(Box<HistogramContribution>),
    /// Its points go to the store one by one: name and labels.
    Points(Box<LanePointSeries>),
    /// Not admitted.
    Refused,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Contribution {
    pub number: TotalId,
    pub amount: CounterAmount,
    /// The part that an agent with another journal has counted.
    pub counted_elsewhere: CounterAmount,
}

#[derive(Debug)]
pub(super) struct HistogramContribution {
    count: Contribution,
    sum: Contribution,
    /// The series of a bucket is created with its first value.
    buckets: Vec<Option<Contribution>>,
    name: String,
    labels: Vec<(String, String)>,
    user: Option<Arc<str>>,
    help: String,
    level: u8,
}

#[derive(Debug)]
pub(super) struct LanePointSeries {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub help: String,
    pub level: u8,
}

/// Called for each series that was not admitted.
pub(super) type OnRefused<'a> = dyn FnMut(&Arc<Sender>, AdmissionError) + 'a;

impl LaneContribution {
    pub(super) fn contributions_mut(&mut self) -> Vec<&mut Contribution> {
        match self {
            LaneContribution::Counter(contribution) => vec![contribution],
            LaneContribution::Calls(three) => three.iter_mut().collect(),
            LaneContribution::Distribution(part) => {
                let buckets = part.buckets.iter_mut().flatten();
                [&mut part.count, &mut part.sum]
                    .into_iter()
                    .chain(buckets)
                    .collect()
            }
            LaneContribution::Gauge(..)
            | LaneContribution::Points(_)
            | LaneContribution::Refused => Vec::new(),
        }
    }

    pub(super) fn contributions(&self) -> Vec<Contribution> {
        match self {
            LaneContribution::Counter(contribution) => vec![*contribution],
            LaneContribution::Calls(three) => three.to_vec(),
            LaneContribution::Distribution(part) => {
                let buckets = part.buckets.iter().flatten().copied();
                [part.count, part.sum].into_iter().chain(buckets).collect()
            }
            LaneContribution::Gauge(..)
            | LaneContribution::Points(_)
            | LaneContribution::Refused => Vec::new(),
        }
    }
}

impl LaneContribution {
    /// Adds the increase since the last pass. Returns whether there was any.
    #[allow(clippy::too_many_arguments)] // One step of `update`, with all of its state.
    pub(super) fn update(
        &mut self,
        totals: &mut LaneTotals,
        sender: &Arc<Sender>,
        view: &LaneView<'_>,
        index: usize,
        is_alive: bool,
        now: Millis,
        refuse: &mut OnRefused<'_>,
    ) -> bool {
        match (self, view.value(index)) {
            (LaneContribution::Counter(part), Some(LaneValue::Counter(value))) => {
                part.raise_to(CounterAmount::Whole(value), totals, now)
            }
            (LaneContribution::Counter(part), Some(LaneValue::FloatCounter(value))) => {
                let bits = value.to_bits();
                part.raise_to(
                    CounterAmount::from_bits(CounterKind::Float, bits),
                    totals,
                    now,
                )
            }
            (LaneContribution::Calls(parts), Some(LaneValue::Calls { hits, bytes, nanos })) => {
                let seconds = CounterAmount::Float(nanos as f64 / 1e9);
                let amounts = [
                    CounterAmount::Whole(hits),
                    CounterAmount::Whole(bytes),
                    seconds,
                ];
                let mut is_changed = false;
                for (part, amount) in parts.iter_mut().zip(amounts) {
                    is_changed |= part.raise_to(amount, totals, now);
                }
                is_changed
            }
            (
                LaneContribution::Gauge(number, seen_ms),
                Some(LaneValue::Gauge { value, set_ms }),
            ) => {
                if is_alive && value.is_finite() {
                    totals.update_gauge(*number, value, set_ms);
                }
                let is_new = std::mem::replace(seen_ms, set_ms) != set_ms;
                sender.add_received(u64::from(is_new));
                // Gauges are not in the journal.
                false
            }
            (LaneContribution::Distribution(part), Some(LaneValue::Distribution(value))) => {
                let count = CounterAmount::Whole(value.count());
                let sum = CounterAmount::from_bits(CounterKind::Float, value.sum.to_bits());
                let is_changed = part.count.raise_to(count, totals, now);
                part.sum.raise_to(sum, totals, now);
                if is_changed {
                    part.update_buckets(totals, sender, value.buckets(), now, refuse);
                }
                is_changed
            }
            _ => false,
        }
    }
}

impl Contribution {
    fn new(number: TotalId, kind: CounterKind) -> Contribution {
        Contribution {
            number,
            amount: CounterAmount::zero(kind),
            counted_elsewhere: CounterAmount::zero(kind),
        }
    }

    /// Returns the part that this agent counts.
    pub(super) fn counted(&self) -> CounterAmount {
        self.amount.minus(self.counted_elsewhere)
    }

    /// Counters only grow: a decrease is ignored.
    fn raise_to(&mut self, amount: CounterAmount, totals: &mut LaneTotals, now: Millis) -> bool {
        let is_more = amount.is_more_than(self.amount);
        if is_more {
            totals.add_amount(self.number, amount.minus(self.amount), now);
            self.amount = amount;
        }
        is_more
    }
}

impl HistogramContribution {
    fn update_buckets(
        &mut self,
        totals: &mut LaneTotals,
        sender: &Arc<Sender>,
        counts: impl Iterator<Item = u64>,
        now: Millis,
        refuse: &mut OnRefused<'_>,
    ) {
        for (bucket, count) in counts.enumerate().take(BUCKETS) {
            // The last bucket always exists: its bound is infinity, which readers of histograms
            // require.
            if count == 0 && bucket != BUCKETS - 1 {
                continue;
            }
            if self.buckets[bucket].is_none() {
                match self.join_bucket(totals, sender, bucket, now) {
                    Ok(number) => {
                        let part = Contribution::new(number, CounterKind::Bucket);
                        self.buckets[bucket] = Some(part);
                    }
                    Err(refusal) => refuse(sender, refusal),
                }
            }
            if let Some(part) = &mut self.buckets[bucket] {
                part.raise_to(CounterAmount::Whole(count), totals, now);
            }
        }
    }

    fn join_bucket(
        &self,
        totals: &mut LaneTotals,
        sender: &Arc<Sender>,
        bucket: usize,
        now: Millis,
    ) -> Result<TotalId, AdmissionError> {
        let mut bound = String::new();
        format_value(&mut bound, bucket_bound(bucket));
        let mut labels: Vec<(&str, &str)> = borrow_labels(&self.labels);
        labels.push(("le", &bound));
        let wanted = TotalSeriesSpec {
            name: &format!("{}_bucket", self.name),
            labels: &labels,
            user: self.user.as_deref(),
            help: &self.help,
            level: self.level,
            role: TotalKind::Counter(CounterKind::Bucket),
        };
        totals.join_lane(sender, &wanted, now)
    }
}

/// Returns the labels of a series that the program declared: its own, the job if one is known, and
/// those that the program requested.
pub(super) fn labels_of(declared: &Declared<'_>, header: &LaneHeader) -> Vec<(String, String)> {
    let mut labels: Vec<(String, String)> = declared
        .labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() && !labels.iter().any(|(known, _)| known == key) {
            labels.push((key.to_owned(), value.to_owned()));
        }
    };
    add("jobid", &header.job);
    if declared.with_rank {
        add("rank", &header.rank);
    }
    if declared.with_pid {
        add("pid", &header.pid.to_string());
    }
    labels
}

pub(super) fn borrow_labels(labels: &[(String, String)]) -> Vec<(&str, &str)> {
    labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

pub(super) fn join_totals(
    totals: &mut LaneTotals,
    (sender, user): (&Arc<Sender>, Option<&Arc<str>>),
    declared: &Declared<'_>,
    labels: Vec<(String, String)>,
    now: Millis,
) -> Result<LaneContribution, AdmissionError> {
    let labels_borrowed = borrow_labels(&labels);
    let mut join = |name: &str, help: &str, role: TotalKind| {
        let wanted = TotalSeriesSpec {
            name,
            labels: &labels_borrowed,
            user: user.map(|user| &**user),
            help,
            level: declared.level,
            role,
        };
        totals.join_lane(sender, &wanted, now)
    };
    let mut counter = |name: &str, help: &str, kind: CounterKind| {
        let number = join(name, help, TotalKind::Counter(kind))?;
        Ok::<Contribution, AdmissionError>(Contribution::new(number, kind))
    };
    let (name, help) = (declared.name, declared.help);
    let of_calls = |what: &str| match help.trim_end_matches('.') {
        "" => format!("Calls: {what}."),
        help => format!("{help}: {what}."),
    };
    Ok(match declared.kind {
        LaneKind::Counter => LaneContribution::Counter(counter(name, help, CounterKind::Whole)?),
        LaneKind::FloatCounter => {
            LaneContribution::Counter(counter(name, help, CounterKind::Float)?)
        }
        LaneKind::Gauge => {
            LaneContribution::Gauge(join(name, help, TotalKind::Gauge(declared.aggregation))?, 0)
        }
        LaneKind::Calls => LaneContribution::Calls(Box::new([
            counter(
                &format!("{name}_hits_total"),
                &of_calls("how many"),
                CounterKind::Whole,
            )?,
            counter(
                &format!("{name}_size_total"),
                &of_calls("bytes that they moved"),
                CounterKind::Whole,
            )?,
            counter(
                &format!("{name}_time_total"),
                &of_calls("seconds inside them"),
                CounterKind::Float,
            )?,
        ])),
        LaneKind::Histogram | LaneKind::Timer => {
            LaneContribution::Distribution(Box::new(HistogramContribution {
                count: counter(&format!("{name}_count"), help, CounterKind::Whole)?,
                sum: counter(&format!("{name}_sum"), help, CounterKind::Float)?,
                buckets: vec![None; BUCKETS],
                name: name.to_owned(),
                labels,
                user: user.cloned(),
                help: declared.help.to_owned(),
                level: declared.level,
            }))
        }
        LaneKind::Point => LaneContribution::Points(Box::new(LanePointSeries {
            name: name.to_owned(),
            labels,
            help: declared.help.to_owned(),
            level: declared.level,
        })),
    })
}
