//! kill -9 under load, repeatedly on one directory: everything that was acknowledged or readable is
//! present afterwards, once, with its value.
//!
//! The parent starts this test binary again as the child, which fills a store from several threads
//! and reports acknowledged samples through a pipe. Values are a function of series and time, so
//! that the parent can check each one that it finds.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::{
    Clock, Family, Input, MetricKind, Millis, Point, SampleGroup, Selector, Series, SystemClock,
    Tick,
};
use pegel_store::{RangeQuery, Store, StoreOptions};
use pegel_testkit::{Rng, TempDir};

const CHILD_DIR: &str = "PEGEL_KILL_CHILD_DIR";
const CHILD_FROM: &str = "PEGEL_KILL_CHILD_FROM";
const ROUNDS: usize = 24;
const PUSHERS: usize = 3;
const MEMBERS: usize = 40;

static FAMILY: Family = Family::new("load", MetricKind::Gauge, "", 1, "What the child writes.");

fn series(label: &str) -> Arc<Series> {
    Arc::new(Series::new(Arc::new(FAMILY.clone()), &[("by", label)]).expect("a valid series"))
}

/// Returns the value of a series at a time: some are decimals, some are not.
fn value_of(text: &str, time: Millis) -> f64 {
    let mut mixed = Rng::new(time as u64 ^ u64::from(crc32fast::hash(text.as_bytes())) << 20);
    match mixed.below(3) {
        0 => mixed.below(1000) as f64 / 10.0,
        1 => mixed.unit(),
        _ => mixed.below(3) as f64,
    }
}

/// Small limits, so that segments, blocks and hours change while the child is killed.
fn options(dir: &Path, clock: Arc<dyn Clock>) -> StoreOptions {
    let mut options = StoreOptions::new(dir);
    options.keep.memory = Duration::from_millis(60).into();
    options.keep.disk = Duration::from_secs(1000 * 24 * 3600).into();
    options.clock = clock;
    options
}

/// Wall time runs 20,000 times as fast as the machine's, so that hours are sealed every 180 ms.
#[derive(Debug)]
struct FastClock {
    from: Millis,
    start: Instant,
}

impl Clock for FastClock {
    fn utc(&self) -> Millis {
        self.from + self.start.elapsed().as_micros() as Millis * 20
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }
}

/// The child process, which runs until the parent kills it.
#[test]
#[ignore = "not a test: the child process of the test in this file"]
fn child() {
    let variable = |name: &str| std::env::var(name).expect("the parent sets it");
    let (dir, from) = (variable(CHILD_DIR), variable(CHILD_FROM));
    let clock = Arc::new(FastClock {
        from: from.parse().expect("a time"),
        start: Instant::now(),
    });
    let store = Store::open(options(Path::new(&dir), clock.clone())).expect("the store opens");
    report_to_parent("open");
    for pusher in 0..PUSHERS {
        let (store, clock) = (store.clone(), clock.clone());
        std::thread::spawn(move || push_forever(&store, &clock, pusher));
    }
    std::thread::spawn({
        let (store, clock) = (store.clone(), clock.clone());
        move || read_forever(&store, &clock)
    });
    tick_forever(&store, &clock);
}

/// Writes one complete line at a time: the parent must not see a partial report.
fn report_to_parent(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("@ {line}\n").as_bytes());
    let _ = out.flush();
}

fn push_forever(store: &Store, clock: &FastClock, pusher: usize) {
    let own: Vec<Arc<Series>> = (0..4)
        .map(|n| series(&format!("pusher {pusher}.{n}")))
        .collect();
    let mut rng = Rng::new(pusher as u64 ^ clock.utc() as u64);
    loop {
        let now = clock.utc();
        let points: Vec<Point> = (0..rng.between(1..30))
            .map(|_| {
                let series = rng.pick(&own).clone();
                let late = if rng.chance(4) {
                    rng.between(0..5 * 3_600_000)
                } else {
                    0
                };
                let time = now - rng.between(0..60_000) - late;
                let value = value_of(series.text(), time);
                Point {
                    series,
                    time,
                    value,
                }
            })
            .collect();
        let told: Vec<String> = points
            .iter()
            .map(|point| format!("{}\t{}", point.series.text(), point.time))
            .collect();
        let pushed = store.push(Input::Push, points).expect("the push is taken");
        assert!(pushed.refused.is_empty(), "{pushed:?}");
        for line in told {
            report_to_parent(&format!("push\t{line}"));
        }
    }
}

