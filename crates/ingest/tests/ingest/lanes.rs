//! Lanes of real processes, and an agent that is killed and restarted at any moment: totals are
//! exact each time.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pegel_config::ByteSize;
use pegel_ingest::admission::{Admission, AdmissionSettings, SenderLimits};
use pegel_ingest::lanes::{LaneDirectory, Lanes, LanesSettings, LanesStatus};
use pegel_ingest::point_writer::PointWriter;
use pegel_ingest::program_sampler::ValueSource;
use pegel_lane::{
    Aggregation, Calls, Counter, Gauge, Handle, Histogram, LaneKind, LaneSeriesSpec, ProcessLanes,
};
use pegel_metric::{Clock, Input, Millis, Selector, Tick};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::{
    FakeClock, ForkedChild, HangingFiles, OtherUser, TempDir, eventually, need_hardware,
};

const START: Millis = 1_800_000_000_000;

/// A node: its lanes, its store, its clock. Agents on it are started and killed.
struct LaneTestNode {
    dir: TempDir,
    clock: Arc<FakeClock>,
    lanes_max: usize,
    sender_bytes: Option<ByteSize>,
    /// The disk of the journal.
    disk: HangingFiles,
}

struct LaneTestAgent {
    store: Store,
    admission: Arc<Admission>,
    lanes: Lanes,
    clock: Arc<FakeClock>,
}

impl LaneTestNode {
    fn new() -> LaneTestNode {
        let dir = TempDir::new();
        fs::create_dir(dir.join("lanes")).expect("made");
        LaneTestNode {
            dir,
            clock: Arc::new(FakeClock::new(START)),
            lanes_max: usize::MAX,
            sender_bytes: None,
            disk: HangingFiles::default(),
        }
    }

    fn lanes(&self) -> PathBuf {
        self.dir.join("lanes")
    }

    fn home(&self) -> &'static ProcessLanes {
        ProcessLanes::in_directory(self.lanes())
    }

    fn agent(&self) -> LaneTestAgent {
        self.agent_at(
            &self.dir.join("lanes.journal"),
            &self.dir.join("store"),
            1000,
        )
    }

    fn agent_at(&self, journal: &Path, store: &Path, series_per_sender: u32) -> LaneTestAgent {
        let directory = LaneDirectory::for_all_users(self.lanes());
        self.agent_with(journal, store, series_per_sender, directory)
    }

    fn agent_with(
        &self,
        journal: &Path,
        store: &Path,
        series_per_sender: u32,
        directory: LaneDirectory,
    ) -> LaneTestAgent {
        let mut options = StoreOptions::new(store);
        options.clock = self.clock.clone();
        // A child just forked by another test briefly holds all descriptors, with their locks.
        let store = eventually("the store opens", || Store::open(options.clone()));
        let settings = AdmissionSettings {
            series_max: 100_000,
            senders: SenderLimits {
                sender_bytes: self.sender_bytes.clone(),
                ..SenderLimits::of_series(series_per_sender)
            },
            ..AdmissionSettings::for_tests()
        };
        let admission = Arc::new(Admission::new(settings, store.ledger().clone()));
        let points = Arc::new(PointWriter::new(admission.clone(), store.clone()));
        let settings = LanesSettings {
            directories: vec![directory],
            journal: journal.to_owned(),
            files: Arc::new(self.disk.clone()),
            lanes_max: self.lanes_max,
        };
        let clock: Arc<dyn Clock> = self.clock.clone();
        let lanes =
            Lanes::open(&settings, admission.clone(), points, &store, clock).expect("opened");
        LaneTestAgent {
            store,
            admission,
            lanes,
            clock: self.clock.clone(),
        }
    }

    /// Returns the number of lane files.
    fn files(&self) -> usize {
        self.lane_files().len()
    }

    fn lane_files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.lanes()).expect("readable");
        let is_lane = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "lane");
        files
            .filter_map(|file| Some(file.ok()?.path()))
            .filter(is_lane)
            .collect()
    }

    fn only_lane(&self) -> PathBuf {
        let mut files = self.lane_files();
        assert_eq!(files.len(), 1, "{files:?}");
        files.remove(0)
    }
}

impl LaneTestAgent {
    fn pass(&mut self) {
        self.pass_at_once();
        eventually("the journal is written", || {
            let is_written = self.lanes.is_journal_written();
            is_written.then_some(()).ok_or("not yet")
        });
    }

    /// Runs a pass without waiting for the journal.
    fn pass_at_once(&mut self) {
        let mut tick = Tick::new(Input::Programs);
        tick.reset(self.clock.utc());
        self.lanes.update(&mut tick);
        self.store.tick(&mut tick);
        let _ = self.store.push(Input::Programs, Vec::new());
    }

    /// Runs a pass after this time.
    fn pass_after(&mut self, time: Duration) {
        self.clock.advance(time);
        self.pass();
    }

