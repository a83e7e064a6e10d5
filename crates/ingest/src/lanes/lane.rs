//! One lane as the agent knows it: what it declared, and what it has contributed so far.

use std::sync::Arc;

use pegel_lane::bucket_bound;
use pegel_lane::reader::{Header, LaneError, LaneFile, Series as Declared, Value, View};
use pegel_lane::{BUCKETS, Kind};
use pegel_metric::{Millis, format_value};

use super::amount::{Amount, CounterKind};
use super::journal::{KeptLane, LaneId};
use super::totals::{Number, Role, Totals, Wanted};
use crate::gate::Refusal;
use crate::senders::Sender;

/// A lane whose file was opened.
#[derive(Debug)]
pub(super) struct KnownLane {
    pub file: LaneFile,
    /// Which of the directories it is in.
    pub directory: usize,
    pub sender: Arc<Sender>,
    /// By the index of the series in the lane.
    parts: Vec<Part>,
    /// What the journal said of it, until it was read.
    resumed: Option<KeptLane>,
    pub has_ended: bool,
    /// Since when its process has been gone, or nothing has changed.
    pub quiet_since: Millis,
    /// Whether the journal has what is here.
    pub is_journaled: bool,
    /// Why it is not read any more.
    pub fault: Option<String>,
}

/// What one series of a lane contributes to.
#[derive(Debug)]
enum Part {
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
struct Contribution {
    number: Number,
    amount: Amount,
}

#[derive(Debug)]
struct DistributionPart {
    count: Contribution,
    sum: Contribution,
    /// A bucket's series appears with its first value.
    buckets: Vec<Option<Contribution>>,
    name: String,
    labels: Vec<(String, String)>,
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

impl KnownLane {
    pub fn new(
        mut file: LaneFile,
        directory: usize,
        sender: Arc<Sender>,
        resumed: Option<KeptLane>,
        now: Millis,
    ) -> KnownLane {
        if let Some(kept) = &resumed {
            file.set_position(kept.position);
        }
        KnownLane {
            file,
            directory,
            sender,
            parts: Vec::new(),
            resumed,
            has_ended: false,
            quiet_since: now,
            is_journaled: false,
            fault: None,
        }
    }

    pub fn id(&self) -> LaneId {
        self.file.header().id
    }

    /// Reads the lane and adds what is new to the totals. Whether anything was.
    pub fn update(
        &mut self,
        totals: &mut Totals,
        buffer: &mut Vec<u8>,
        now: Millis,
        refuse: &mut Refuse<'_>,
    ) -> Result<bool, LaneError> {
        let header = self.file.header().clone();
        let view = self.file.read(buffer)?;
        let mut is_changed = false;
        for index in self.parts.len()..view.len() {
            let declared = view.series(index)?;
            let labels = labels_of(&declared, &header);
            let part = match declare(totals, &self.sender, &declared, labels, now) {
                Ok(part) => part,
                Err(refusal) => {
                    refuse(&self.sender, refusal);
                    Part::Nothing
                }
            };
            self.parts.push(part);
            is_changed = true;
        }
        // All of it is read anew: what the journal said is in there.
        self.resumed = None;
        let is_alive = !self.has_ended;
        for (index, part) in self.parts.iter_mut().enumerate() {
            is_changed |= part.take(totals, &self.sender, &view, index, is_alive, now, refuse);
        }
        if is_changed {
            self.is_journaled = false;
            self.quiet_since = now;
        }
        Ok(is_changed)
    }

    pub fn points_part(&self, index: usize) -> Option<&PointsPart> {
        match self.parts.get(index) {
            Some(Part::Points(part)) => Some(part),
            _ => None,
        }
    }

    /// For the journal.
    pub fn kept(&self) -> KeptLane {
        let contributions = self.parts.iter().flat_map(Part::all);
        let mut amounts: Vec<(Number, Amount)> = contributions
            .map(|part| (part.number, part.amount))
            .collect();
        // Not read yet: what the journal said still holds.
        amounts.extend(
            self.resumed
                .iter()
                .flat_map(|kept| kept.amounts.iter().copied()),
        );
        KeptLane {
            has_ended: self.has_ended,
            position: self.file.position(),
            amounts,
        }
    }

    /// The lane is gone for good: its counters stay in the totals, its gauges go.
    pub fn leave(&mut self, totals: &mut Totals) {
        for (number, amount) in self
            .resumed
            .take()
            .into_iter()
            .flat_map(|kept| kept.amounts)
        {
            totals.raise(number, amount, self.quiet_since);
            totals.keep(number, amount);
        }
        for part in self.parts.drain(..) {
            for contribution in part.all() {
                totals.keep(contribution.number, contribution.amount);
                totals.leave(contribution.number);
            }
            if let Part::Gauge(number) = part {
                totals.leave(number);
            }
        }
    }

    /// The program let go of it. Its gauges mean nothing any more.
    pub fn end(&mut self, totals: &mut Totals) {
        self.has_ended = true;
        self.is_journaled = false;
        for part in &mut self.parts {
            if let Part::Gauge(number) = *part {
                totals.leave(number);
                *part = Part::Nothing;
            }
        }
    }
}

impl Part {
    fn all(&self) -> Vec<Contribution> {
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
    fn take(
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
        }
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
            help: &self.help,
            level: self.level,
            role: Role::Counter(CounterKind::Bucket),
        };
        totals.join(sender, &wanted, now)
    }
}

/// The labels of a series: its own, the job where one is known, and those that it asked for.
fn labels_of(declared: &Declared<'_>, header: &Header) -> Vec<(String, String)> {
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

fn declare(
    totals: &mut Totals,
    sender: &Arc<Sender>,
    declared: &Declared<'_>,
    labels: Vec<(String, String)>,
    now: Millis,
) -> Result<Part, Refusal> {
    let labels_borrowed = borrowed(&labels);
    let mut join = |name: &str, role: Role| {
        let wanted = Wanted {
            name,
            labels: &labels_borrowed,
            help: declared.help,
            level: declared.level,
            role,
        };
        totals.join(sender, &wanted, now)
    };
    let mut counter = |name: &str, kind: CounterKind| {
        let number = join(name, Role::Counter(kind))?;
        Ok::<Contribution, Refusal>(Contribution::new(number, kind))
    };
    let name = declared.name;
    Ok(match declared.kind {
        Kind::Counter => Part::Counter(counter(name, CounterKind::Whole)?),
        Kind::FloatCounter => Part::Counter(counter(name, CounterKind::Float)?),
        Kind::Gauge => Part::Gauge(join(name, Role::Gauge(declared.aggregation))?),
        Kind::Calls => Part::Calls(Box::new([
            counter(&format!("{name}_hits_total"), CounterKind::Whole)?,
            counter(&format!("{name}_size_total"), CounterKind::Whole)?,
            counter(&format!("{name}_time_total"), CounterKind::Float)?,
        ])),
        Kind::Histogram | Kind::Timer => Part::Distribution(Box::new(DistributionPart {
            count: counter(&format!("{name}_count"), CounterKind::Whole)?,
            sum: counter(&format!("{name}_sum"), CounterKind::Float)?,
            buckets: vec![None; BUCKETS],
            name: name.to_owned(),
            labels,
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