fn tick_forever(store: &Store, clock: &FastClock) {
    let family = Arc::new(FAMILY.clone());
    let mut group = SampleGroup::new("ticker", 3, 3_600_000);
    let mut labels: Vec<String> = (0..MEMBERS).map(|n| format!("tick {n}")).collect();
    let mut slots: Vec<_> = labels
        .iter()
        .map(|label| group.declare(&family, &[("by", label)]).expect("valid"))
        .collect();
    let mut tick = Tick::new(Input::Collect);
    for round in 0_u64.. {
        if round % 200 == 199 {
            // One member is replaced by another.
            let at = (round / 200) as usize % MEMBERS;
            group.retire(slots[at]);
            labels[at] = format!("tick {at} of {round}");
            slots[at] = group
                .declare(&family, &[("by", &labels[at])])
                .expect("valid");
        }
        let time = clock.utc();
        tick.reset(time);
        group.clear();
        for (index, (slot, label)) in slots.iter().zip(&labels).enumerate() {
            if !(round as usize + index).is_multiple_of(7) {
                group.set(*slot, value_of(&format!("load{{by=\"{label}\"}}"), time));
            }
        }
        group.append_to(&mut tick);
        store.tick(&mut tick);
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Reports everything readable: it must be present later.
fn read_forever(store: &Store, clock: &FastClock) {
    loop {
        let now = clock.utc();
        let query = RangeQuery::new(Selector::all(), now - 600_000, Millis::MAX, None);
        let mut read = Vec::new();
        let asked = store.query_range(&query, &mut |series, points| {
            if let Some((time, _)) = points.last() {
                read.push(format!("read\t{}\t{time}", series.text()));
            }
        });
        asked.expect("an answer");
        read.iter().for_each(|line| report_to_parent(line));
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn start(dir: &Path, from: Millis) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().expect("the test binary"))
        .args(["--exact", "kill::child", "--ignored"])
        .args(["--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir)
        .env(CHILD_FROM, from.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let stdout = child.stdout.take().expect("a pipe");
    (child, BufReader::new(stdout))
}

type SeriesSampleTimes = BTreeMap<String, BTreeSet<Millis>>;

/// Reads the child's reports until it ends; only complete lines count. Another thread kills it.
fn read_acknowledged(out: BufReader<ChildStdout>, promised: &mut SeriesSampleTimes) -> u64 {
    let mut lines = 0;
    for line in out.lines() {
        let line = line.expect("text");
        let Some(promise) = line.strip_prefix("@ ").filter(|line| *line != "open") else {
            continue;
        };
        let fields: Vec<&str> = promise.split('\t').collect();
        let [_, text, time] = fields[..] else {
            panic!("not a promise: {promise:?}");
        };
        let time = time.parse().expect("a time");
        promised.entry(text.to_owned()).or_default().insert(time);
        lines += 1;
    }
    lines
}

#[test]
fn nothing_that_was_acknowledged_or_read_is_lost_by_kill_9() {
    let mut rng = Rng::from_env();
    let dir = TempDir::new();
    let path = dir.join("store");
    let mut promised = SeriesSampleTimes::new();
    let mut from = 1_700_000_000_000;
    let (mut promises, mut blocks, mut torn) = (0, 0, 0);
    for round in 0..ROUNDS {
        let (mut child, mut out) = start(&path, from);
        wait_until_open(&mut out);
        let life = Duration::from_millis(rng.below(500));
        let (told, status) = std::thread::scope(|scope| {
            let told = scope.spawn(|| read_acknowledged(out, &mut promised));
            std::thread::sleep(life);
            child.kill().expect("it was alive until now");
            (told.join(), child.wait().expect("it ended"))
        });
        promises += told.expect("the child spoke clearly");
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(9), "round {round}: {status}");

        // The next child starts after the latest possible time of this one's clock.
        from += life.as_millis() as Millis * 20_000 + 60 * 3_600_000;
        let clock = Arc::new(FastClock {
            from,
            start: Instant::now(),
        });
        let store = Store::open(options(&path, clock)).expect("the store opens after a kill");
        check(&store, &promised, round);
        let status = store.status();
        assert!(status.set_aside.is_empty(), "{status:?}");
        assert_eq!(status.degraded, None);
        blocks = status.blocks.max(blocks);
        torn += u64::from(status.torn_bytes > 0);
        if rng.chance(2) {
            store.flush_to_blocks();
            check(&store, &promised, round);
        }
    }
    assert!(
        promises > 10_000 && blocks > 3,
        "{promises} promises, {blocks} blocks, {torn} torn: too little happened"
    );
}

fn wait_until_open(out: &mut BufReader<ChildStdout>) {
    let mut line = String::new();
    while !line.contains("@ open") {
        line.clear();
        let read = out.read_line(&mut line).expect("text");
        assert!(read > 0, "the child ended before its store was open");
    }
}

/// Checks that every reported sample is present, and that everything present has its value.
fn check(store: &Store, promised: &SeriesSampleTimes, round: usize) {
    let mut query = RangeQuery::new(Selector::all(), Millis::MIN, Millis::MAX, None);
    query.bytes_max = 1 << 30;
    query.deadline = Instant::now() + Duration::from_secs(60);
    let mut found = SeriesSampleTimes::new();
    store
        .query_range(&query, &mut |series, points| {
            assert!(
                points.is_sorted_by(|a, b| a.0 < b.0),
                "round {round}: {series} is duplicate or out of order"
            );
            for (time, value) in points {
                let wanted = value_of(series.text(), *time);
                assert_eq!(
                    value.to_bits(),
                    wanted.to_bits(),
                    "round {round}: {series} at {time} is {value}, not {wanted}"
                );
            }
            let times = points.iter().map(|(time, _)| *time).collect();
            let again = found.insert(series.text().to_owned(), times);
            assert!(again.is_none(), "round {round}: {series} is visited twice");
        })
        .expect("an answer");
    let nothing = BTreeSet::new();
    for (text, times) in promised {
        let known = found.get(text).unwrap_or(&nothing);
        let missing: Vec<&Millis> = times.difference(known).take(5).collect();
        assert!(
            missing.is_empty(),
            "round {round}: {text} lacks {missing:?}"
        );
    }
}
