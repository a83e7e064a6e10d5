//! One run of the model: a store, the naive one beside it, and random operations on both.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{
    Clock, Family, Group, Input, Kind, Millis, Point, Reason, Selector, Series, Slot, Tick,
};
use pegel_store::{Fold, Options, Question, Step, Store};
use pegel_testkit::{FakeClock, Rng, TempDir};

use crate::currents::Currents;
use crate::naive::{Answer, Naive, fold};

/// A Monday, on the hour.
const START: Millis = 1_700_006_400_000;
const MINUTE: Millis = 60_000;
const HOUR: Millis = 60 * MINUTE;
const AHEAD_MAX: Millis = 10 * MINUTE;

/// What a run is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Everything at once; bounded by age.
    Wild,
    /// Bounded by few bytes, and all samples in order: what is missing is exactly the oldest.
    Ordered,
    /// Bounded by few bytes, samples in any order: what is there is right.
    Tight,
    /// Few series allowed.
    Crowded,
}

pub struct World {
    mode: Mode,
    rng: Rng,
    dir: TempDir,
    clock: Arc<FakeClock>,
    options: Options,
    store: Store,
    naive: Naive,
    currents: Currents,
    groups: Vec<Collector>,
    loose: Vec<Arc<Series>>,
    last_value: HashMap<Arc<Series>, f64>,
    tick: Tick,
    /// Retention may have dropped what is older.
    floor: Millis,
    /// What the books must say was kept since the store was opened.
    kept: u64,
    /// Samples that were written again. Beyond their age, the first one may show.
    rewritten: HashSet<(Arc<Series>, Millis)>,
    /// Opened again and not settled: series that were forgotten come back with their log.
    is_reopened: bool,
    /// The operations so far, for whoever reads a failure.
    pub story: Vec<String>,
}