    fn values(&self) -> BTreeMap<String, f64> {
        let mut values = BTreeMap::new();
        self.store
            .latest(&Selector::all(), 0, &mut |series, latest| {
                let before = values.insert(series.text().to_owned(), latest.value);
                assert_eq!(before, None, "duplicate series {series}");
            });
        values
    }

    fn status(&self) -> LanesStatus {
        self.lanes.status().lock().clone()
    }

    #[track_caller]
    fn assert_value(&self, series: &str, expected: f64) {
        let values = self.values();
        assert_eq!(
            values.get(series),
            Some(&expected),
            "{series} in {values:?}"
        );
    }

    /// Ends the agent without an orderly shutdown, like `kill -9`.
    fn kill(self) {
        let LaneTestAgent { lanes, store, .. } = self;
        lanes.abort();
        store.close();
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn counter(home: &'static ProcessLanes, name: &str) -> Counter {
    Counter::create_in(home, &LaneSeriesSpec::new(LaneKind::Counter, name)).expect("made")
}

/// Starts a child that counts `amount`, creates a file to report it, and waits to be killed.
fn counting_child(node: &LaneTestNode, amount: u64) -> ForkedChild {
    let home = node.home();
    let marker = node.dir.join(format!("counted-{amount}"));
    let child = ForkedChild::run(|| {
        counter(home, "steps_total").add(amount);
        fs::write(&marker, "x").expect("written");
        std::thread::sleep(Duration::from_secs(60));
    });
    eventually("the child counts", || {
        marker.exists().then_some(()).ok_or("not yet")
    });
    child
}

#[test]
fn programs_are_summed_and_their_counters_outlive_them() {
    let node = LaneTestNode::new();
    let mut agent = node.agent();
    let first = counting_child(&node, 5);
    let second = counting_child(&node, 7);
    agent.pass_after(SECOND);
    agent.assert_value("steps_total", 12.0);
    first.kill();
    agent.pass_after(SECOND);
    agent.assert_value("steps_total", 12.0);
    assert_eq!(agent.lanes.status().lock().ended, 1);
    second.kill();
    agent.pass_after(SECOND);
    assert_eq!(node.files(), 2, "for a while they stay");
    agent.pass_after(Duration::from_secs(30));
    assert_eq!(node.files(), 2);
    agent.pass_after(Duration::from_secs(31));
    assert_eq!(node.files(), 0);
    agent.assert_value("steps_total", 12.0);
    let third = counting_child(&node, 100);
    agent.pass_after(SECOND);
    agent.assert_value("steps_total", 112.0);
    third.kill();
}

#[test]
fn gauges_are_last_min_max_or_sum_and_end_with_their_program() {
    let node = LaneTestNode::new();
    let mut agent = node.agent();
    let all = [
        ("last", Aggregation::Last),
        ("min", Aggregation::Min),
        ("max", Aggregation::Max),
        ("sum", Aggregation::Sum),
    ];
    let mut children = Vec::new();
    for (at, value) in [3.0, 1.0, 2.0].into_iter().enumerate() {
        let (home, marker) = (node.home(), node.dir.join(format!("set-{at}")));
        children.push(ForkedChild::run(|| {
            for (name, aggregation) in all {
                let spec = LaneSeriesSpec {
                    aggregation,
                    ..LaneSeriesSpec::new(LaneKind::Gauge, name)
                };
                Gauge::create_in(home, &spec).expect("made").set(value);
            }
            fs::write(&marker, "x").expect("written");
            std::thread::sleep(Duration::from_secs(60));
        }));
        eventually("it is set", || {
            marker.exists().then_some(()).ok_or("not yet")
        });
        // The time of a gauge is kept to the kernel's tick.
        std::thread::sleep(Duration::from_millis(20));
    }
    agent.pass_after(SECOND);
    for (name, expected) in [("last", 2.0), ("min", 1.0), ("max", 3.0), ("sum", 6.0)] {
        agent.assert_value(name, expected);
    }
    children.pop().expect("three").kill();
    agent.pass_after(SECOND);
    agent.assert_value("last", 1.0);
    agent.assert_value("sum", 4.0);
    for child in children {
        child.kill();
    }
    agent.pass_after(SECOND);
    assert_eq!(agent.values(), BTreeMap::new());
}

#[test]
fn calls_and_histograms_have_their_series() {
    let node = LaneTestNode::new();
    let mut agent = node.agent();
    let home = node.home();
    let labels = [("call", "MPI_Send")];
    let spec = LaneSeriesSpec {
        labels: &labels,
        ..LaneSeriesSpec::new(LaneKind::Calls, "mpi")
    };
    let calls = Calls::create_in(home, &spec).expect("made");
    calls.add(1000, 1_000_000_000);
    calls.add(24, 500_000_000);
    let sizes = Histogram::create_in(home, &LaneSeriesSpec::new(LaneKind::Histogram, "sizes"))
        .expect("made");
    for value in [0.5, 1.0, 1.4, 100.0] {
        sizes.record(value);
    }
    agent.pass_after(SECOND);
    agent.assert_value("mpi_hits_total{call=\"MPI_Send\"}", 2.0);
    agent.assert_value("mpi_size_total{call=\"MPI_Send\"}", 1024.0);
    agent.assert_value("mpi_time_total{call=\"MPI_Send\"}", 1.5);
    agent.assert_value("sizes_count", 4.0);
    agent.assert_value("sizes_sum", 102.9);
    agent.assert_value("sizes_bucket{le=\"0.5\"}", 1.0);
    agent.assert_value("sizes_bucket{le=\"1\"}", 2.0);
    agent.assert_value("sizes_bucket{le=\"1.5\"}", 3.0);
    agent.assert_value("sizes_bucket{le=\"128\"}", 4.0);
    agent.assert_value("sizes_bucket{le=\"+Inf\"}", 4.0);

    let other = counter(node.home(), "sizes_count_too");
    other.add(1);
    agent.kill();
    let mut agent = node.agent();
    agent.pass_after(SECOND);
    agent.assert_value("sizes_bucket{le=\"1.5\"}", 3.0);
    agent.assert_value("sizes_count", 4.0);
    agent.assert_value("mpi_time_total{call=\"MPI_Send\"}", 1.5);
}

/// Kills the agent at every stage of its life, and a program at some stage too.
#[test]
fn totals_are_exact_for_kills_at_any_time() {
    for killed_at in 0..8 {
        for program_killed_at in 0..8 {
            let node = LaneTestNode::new();
            let mut agent = node.agent();
            let home = node.home();
            let own = counter(home, "steps_total");
            let mut child = Some(counting_child(&node, 1000));
            let mut expected = 1000;
            for step in 0..8 {
                own.add(1);
                expected += 1;
                if step == program_killed_at {
                    child.take().expect("alive until now").kill();
                }
                if step == killed_at {
                    agent.kill();
                    // Counted while no agent runs.
                    own.add(10);
                    expected += 10;
                    agent = node.agent();
                }
                // Long enough that the file of the ended program is removed meanwhile.
                agent.pass_after(Duration::from_secs(25));
                let case =
                    format!("agent at {killed_at}, program at {program_killed_at}, step {step}");
                assert_eq!(
                    agent.values().get("steps_total"),
                    Some(&f64::from(expected)),
                    "{case}"
                );
            }
            if let Some(child) = child {
                child.kill();
            }
        }
    }
}

/// Keeps a copy of journal and lanes after each pass, then starts an agent from journals that are
/// older than the lanes: as after a kill between writing, folding and unlinking.
#[test]
fn a_journal_that_lags_behind_counts_nothing_twice() {
    let node = LaneTestNode::new();
    let mut agent = node.agent();
    let own = counter(node.home(), "steps_total");
    let child = counting_child(&node, 1000);
    let journal = node.dir.join("lanes.journal");
    let mut kept: Vec<PathBuf> = Vec::new();
    let mut keep = |at: usize| {
        let copy = node.dir.join(format!("journal-{at}"));
        fs::copy(&journal, &copy).expect("copied");
        kept.push(copy);
    };
    own.add(1);
    agent.pass_after(SECOND);
    keep(0);
    child.kill();
    own.add(1);
    agent.pass_after(SECOND);
    keep(1);
    agent.pass_after(SECOND);
    keep(2);
    assert_eq!(node.files(), 2, "the file of the dead is still there");
    agent.kill();
    for (at, journal) in kept.iter().enumerate() {
        let mut agent = node.agent_at(journal, &node.dir.join(format!("store-{at}")), 1000);
        agent.pass_after(SECOND);
        agent.assert_value("steps_total", 1002.0);
    }
}

#[test]
fn removed_lanes_keep_their_last_known_counts() {
    let node = LaneTestNode::new();
    let mut agent = node.agent();
    let child = counting_child(&node, 9);
    agent.pass_after(SECOND);
    agent.pass_after(SECOND);
    agent.kill();
    child.kill();
    // As after a reboot.
    for file in fs::read_dir(node.lanes()).expect("readable") {
        fs::remove_file(file.expect("a file").path()).expect("removed");
    }
    let mut agent = node.agent();
    agent.pass_after(SECOND);
    agent.assert_value("steps_total", 9.0);
    // And again, without the journal: what was published was counted.
    agent.kill();
    fs::remove_file(node.dir.join("lanes.journal")).expect("removed");
    let mut agent = node.agent();
    let own = counter(node.home(), "steps_total");
    agent.pass_after(SECOND);
    own.add(1);
    agent.pass_after(SECOND);
    agent.assert_value("steps_total", 10.0);
}

#[test]
fn a_torn_journal_is_cut_at_every_byte_without_harm() {
    let node = LaneTestNode::new();
    let own = counter(node.home(), "steps_total");
    let other = counter(node.home(), "others_total");
    let mut agent = node.agent();
    for _ in 0..3 {
        own.add(1);
        other.add(2);
        agent.pass_after(SECOND);
    }
    agent.kill();
    let whole = fs::read(node.dir.join("lanes.journal")).expect("read");
    assert!(whole.len() > 100);
    for length in (0..=whole.len()).step_by(7) {
        let journal = node.dir.join("lanes.journal");
        fs::write(&journal, &whole[..length]).expect("written");
        let store = node.dir.join(format!("store-{length}"));
        let mut agent = node.agent_at(&journal, &store, 1000);
        agent.pass_after(SECOND);
        agent.assert_value("steps_total", 3.0);
        agent.assert_value("others_total", 6.0);
        agent.kill();
        fs::remove_dir_all(store).expect("removed");
    }
}

#[test]
fn a_thousand_programs_at_once() {
    let node = LaneTestNode::new();
    let mut agent = node.agent();
    let home = node.home();
    let children: Vec<ForkedChild> = (0..1000)
        .map(|at| {
            ForkedChild::run(|| {
                let steps = counter(home, "steps_total");
                for _ in 0..=at {
                    steps.add(1);
                }
            })
        })
        .collect();
    for child in children {
        assert_eq!(child.wait(), 0);
    }
    agent.pass_after(SECOND);
    agent.assert_value("steps_total", f64::from(1000 * 1001 / 2));
    agent.pass_after(SECOND);
    agent.pass_after(Duration::from_secs(61));
    assert_eq!(node.files(), 0);
    agent.assert_value("steps_total", f64::from(1000 * 1001 / 2));
}

#[test]
fn lanes_beyond_the_limit_wait_and_none_is_lost() {
    let mut node = LaneTestNode::new();
    node.lanes_max = 3;
    let mut agent = node.agent();
    let home = node.home();
    for _ in 0..10 {
        let child = ForkedChild::run(|| counter(home, "steps_total").add(1));
        assert_eq!(child.wait(), 0);
    }
    agent.pass_after(SECOND);
    agent.assert_value("steps_total", 3.0);
    // Three at a time are read to their end and removed.
    for _ in 0..12 {
        agent.pass_after(Duration::from_secs(61));
    }
    agent.assert_value("steps_total", 10.0);
    assert_eq!(node.files(), 0);
}

#[test]
fn a_program_that_closes_all_its_descriptors_is_still_counted() {
    let node = LaneTestNode::new();
    let mut agent = node.agent();
    let home = node.home();
    let (marker, go, done) = (
        node.dir.join("closed"),
        node.dir.join("go"),
        node.dir.join("done"),
    );
    let child = ForkedChild::run(|| {
        let steps = counter(home, "steps_total");
        steps.add(5);
        // SAFETY: closes descriptors that this child inherited and does not use.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        fs::write(&marker, "x").expect("written");
        eventually("the agent saw the end", || {
            go.exists().then_some(()).ok_or("not yet")
        });
        steps.add(7);
        fs::write(&done, "x").expect("written");
        std::thread::sleep(Duration::from_secs(60));
    });
    eventually("closed", || marker.exists().then_some(()).ok_or("not yet"));
    agent.pass_after(SECOND);
    agent.pass_after(SECOND);
    fs::write(&go, "x").expect("written");
    eventually("counted", || done.exists().then_some(()).ok_or("not yet"));
    agent.pass_after(Duration::from_secs(90));
    agent.assert_value("steps_total", 12.0);
    assert_eq!(node.files(), 1, "its process lives");
    agent.kill();
    let mut agent = node.agent();
    agent.pass_after(SECOND);
    agent.assert_value("steps_total", 12.0);
    child.kill();
}

#[test]
fn a_sender_with_too_many_series_is_limited_and_named() {
    let node = LaneTestNode::new();
    let (journal, store) = (node.dir.join("j"), node.dir.join("s"));
    let mut agent = node.agent_at(&journal, &store, 10);
    for at in 0..25 {
        counter(node.home(), &format!("c{at}_total")).add(1);
    }
    agent.pass_after(SECOND);
    assert_eq!(agent.values().len(), 10);
    let accounts = agent.admission.senders().statuses();
    let account = accounts
        .iter()
        .find(|account| account.series == 10)
        .expect("the test itself");
    assert!(account.sender.starts_with("uid "), "{account:?}");
    assert_eq!(account.dropped.get("sender_limit"), Some(&15));
}

#[test]
fn one_name_with_two_kinds_is_two_series() {
    let node = LaneTestNode::new();
    let mut agent = node.agent();
    counter(node.home(), "x").add(4);
    Gauge::create_in(node.home(), &LaneSeriesSpec::new(LaneKind::Gauge, "x"))
        .expect("made")
        .set(0.5);
    agent.pass_after(SECOND);
    let values = agent.values();
    let (counters, gauges): (Vec<f64>, Vec<f64>) =
        values.values().partition(|value| **value == 4.0);
    assert_eq!((counters.len(), gauges.len()), (1, 1), "{values:?}");
}

#[test]
fn points_are_stored_once_across_restarts() {
    let node = LaneTestNode::new();
    let mut agent = node.agent();
    let points =
        pegel_lane::Points::create_in(node.home(), &LaneSeriesSpec::new(LaneKind::Point, "depth"))
            .expect("made");
    for at in 0..100 {
        points.add_at(f64::from(at), START + i64::from(at));
        if at % 30 == 29 {
            agent.pass_after(SECOND);
        }
        if at == 45 || at == 70 {
            agent.kill();
            agent = node.agent();
        }
    }
    agent.pass_after(SECOND);
    let question = pegel_store::RangeQuery::new(
        Selector::parse("depth").expect("a pattern"),
        START,
        START + 1000,
        None,
    );
    let mut found = Vec::new();
    agent
        .store
        .query_range(&question, &mut |_, samples| {
            found.extend(samples.iter().map(|(_, value)| *value))
        })
        .expect("an answer");
    let expected: Vec<f64> = (0..100).map(f64::from).collect();
    assert_eq!(found, expected);
}

#[test]
fn files_that_are_not_lanes_are_left_unchanged_and_reported() {
    let node = LaneTestNode::new();
    let good = counter(node.home(), "good_total");
    good.add(3);
    let name = |digit: &str| format!("{}.lane", digit.repeat(32));
    let lanes = node.lanes();
    let existing = fs::read_dir(&lanes)
        .expect("readable")
        .next()
        .expect("one")
        .expect("a file")
        .path();
    let ending = existing
        .extension()
        .and_then(|ending| ending.to_str())
        .expect("an ending");
    let name = |digit: &str| name(digit).replace(".lane", &format!(".{ending}"));
    fs::write(lanes.join(name("1")), vec![7; 100_000]).expect("written");
    fs::write(lanes.join(name("2")), "").expect("written");
    std::os::unix::fs::symlink("/etc/passwd", lanes.join(name("3"))).expect("linked");
    fs::create_dir(lanes.join(name("4"))).expect("made");
    fs::copy(&existing, lanes.join(name("5"))).expect("copied");
    fs::write(lanes.join("README"), "not a lane").expect("written");
    let mut agent = node.agent();
    agent.pass_after(SECOND);
    agent.assert_value("good_total", 3.0);
    let status = agent.lanes.status().lock().clone();
    assert_eq!(status.refused.values().sum::<u64>(), 5, "{status:?}");
    assert_eq!(status.alive, 1);
    // Truncated while it is read: only its own series are affected.
    let bad = counting_child(&node, 77);
    agent.pass_after(SECOND);
    agent.assert_value("steps_total", 77.0);
    let of_child = fs::read_dir(&lanes)
        .expect("readable")
        .filter_map(|file| Some(file.ok()?.path()))
        .find(|path| {
            path.metadata().is_ok_and(|m| m.is_file())
                && *path != existing
                && fs::read(path)
                    .is_ok_and(|b| b.starts_with(b"PEGLANE") && !path.ends_with(name("5")))
        })
        .expect("the child's lane");
    fs::OpenOptions::new()
        .write(true)
        .open(of_child)
        .expect("opened")
        .set_len(100)
        .expect("cut");
    good.add(1);
    agent.pass_after(SECOND);
    agent.pass_after(SECOND);
    agent.assert_value("good_total", 4.0);
    agent.assert_value("steps_total", 77.0);
    bad.kill();
}

#[test]
fn a_lane_whose_program_ended_is_read_once_more_and_then_no_longer() {
    let node = LaneTestNode::new();
    let mut agent = node.agent();
    let child = counting_child(&node, 5);
    agent.pass_after(SECOND);
    child.kill();
    agent.pass_after(SECOND);
    agent.assert_value("steps_total", 5.0);
    let lane = node.only_lane();
    let bytes = fs::read(&lane).expect("readable");
    let at = bytes
        .chunks(8)
        .position(|word| word == 5_u64.to_le_bytes())
        .expect("the counter");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&lane)
        .expect("ours");
    file.write_all_at(&1000_u64.to_le_bytes(), 8 * at as u64)
        .expect("written");
    agent.pass_after(SECOND);
    agent.assert_value("steps_total", 5.0);
    assert_eq!(agent.status().ended, 1);
}

#[test]
fn countless_files_hide_no_lane_and_are_reported() {
    // More than two scans read, and some more: if files are removed during a scan, it may skip
    // some.
    const JUNK: u128 = 40_000;
    let node = LaneTestNode::new();
    let mut agent = node.agent();
    let before = counter(node.home(), "before_total");
    before.add(1);
    agent.pass_after(SECOND);
    agent.kill();
    for number in 0..JUNK {
        fs::write(node.lanes().join(format!("{number:032x}.lane")), "").expect("written");
    }
    let after = counter(node.home(), "after_total");
    after.add(1);
    let mut agent = node.agent();
    before.add(1);
    agent.pass();
    agent.assert_value("before_total", 2.0);
    let status = agent.status();
    let is_said = |text: &str| status.faults.iter().any(|fault| fault.contains(text));
    assert!(is_said("more than 16384 files"), "{:?}", status.faults);
    assert!(is_said("that are not lanes"), "{:?}", status.faults);
    for _ in 0..4 {
        agent.pass_after(SECOND);
    }
    agent.assert_value("after_total", 1.0);
    assert!(node.files() <= 4_096 + 2, "{} files are left", node.files());
    let status = agent.status();
    assert_eq!(status.alive, 2);
    assert!(
        !status
            .faults
            .iter()
            .any(|fault| fault.contains("more than")),
        "{:?}",
        status.faults
    );
}

#[test]
fn countless_files_of_a_user_at_its_limit_of_lanes_are_removed() {
    let mut node = LaneTestNode::new();
    node.lanes_max = 2;
    let mut agent = node.agent();
    let lanes = ["a_total", "b_total"].map(|name| counter(node.home(), name));
    lanes.iter().for_each(|lane| lane.add(1));
    agent.pass_after(SECOND);
    assert_eq!(agent.status().alive, 2);
    for number in 0..6_000 {
        fs::write(node.lanes().join(format!("{number:032x}.lane")), "").expect("written");
    }
    agent.pass_after(SECOND);
    assert!(node.files() <= 4_096 + 2, "{} files are left", node.files());
    assert_eq!(agent.status().alive, 2);
}

#[test]
fn countless_directories_named_like_lanes_are_removed() {
    let node = LaneTestNode::new();
    for number in 0..5_000 {
        fs::create_dir(node.lanes().join(format!("{number:032x}.lane"))).expect("made");
    }
    let mut agent = node.agent();
    agent.pass_after(SECOND);
    assert_eq!(node.files(), 4_096);
}

#[test]
fn an_agent_with_another_store_counts_from_when_it_took_over() {
    let node = LaneTestNode::new();
    let other = || {
        node.agent_at(
            &node.dir.join("other.journal"),
            &node.dir.join("other"),
            1000,
        )
    };
    let mut first = node.agent();
    let steps = counter(node.home(), "steps_total");
    steps.add(10);
    first.pass_after(SECOND);
    // Two at once: the second one does not read, and reports it.
    let mut second = other();
    second.pass_after(SECOND);
    assert_eq!(second.values().get("steps_total"), None);
    let faults = second.status().faults;
    assert!(
        faults[0].contains("another agent reads its lanes (pid "),
        "{faults:?}"
    );
    first.kill();
    // The second agent takes over, and counts nothing that the first one counted. It is killed in
    // between.
    second.pass_after(SECOND);
    second.assert_value("steps_total", 0.0);
    assert_eq!(second.status().counted_elsewhere, 1);
    steps.add(3);
    second.pass_after(SECOND);
    second.assert_value("steps_total", 3.0);
    second.kill();
    let mut second = other();
    second.pass_after(SECOND);
    second.assert_value("steps_total", 3.0);
    // A program that no agent has read is counted completely.
    let late = counter(node.home(), "late_total");
    late.add(4);
    second.pass_after(SECOND);
    second.assert_value("late_total", 4.0);
    second.kill();
    // The first agent continues from its journal.
    let mut first = node.agent();
    first.pass_after(SECOND);
    first.assert_value("steps_total", 13.0);
    first.assert_value("late_total", 0.0);
}

#[test]
fn lanes_of_users_who_are_not_admitted_are_not_read() {
    let Some(_) = OtherUser::new() else { return };
    let node = LaneTestNode::new();
    let own = rustix::process::geteuid().as_raw();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(node.lanes(), private).expect("ours");
    let guests = LaneDirectory::for_guests(node.lanes(), vec![own, 4242]);
    counter(node.home(), "own_total").add(1);
    for (name, uid) in [("allowed_total", 4242), ("stranger_total", OtherUser::UID)] {
        let known: Vec<PathBuf> = node.lane_files();
        counter(node.home(), name).add(1);
        let new = node
            .lane_files()
            .into_iter()
            .find(|path| !known.contains(path));
        std::os::unix::fs::chown(new.expect("a lane"), Some(uid), None).expect("root");
    }
    let mut agent = node.agent_with(
        &node.dir.join("lanes.journal"),
        &node.dir.join("store"),
        1000,
        guests,
    );
    agent.pass_after(SECOND);
    let values = agent.values();
    let names: Vec<&str> = values
        .keys()
        .map(|text| text.split('{').next().unwrap_or(text))
        .collect();
    assert_eq!(names, ["allowed_total", "own_total"]);
    let reason = format!("the file belongs to user {}", OtherUser::UID);
    assert_eq!(agent.status().refused.get(&reason), Some(&1));
}

#[test]
fn lanes_of_different_users_do_not_add_up() {
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to give files to others").is_none() {
        return;
    }
    let node = LaneTestNode::new();
    let counted = |uid: u32, amount: u64| {
        let before: Vec<PathBuf> = node.lane_files();
        let home = ProcessLanes::in_directory(node.lanes());
        // The uid in the lane's header is not trusted.
        let labels: &[(&str, &str)] = match uid {
            0 => &[],
            _ => &[("user", "root")],
        };
        let spec = LaneSeriesSpec {
            labels,
            ..LaneSeriesSpec::new(LaneKind::Counter, "steps_total")
        };
        let counter = Counter::create_in(home, &spec).expect("made");
        counter.add(amount);
        for file in node.lane_files() {
            if !before.contains(&file) {
                std::os::unix::fs::chown(&file, Some(uid), None).expect("root");
            }
        }
        counter
    };
    let _counters = [(0, 100), (4_000_000_001, 7), (4_000_000_002, 20), (0, 1)]
        .map(|(uid, amount)| counted(uid, amount));
    for _ in 0..3 {
        let mut agent = node.agent();
        agent.pass_after(SECOND);
        agent.assert_value("steps_total", 101.0);
        let other = |uid: u32| format!("steps_total{{exported_user=\"root\",user=\"{uid}\"}}");
        agent.assert_value(&other(4_000_000_001), 7.0);
        agent.assert_value(&other(4_000_000_002), 20.0);
        agent.kill();
    }
}

