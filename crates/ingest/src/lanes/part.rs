//! What one series of a lane contributes to: one counter, or the several of a call or a histogram.

use std::sync::Arc;

use pegel_lane::reader::{Header, Series as Declared, Value, View};
use pegel_lane::{BUCKETS, Kind, bucket_bound};
use pegel_metric::{Millis, format_value};

use super::amount::{Amount, CounterKind};
use super::totals::{Number, Role, Totals, Wanted};
use crate::gate::Refusal;
use crate::senders::Sender;

/// What one series of a lane contributes to.
#[derive(Debug)]
pub(super) enum Part {
    Counter(Contribution),
    Gauge(Number),
    Calls(Box<[Contribution; 3]>),
    Distribution(Box<DistributionPart>),
    /// Its points go to the store one by one: name and labels.
    Points(Box<PointsPart>),
    /// Not admitted.
    Nothing,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Contribution {
    pub number: Number,
    pub amount: Amount,
    /// The part that an agent with another journal has counted.
    pub before: Amount,
}

#[derive(Debug)]
pub(super) struct DistributionPart {
    count: Contribution,
    sum: Contribution,
    /// A bucket's series appears with its first value.
    buckets: Vec<Option<Contribution>>,
    name: String,
    labels: Vec<(String, String)>,
    user: Option<Arc<str>>,
    help: String,
    level: u8,
}

#[derive(Debug)]
pub(super) struct PointsPart {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub help: String,
    pub level: u8,
}

/// Said of each series that was not admitted.
pub(super) type Refuse<'a> = dyn FnMut(&Arc<Sender>, Refusal) + 'a;

impl Part {
    pub fn all_mut(&mut self) -> Vec<&mut Contribution> {
        match self {
            Part::Counter(contribution) => vec![contribution],
            Part::Calls(three) => three.iter_mut().collect(),
            Part::Distribution(part) => {
                let buckets = part.buckets.iter_mut().flatten();
                [&mut part.count, &mut part.sum]
                    .into_iter()
                    .chain(buckets)
                    .collect()
            }
            Part::Gauge(_) | Part::Points(_) | Part::Nothing => Vec::new(),
        }
    }

    pub fn all(&self) -> Vec<Contribution> {
        match self {
            Part::Counter(contribution) => vec![*contribution],
            Part::Calls(three) => three.to_vec(),
            Part::Distribution(part) => {
                let buckets = part.buckets.iter().flatten().copied();
                [part.count, part.sum].into_iter().chain(buckets).collect()
            }
            Part::Gauge(_) | Part::Points(_) | Part::Nothing => Vec::new(),
        }
    }
}

impl Part {
    /// Adds what the lane counted since the last time. Whether that was anything.
    #[allow(clippy::too_many_arguments)] // One step of `update`, with all that it holds.
    pub fn take(
        &mut self,
        totals: &mut Totals,
        sender: &Arc<Sender>,
        view: &View<'_>,
        index: usize,
        is_alive: bool,
        now: Millis,
        refuse: &mut Refuse<'_>,
    ) -> bool {
        match (self, view.value(index)) {
            (Part::Counter(part), Some(Value::Counter(value))) => {
                part.raise_to(Amount::Whole(value), totals, now)
            }
            (Part::Counter(part), Some(Value::FloatCounter(value))) => {
                let bits = value.to_bits();
                part.raise_to(Amount::from_bits(CounterKind::Float, bits), totals, now)
            }
            (Part::Calls(parts), Some(Value::Calls { hits, bytes, nanos })) => {
                let seconds = Amount::Float(nanos as f64 / 1e9);
                let amounts = [Amount::Whole(hits), Amount::Whole(bytes), seconds];
                let mut is_changed = false;
                for (part, amount) in parts.iter_mut().zip(amounts) {
                    is_changed |= part.raise_to(amount, totals, now);
                }
                is_changed
            }
            (Part::Gauge(number), Some(Value::Gauge { value, set_ms })) => {
                if is_alive && value.is_finite() {
                    totals.gauge(*number, value, set_ms);
                }
                // Gauges are not in the journal.
                false
            }
            (Part::Distribution(part), Some(Value::Distribution(value))) => {
                let count = Amount::Whole(value.count());
                let sum = Amount::from_bits(CounterKind::Float, value.sum.to_bits());
                let is_changed = part.count.raise_to(count, totals, now);
                part.sum.raise_to(sum, totals, now);
                if is_changed {
                    part.take_buckets(totals, sender, value.buckets(), now, refuse);
                }
                is_changed
            }
            _ => false,
        }
    }
}

impl Contribution {
    fn new(number: Number, kind: CounterKind) -> Contribution {
        Contribution {
            number,
            amount: Amount::zero(kind),
            before: Amount::zero(kind),
        }
    }