/// A group whose members come and go.
struct Collector {
    group: Group,
    live_for: Millis,
    slots: Vec<(Slot, Arc<Series>)>,
    away: Vec<Arc<Series>>,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let mode = match seed % 8 {
            0 => Mode::Ordered,
            1 => Mode::Tight,
            2 => Mode::Crowded,
            _ => Mode::Wild,
        };
        let dir = TempDir::new();
        let clock = Arc::new(FakeClock::new(START + rng.between(0..HOUR)));
        let mut options = Options::new(dir.join("store"));
        options.clock = clock.clone();
        options.keep_memory = Duration::from_secs(*rng.pick(&[10, 60, 300]));
        options.keep_disk = Duration::from_secs(3600 * *rng.pick(&[3, 6, 24, 48]));
        if matches!(mode, Mode::Ordered | Mode::Tight) {
            options.keep_bytes = *rng.pick(&[12, 24, 48]) << 10;
        }
        if mode == Mode::Crowded {
            options.series_max = 10;
        }
        let groups: Vec<Collector> = ["cpu", "disk", "net"]
            .into_iter()
            .map(|name| Collector::new(name, &mut rng))
            .collect();
        let mut loose: Vec<Arc<Series>> = (0..6)
            .map(|n| {
                series(
                    "loose",
                    if n % 2 == 0 {
                        Kind::Gauge
                    } else {
                        Kind::Counter
                    },
                    n,
                )
            })
            .collect();
        // Two series are both in a group and pushed.
        loose.extend(groups[0].away.iter().take(2).cloned());
        let store = Store::open(options.clone()).expect("an empty directory opens");
        World {
            mode,
            rng,
            dir,
            floor: clock.utc() - keep_ms(&options),
            clock,
            options,
            store,
            naive: Naive::default(),
            currents: Currents::default(),
            groups,
            loose,
            last_value: HashMap::new(),
            tick: Tick::new(Input::Collect),
            kept: 0,
            rewritten: HashSet::new(),
            is_reopened: false,
            story: vec![format!("seed {seed}: {mode:?}")],
        }
    }

    pub fn step(&mut self) {
        match self.rng.below(24) {
            0..=6 => self.ticks(),
            7..=11 => self.push(),
            12..=13 => self.change_members(),
            14 => self.settle(),
            15..=16 => self.pass_time(),
            17 if matches!(self.mode, Mode::Wild | Mode::Tight) => self.step_back(),
            18 if self.rng.chance(3) => self.reopen(),
            19 if self.rng.chance(3) => self.crash(),
            20 => self.check_currents(),
            _ => self.ask(),
        }
    }

    /// Nothing is left to do: everything must be there, and the books must balance.
    pub fn finish(&mut self) {
        self.settle();
        self.check_everything();
        self.reopen();
        self.check_everything();
    }

    fn tell(&mut self, what: String) {
        self.story
            .push(format!("{:>9} {what}", self.clock.utc() - START));
    }

    fn ticks(&mut self) {
        let count = match self.rng.below(8) {
            0 => 300,
            _ => self.rng.between(1..40),
        };
        let pause = *self.rng.pick(&[7, 100, 500, 1000]);
        let is_calm = self.rng.chance(2);
        self.tell(format!("{count} ticks every {pause} ms"));
        for _ in 0..count {
            let again = self.mode != Mode::Ordered && self.rng.chance(30);
            self.advance(if again { 0 } else { pause });
            self.tick_once();
            if is_calm {
                self.sync();
            }
        }
        self.sync();
        if !is_calm {
            self.currents.hurried();
        }
    }

    fn tick_once(&mut self) {
        let time = self.clock.utc();
        let which = match self.mode {
            // One at a time, so that the books tell whether it was refused.
            Mode::Crowded => 1 << self.rng.below(3),
            _ => self.rng.below(7) + 1,
        };
        self.tick.reset(time);
        let mut rows = Vec::new();
        for (number, collector) in self.groups.iter_mut().enumerate() {
            if which >> number & 1 == 0 {
                continue;
            }
            collector.group.clear();
            let mut row = Vec::new();
            for (slot, series) in &collector.slots {
                if !self.rng.chance(6) {
                    let value = next_value(&mut self.rng, &mut self.last_value, series);
                    collector.group.set(*slot, value);
                    row.push((series.clone(), value));
                }
            }
            collector.group.append_to(&mut self.tick);
            rows.push((number, collector.live_for, row));
        }
        let refused = || {
            self.store
                .ledger()
                .dropped_total(Input::Collect, Reason::SeriesLimit)
        };
        let refused_before = refused();
        self.store.tick(&mut self.tick);
        if self.mode == Mode::Crowded {
            self.sync();
            let refused = refused() - refused_before;
            if refused > 0 {
                assert_eq!(
                    refused,
                    rows[0].2.len() as u64,
                    "a row is refused as a whole"
                );
                return;
            }
        }
        for (number, live_for, row) in rows {
            self.kept += row.len() as u64;
            for (series, value) in &row {
                self.write(series, time, *value);
            }
            self.currents.row(number, live_for, time, &row);
        }
    }

    fn push(&mut self) {
        let count = match self.rng.below(10) {
            0 => 600,
            _ => self.rng.between(1..20),
        };
        self.advance(1);
        let now = self.clock.utc();
        let mut points = Vec::new();
        let few = self
            .rng
            .chance(2)
            .then(|| self.rng.pick(&self.loose).clone());
        for _ in 0..count {
            let series = few
                .clone()
                .unwrap_or_else(|| self.rng.pick(&self.loose).clone());
            let time = self.push_time(&series, now);
            let value = next_value(&mut self.rng, &mut self.last_value, &series);
            points.push(Point {
                series,
                time,
                value,
            });
        }
        self.tell(format!("push {count} points"));
        let pushed = self
            .store
            .push(Input::Push, points.clone())
            .expect("the store takes pushes");
        let refused: HashMap<usize, Reason> = pushed.refused.iter().copied().collect();
        assert_eq!(pushed.kept + refused.len() as u64, points.len() as u64);
        self.kept += pushed.kept;
        for (at, point) in points.iter().enumerate() {
            let expected = if point.time > now + AHEAD_MAX {
                Some(Reason::Future)
            } else if point.time < now - keep_ms(&self.options) {
                Some(Reason::TooOld)
            } else {
                None
            };
            match refused.get(&at) {
                Some(Reason::SeriesLimit) if expected.is_none() => {
                    assert_eq!(self.mode, Mode::Crowded, "a series too many");
                }
                other => {
                    assert_eq!(
                        other.copied(),
                        expected,
                        "point {at} at {}",
                        point.time - START
                    );
                    if expected.is_none() {
                        self.write(&point.series, point.time, point.value);
                        self.currents.point(&point.series, point.time, point.value);
                    }
                }
            }
        }
        self.currents.clock(now);
        let count = self.store.status().series;
        assert!(
            self.is_reopened || count <= self.options.series_max as u64,
            "{count} series"
        );
    }

    fn write(&mut self, series: &Arc<Series>, time: Millis, value: f64) {
        if self.naive.write(series, time, value) {
            self.rewritten.insert((series.clone(), time));
        }
    }

    fn push_time(&mut self, series: &Arc<Series>, now: Millis) -> Millis {
        let keep = keep_ms(&self.options);
        if self.mode == Mode::Ordered {
            return match self.rng.below(20) {
                0 => now + AHEAD_MAX + 1,
                1 => now - keep - 1,
                _ => now,
            };
        }
        match self.rng.below(20) {
            0 => now + AHEAD_MAX + self.rng.between(0..3),
            1 => now - keep + self.rng.between(-2..2),
            2 => now + self.rng.between(0..AHEAD_MAX),
            3..=6 => now - self.rng.between(0..HOUR),
            7..=8 => now - self.rng.between(0..keep),
            9..=11 => {
                let known = self.naive.times(series);
                match known.is_empty() {
                    true => now,
                    // Mostly recent ones, which are still in memory.
                    false if self.rng.chance(2) => *self.rng.pick(&known),
                    false => *self.rng.pick(&known[known.len().saturating_sub(20)..]),
                }
            }
            _ => now - self.rng.between(0..2000),
        }
    }

    fn change_members(&mut self) {
        let at = self.rng.below(self.groups.len() as u64) as usize;
        let collector = &mut self.groups[at];
        let grows =
            collector.slots.is_empty() || (!collector.away.is_empty() && self.rng.chance(2));
        let what = if grows {
            let from = self.rng.below(collector.away.len() as u64) as usize;
            let series = collector.away.swap_remove(from);
            collector.declare(series.clone());
            format!("+ {series}")
        } else {
            let from = self.rng.below(collector.slots.len() as u64) as usize;
            let (slot, series) = collector.slots.swap_remove(from);
            collector.group.retire(slot);
            collector.away.push(series.clone());
            format!("- {series}")
        };
        self.tell(what);
    }

    fn settle(&mut self) {
        self.tell("settle".into());
        self.store.settle();
        self.is_reopened = false;
        let status = self.store.status();
        assert_eq!(status.degraded, None);
        assert!(
            status.set_aside.is_empty() && status.torn_bytes == 0,
            "{status:?}"
        );
        let bytes = status.log_bytes + status.block_bytes;
        assert!(
            bytes <= self.options.keep_bytes || status.blocks == 0,
            "{status:?}"
        );
    }

    fn pass_time(&mut self) {
        let by = match self.rng.below(4) {
            0 => self.rng.between(0..10_000),
            1 => self.rng.between(0..30 * MINUTE),
            2 => self.rng.between(0..2 * HOUR),
            _ => self.rng.between(0..8 * HOUR),
        };
        self.tell(format!("{} min pass", by / MINUTE));
        self.advance(by);
    }

    fn step_back(&mut self) {
        let by = match self.rng.below(3) {
            0 => self.rng.between(1..5000),
            1 => self.rng.between(1..20 * MINUTE),
            _ => self.rng.between(1..2 * HOUR),
        };
        self.tell(format!("the clock steps back by {by} ms"));
        self.clock.step(-by);
        self.currents.clock(self.clock.utc());
    }

    fn advance(&mut self, by: Millis) {
        self.clock.advance(Duration::from_millis(by as u64));
        self.floor = self.floor.max(self.clock.utc() - keep_ms(&self.options));
        self.currents.clock(self.clock.utc());
    }

    fn reopen(&mut self) {
        self.tell("close and reopen".into());
        self.sync();
        self.check_books();
        self.store.close();
        self.open_in(self.options.dir.clone());
    }

    /// As a crash would leave it: a copy of the files while the store is open.
    fn crash(&mut self) {
        self.tell("crash and reopen".into());
        self.sync();
        self.check_books();
        let dir = TempDir::new();
        let to = dir.join("store");
        while !copy_store(&self.options.dir, &to) {}
        let old = std::mem::replace(&mut self.dir, dir);
        self.open_in(to);
        drop(old);
    }

    fn open_in(&mut self, dir: std::path::PathBuf) {
        self.options.dir = dir;
        self.store = Store::open(self.options.clone()).expect("the store opens again");
        let status = self.store.status();
        assert!(
            status.set_aside.is_empty() && status.torn_bytes == 0,
            "{status:?}"
        );
        self.kept = 0;
        self.is_reopened = true;
        self.currents.reopened();
    }

    /// A push is answered after everything that was queued before it.
    fn sync(&self) {
        self.store
            .push(Input::Push, Vec::new())
            .expect("the store takes pushes");
    }

    fn check_books(&self) {
        let mut kept = 0;
        for account in self.store.ledger().accounts() {
            let dropped: u64 = account.dropped.iter().map(|(_, count)| count).sum();
            assert_eq!(account.received, account.kept + dropped, "{account:?}");
            kept += account.kept;
        }
        assert_eq!(kept, self.kept, "kept");
    }

    fn check_currents(&mut self) {
        self.tell("latest".into());
        let mut visits = Vec::new();
        self.store
            .latest(&Selector::all(), 0, &mut |series, latest| {
                visits.push((series.clone(), latest));
            });
        self.currents.check(visits, self.clock.utc(), &self.naive);
    }

    fn check_everything(&mut self) {
        self.check_books();
        self.check_currents();
        self.check_raw(&Selector::all(), Millis::MIN, Millis::MAX);
    }

    fn ask(&mut self) {
        let selector = *self.rng.pick(&[
            "*",
            "loose",
            "cpu*",
            r#"{n=~"[0-3]"}"#,
            r#"loose{n="1"}"#,
            r#"disk{n!="2"}"#,
            "*{n=\"0\"}",
        ]);
        let now = self.clock.utc();
        let span = *self.rng.pick(&[1000, MINUTE, HOUR, 50 * HOUR]);
        let (start, end) = match self.rng.below(4) {
            0 => (Millis::MIN, Millis::MAX),
            1 => (now - span, now),
            _ => {
                let start = now + AHEAD_MAX - self.rng.between(0..span + AHEAD_MAX);
                (start, start + self.rng.between(0..span))
            }
        };
        let step = (!self.rng.chance(3)).then(|| Step {
            millis: match self.rng.below(5) {
                0 => 1,
                1 => self.rng.between(1..2000),
                2 => 10_000,
                3 => HOUR,
                _ => self.rng.between(1..10 * HOUR),
            },
            fold: (!self.rng.chance(8)).then(|| *self.rng.pick(&Fold::ALL)),
        });
        self.tell(format!("ask {selector} from {start} to {end} by {step:?}"));
        let selector = Selector::parse(selector).expect("a valid pattern");
        match step {
            None => drop(self.check_raw(&selector, start, end)),
            Some(step) => self.check_folded(&selector, start, end, step),
        }
    }

    /// Every sample that must be there is, and what is there is right. Returns the answer.
    fn check_raw(&self, selector: &Selector, start: Millis, end: Millis) -> Answer {
        let answer = self.answer(selector, start, end, None);
        let wanted = self.naive.raw(selector, start, end);
        let is_bounded_by_bytes = matches!(self.mode, Mode::Ordered | Mode::Tight);
        if start >= self.floor && !is_bounded_by_bytes {
            compare(&answer, &wanted);
            return answer;
        }
        assert!(answer.is_sorted_by(|a, b| a.0 < b.0), "series are sorted");
        for (series, points) in &answer {
            assert!(
                points.is_sorted_by(|a, b| a.0 < b.0),
                "{series} is sorted by time"
            );
            for (time, bits) in points {
                let known = self.naive.get(series, *time);
                let may_differ =
                    *time < self.floor && self.rewritten.contains(&(series.clone(), *time));
                assert!(
                    known == Some(*bits) || may_differ,
                    "{series} at {}: {}, not {:?}",
                    time - START,
                    f64::from_bits(*bits),
                    known.map(f64::from_bits),
                );
            }
        }
        let oldest = match self.mode {
            Mode::Tight => return answer,
            // Whatever is missing, is missing from the beginning.
            Mode::Ordered => answer
                .iter()
                .filter_map(|(_, points)| Some(points.first()?.0))
                .min()
                .unwrap_or(Millis::MAX),
            _ => self.floor,
        };
        compare(
            &from(&answer, oldest),
            &self.naive.raw(selector, start.max(oldest), end),
        );
        answer
    }

    fn check_folded(&self, selector: &Selector, start: Millis, end: Millis, step: Step) {
        let is_bounded_by_bytes = matches!(self.mode, Mode::Ordered | Mode::Tight);
        let raw = if start >= self.floor && !is_bounded_by_bytes {
            self.naive.raw(selector, start, end)
        } else {
            // Retention must not come between the two questions.
            self.store.settle();
            self.check_raw(selector, start, end)
        };
        let answer = self.answer(selector, start, end, Some(step));
        compare_folded(&answer, &fold(raw, step), step);
    }

    fn answer(
        &self,
        selector: &Selector,
        start: Millis,
        end: Millis,
        step: Option<Step>,
    ) -> Answer {
        let mut answer = Answer::new();
        let question = Question::new(selector.clone(), start, end, step);
        self.store
            .range(&question, &mut |series, points| {
                let points = points.iter().map(|(time, value)| (*time, value.to_bits()));
                answer.push((series.clone(), points.collect()));
            })
            .expect("an answer");
        answer
    }
}