/// Gives the lanes that `create` makes to this user.
fn lanes_of_user(node: &LaneTestNode, uid: u32, create: impl FnOnce(&'static ProcessLanes)) {
    let before: Vec<PathBuf> = node.lane_files();
    create(ProcessLanes::in_directory(node.lanes()));
    for file in node.lane_files() {
        if !before.contains(&file) {
            std::os::unix::fs::chown(&file, Some(uid), None).expect("root");
        }
    }
}

#[test]
fn lanes_of_one_user_leave_places_for_those_of_others() {
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to give files to others").is_none() {
        return;
    }
    const STRANGER: u32 = 4_000_000_001;
    let mut node = LaneTestNode::new();
    node.lanes_max = 40;
    // A quarter is reserved for the agent's user and root; a user gets a third of the rest.
    for (uid, name) in [(STRANGER, "junk_total"), (STRANGER + 1, "more_total")] {
        for _ in 0..30 {
            lanes_of_user(&node, uid, |home| counter(home, name).add(1));
        }
        let mut agent = node.agent();
        agent.pass_after(SECOND);
        agent.kill();
    }
    let mut agent = node.agent();
    lanes_of_user(&node, STRANGER + 2, |home| {
        counter(home, "victim_total").add(1)
    });
    agent.pass_after(SECOND);
    let name = |name: &str, uid: u32| format!("{name}{{user=\"{uid}\"}}");
    agent.assert_value(&name("junk_total", STRANGER), 10.0);
    agent.assert_value(&name("more_total", STRANGER + 1), 7.0);
    agent.assert_value(&name("victim_total", STRANGER + 2), 1.0);
    let faults = agent.status().faults;
    let expected = "43 lanes are not read: the user has its share of the node's lanes";
    assert!(
        faults.iter().any(|fault| fault.ends_with(expected)),
        "{faults:?}"
    );
}