    /// Returns the part that this agent counts.
    pub fn counted(&self) -> Amount {
        self.amount.minus(self.before)
    }

    /// Counters only grow: a lane that says less than before is not believed.
    fn raise_to(&mut self, amount: Amount, totals: &mut Totals, now: Millis) -> bool {
        let is_more = amount.is_more_than(self.amount);
        if is_more {
            totals.raise(self.number, amount.minus(self.amount), now);
            self.amount = amount;
        }
        is_more
    }
}

impl DistributionPart {
    fn take_buckets(
        &mut self,
        totals: &mut Totals,
        sender: &Arc<Sender>,
        counts: impl Iterator<Item = u64>,
        now: Millis,
        refuse: &mut Refuse<'_>,
    ) {
        for (bucket, count) in counts.enumerate().take(BUCKETS) {
            // The last bucket is always there: its bound is infinity, and readers of histograms want it.
            if count == 0 && bucket != BUCKETS - 1 {
                continue;
            }
            if self.buckets[bucket].is_none() {
                match self.declare_bucket(totals, sender, bucket, now) {
                    Ok(number) => {
                        let part = Contribution::new(number, CounterKind::Bucket);
                        self.buckets[bucket] = Some(part);
                    }
                    Err(refusal) => refuse(sender, refusal),
                }
            }
            if let Some(part) = &mut self.buckets[bucket] {
                part.raise_to(Amount::Whole(count), totals, now);
            }
        }
    }

    fn declare_bucket(
        &self,
        totals: &mut Totals,
        sender: &Arc<Sender>,
        bucket: usize,
        now: Millis,
    ) -> Result<Number, Refusal> {
        let mut bound = String::new();
        format_value(&mut bound, bucket_bound(bucket));
        let mut labels: Vec<(&str, &str)> = borrowed(&self.labels);
        labels.push(("le", &bound));
        let wanted = Wanted {
            name: &format!("{}_bucket", self.name),
            labels: &labels,
            user: self.user.as_deref(),
            help: &self.help,
            level: self.level,
            role: Role::Counter(CounterKind::Bucket),
        };
        totals.join(sender, &wanted, now)
    }
}

/// Returns the labels of a series that the program declared: its own, the job if one is known, and those that the program
/// requested.
pub(super) fn labels_of(declared: &Declared<'_>, header: &Header) -> Vec<(String, String)> {
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

pub(super) fn borrowed(labels: &[(String, String)]) -> Vec<(&str, &str)> {
    labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

pub(super) fn declare(
    totals: &mut Totals,
    (sender, user): (&Arc<Sender>, Option<&Arc<str>>),
    declared: &Declared<'_>,
    labels: Vec<(String, String)>,
    now: Millis,
) -> Result<Part, Refusal> {
    let labels_borrowed = borrowed(&labels);
    let mut join = |name: &str, help: &str, role: Role| {
        let wanted = Wanted {
            name,
            labels: &labels_borrowed,
            user: user.map(|user| &**user),
            help,
            level: declared.level,
            role,
        };
        totals.join(sender, &wanted, now)
    };
    let mut counter = |name: &str, help: &str, kind: CounterKind| {
        let number = join(name, help, Role::Counter(kind))?;
        Ok::<Contribution, Refusal>(Contribution::new(number, kind))
    };
    let (name, help) = (declared.name, declared.help);
    let of_calls = |what: &str| match help.trim_end_matches('.') {
        "" => format!("Calls: {what}."),
        help => format!("{help}: {what}."),
    };
    Ok(match declared.kind {
        Kind::Counter => Part::Counter(counter(name, help, CounterKind::Whole)?),
        Kind::FloatCounter => Part::Counter(counter(name, help, CounterKind::Float)?),
        Kind::Gauge => Part::Gauge(join(name, help, Role::Gauge(declared.aggregation))?),
        Kind::Calls => Part::Calls(Box::new([
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
        Kind::Histogram | Kind::Timer => Part::Distribution(Box::new(DistributionPart {
            count: counter(&format!("{name}_count"), help, CounterKind::Whole)?,
            sum: counter(&format!("{name}_sum"), help, CounterKind::Float)?,
            buckets: vec![None; BUCKETS],
            name: name.to_owned(),
            labels,
            user: user.cloned(),
            help: declared.help.to_owned(),
            level: declared.level,
        })),
        Kind::Point => Part::Points(Box::new(PointsPart {
            name: name.to_owned(),
            labels,
            help: declared.help.to_owned(),
            level: declared.level,
        })),
    })
}