impl Collector {
    fn new(name: &str, rng: &mut Rng) -> Collector {
        let live_for = *rng.pick(&[2_000, 10_000]);
        let away = (0..6)
            .map(|n| series(name, if n < 3 { Kind::Counter } else { Kind::Gauge }, n))
            .collect();
        let mut collector = Collector {
            group: Group::new(name, 3, live_for),
            live_for,
            slots: Vec::new(),
            away,
        };
        for _ in 0..rng.between(1..5) {
            let series = collector.away[0].clone();
            collector.away.rotate_left(1);
            collector.away.pop();
            collector.declare(series);
        }
        collector
    }

    fn declare(&mut self, series: Arc<Series>) {
        let labels: Vec<(String, String)> = series
            .labels()
            .map(|(key, value)| (key.to_owned(), value.into_owned()))
            .collect();
        let labels: Vec<(&str, &str)> = labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        let slot = self
            .group
            .declare(series.family(), &labels)
            .expect("a valid series");
        self.slots.push((slot, series));
    }
}

fn series(name: &str, kind: Kind, number: usize) -> Arc<Series> {
    let family = Family {
        name: name.to_owned().into(),
        kind,
        help: "What it is.".into(),
        unit: "".into(),
        level: 1,
    };
    let number = number.to_string();
    Arc::new(Series::new(Arc::new(family), &[("n", &number)]).expect("a valid series"))
}