#[test]
fn what_a_user_makes_the_journal_write_is_bounded_and_no_count_is_lost() {
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to give files to others").is_none() {
        return;
    }
    const STRANGER: u32 = 4_000_000_001;
    let mut node = LaneTestNode::new();
    // 6,000 bytes at once. Nothing refills them here.
    node.sender_bytes = Some(ByteSize::bytes(10));
    let mut agent = node.agent();
    let mut counters = Vec::new();
    lanes_of_user(&node, STRANGER, |home| {
        counters.extend((0..50).map(|at| counter(home, &format!("c{at}_total"))));
    });
    for _ in 0..100 {
        counters.iter().for_each(|counter| counter.add(1));
        agent.pass_after(SECOND);
    }
    let journal = node.dir.join("lanes.journal");
    let bytes = fs::metadata(&journal).expect("written").len();
    assert!(bytes < 10_000, "{bytes} bytes");
    agent.kill();
    node.sender_bytes = None;
    let mut agent = node.agent();
    agent.pass_after(SECOND);
    agent.assert_value(&format!("c7_total{{user=\"{STRANGER}\"}}"), 100.0);
}

#[test]
fn a_restart_loses_no_total_if_a_user_is_at_its_limit() {
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to give files to others").is_none() {
        return;
    }
    const STRANGER: u32 = 4_000_000_001;
    let node = LaneTestNode::new();
    let (journal, store) = (node.dir.join("lanes.journal"), node.dir.join("store"));
    let agent_with_limit = |most| node.agent_at(&journal, &store, most);
    let mut agent = agent_with_limit(10);
    lanes_of_user(&node, STRANGER, |home| {
        for at in 0..20 {
            counter(home, &format!("junk{at:02}_total")).add(1);
        }
    });
    agent.pass_after(SECOND);
    lanes_of_user(&node, STRANGER + 1, |home| {
        counter(home, "victim_total").add(100);
    });
    agent.pass_after(SECOND);
    let victim = format!("victim_total{{user=\"{}\"}}", STRANGER + 1);
    agent.assert_value(&victim, 100.0);
    agent.kill();
    for file in node.lane_files() {
        fs::remove_file(file).expect("removed");
    }
    for most in [10, 5, 10] {
        let mut agent = agent_with_limit(most);
        agent.pass_after(SECOND);
        agent.assert_value(&victim, 100.0);
        let senders = agent.admission.senders().statuses();
        let charged = |uid: u32| {
            let who = format!("uid {uid}");
            let sender = senders.iter().find(|sender| sender.sender == who);
            sender.map(|sender| (sender.series, sender.dropped.is_empty()))
        };
        assert_eq!(charged(STRANGER), Some((10, true)), "{senders:?}");
        assert_eq!(charged(STRANGER + 1), Some((1, true)), "{senders:?}");
        agent.kill();
    }
}

#[test]
fn values_are_updated_while_the_journal_hangs_and_files_kept_until_it_is_written() {
    let node = LaneTestNode::new();
    let mut agent = node.agent();
    let own = counter(node.home(), "own_total");
    own.add(1);
    let child = counting_child(&node, 1000);
    agent.pass_after(SECOND);
    node.disk.hang();
    // The child ends after the last record was written: only its file has its counts.
    child.kill();
    for step in 2..=100 {
        own.add(1);
        node.clock.advance(SECOND);
        agent.pass_at_once();
        agent.assert_value("own_total", f64::from(step));
        agent.assert_value("steps_total", 1000.0);
    }
    assert!(node.disk.is_hanging());
    assert_eq!(node.files(), 2, "the record of its end is not written");
    let fault = eventually("it is reported", || {
        node.clock.advance(SECOND);
        agent.pass_at_once();
        agent.status().journal.ok_or("no fault")
    });
    assert!(fault.contains("the disk has not responded for"), "{fault}");
    // Killed here, nothing is lost and nothing is counted twice.
    node.disk.fail();
    agent.kill();
    node.disk.resume();
    let mut agent = node.agent();
    agent.pass_after(SECOND);
    agent.assert_value("own_total", 100.0);
    agent.assert_value("steps_total", 1000.0);
    // The disk works again: the agent recovers, and the file is removed.
    node.disk.hang();
    agent.clock.advance(SECOND);
    own.add(1);
    agent.pass_at_once();
    node.disk.resume();
    for _ in 0..3 {
        agent.pass_after(Duration::from_secs(61));
    }
    assert_eq!((agent.status().journal, node.files()), (None, 1));
    agent.assert_value("own_total", 101.0);
    agent.assert_value("steps_total", 1000.0);
    agent.kill();
    let mut agent = node.agent();
    agent.pass_after(SECOND);
    agent.assert_value("own_total", 101.0);
    agent.assert_value("steps_total", 1000.0);
}

#[test]
fn an_agent_ends_although_the_journal_hangs_and_writes_what_is_pending_otherwise() {
    let node = LaneTestNode::new();
    let own = counter(node.home(), "own_total");
    own.add(1);
    let mut agent = node.agent();
    agent.pass_after(SECOND);
    own.add(1);
    node.clock.advance(Duration::from_millis(10));
    agent.pass_at_once();
    drop(agent);
    // As after a reboot: only the journal and the store are left.
    let read = || fs::read(node.dir.join("lanes.journal")).expect("readable");
    let (kept, whole) = pegel_ingest::lanes::journal::parse_journal(&read()).expect("our format");
    assert_eq!(whole, read().len());
    let lane = kept.lanes.values().next().expect("one lane");
    assert_eq!(lane.amounts[0].1.value(), 2.0);
    let mut agent = node.agent();
    agent.pass_after(SECOND);
    own.add(1);
    node.disk.hang();
    node.clock.advance(SECOND);
    agent.pass_at_once();
    // Would never return if it waited for the disk.
    drop(agent);
    assert!(node.disk.is_hanging());
    node.disk.fail();
}