fn next_value(rng: &mut Rng, last: &mut HashMap<Arc<Series>, f64>, series: &Arc<Series>) -> f64 {
    let before = last.get(series).copied().unwrap_or(0.0);
    let value = match rng.below(16) {
        0..=4 => before,
        5..=8 => before + rng.between(0..100) as f64,
        9..=10 => rng.between(-1000..1000) as f64 / 100.0,
        11 => rng.unit() * 1e-3,
        12 => f64::from_bits(rng.next_u64()),
        13 => *rng.pick(&[
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -0.0,
            0.0,
            f64::MAX,
        ]),
        _ => rng.below(5) as f64,
    };
    last.insert(series.clone(), value);
    value
}

fn keep_ms(options: &Options) -> Millis {
    options.keep_disk.as_millis() as Millis
}

fn from(answer: &Answer, oldest: Millis) -> Answer {
    answer
        .iter()
        .map(|(series, points)| {
            let points = points.iter().filter(|(time, _)| *time >= oldest).copied();
            (series.clone(), points.collect::<Vec<_>>())
        })
        .filter(|(_, points)| !points.is_empty())
        .collect()
}

fn compare(answer: &Answer, wanted: &Answer) {
    compare_by(answer, wanted, |a, b| a == b);
}

/// Bit for bit, but for what IEEE 754 leaves open: which NaN a sum is, and which zero is the least.
fn compare_folded(answer: &Answer, wanted: &Answer, step: Step) {
    compare_by(answer, wanted, |a, b| {
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        match step.fold {
            Some(Fold::First | Fold::Last) => a == b,
            _ => a == b || (x.is_nan() && y.is_nan()) || (x == 0.0 && y == 0.0),
        }
    });
}

fn compare_by(answer: &Answer, wanted: &Answer, same: impl Fn(u64, u64) -> bool) {
    let texts = |answer: &Answer| -> Vec<String> {
        answer
            .iter()
            .map(|(series, _)| series.text().to_owned())
            .collect()
    };
    assert_eq!(texts(answer), texts(wanted), "the series of the answer");
    for ((series, got), (_, wanted)) in answer.iter().zip(wanted) {
        let differs = got
            .iter()
            .zip(wanted)
            .find(|(a, b)| a.0 != b.0 || !same(a.1, b.1));
        let show =
            |(time, bits): &(Millis, u64)| format!("{} at {}", f64::from_bits(*bits), time - START);
        assert!(
            differs.is_none() && got.len() == wanted.len(),
            "{series}: {} points, not {}; first difference: {:?}",
            got.len(),
            wanted.len(),
            differs.map(|(a, b)| (show(a), show(b)))
        );
    }
}

/// Copies log and blocks; false when the store changed its files meanwhile, which a crash would not see.
fn copy_store(from: &Path, to: &Path) -> bool {
    let _ = std::fs::remove_dir_all(to);
    let list = || -> Vec<std::path::PathBuf> {
        let mut paths = Vec::new();
        for folder in ["log", "blocks"] {
            for entry in std::fs::read_dir(from.join(folder)).expect("a directory") {
                let path = entry.expect("an entry").path();
                paths.push(path.strip_prefix(from).expect("below it").to_owned());
            }
        }
        paths.sort();
        paths
    };
    let before = list();
    for folder in ["log", "blocks"] {
        std::fs::create_dir_all(to.join(folder)).expect("a directory");
    }
    let copied = before
        .iter()
        .all(|path| std::fs::copy(from.join(path), to.join(path)).is_ok());
    copied && list() == before
}
