//! Tests of current values, points and the program sampler over a real store.

use std::sync::Arc;
use std::time::Duration;

use pegel_ingest::Ingest;
use pegel_ingest::admission::{Admission, AdmissionSettings, SeriesSpec};
use pegel_ingest::current_values::{CurrentValues, ValueSlot};
use pegel_ingest::point_writer::{IncomingPoint, PointWriter};
use pegel_ingest::program_sampler::{ProgramSampler, ValueSource};
use pegel_metric::{Clock, DropReason, Input, MetricKind, Millis, Selector, Tick};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::{FakeClock, TempDir, eventually};

const START: Millis = 1_800_000_000_000;

struct IngestFixture {
    dir: TempDir,
    clock: Arc<FakeClock>,
}

impl IngestFixture {
    fn new() -> IngestFixture {
        IngestFixture {
            dir: TempDir::new(),
            clock: Arc::new(FakeClock::new(START)),
        }
    }

    fn store(&self) -> Store {
        let mut options = StoreOptions::new(self.dir.join("store"));
        options.clock = self.clock.clone();
        // A child that another test starts holds the lock of a closed store until its exec.
        eventually("the store opens", || Store::open(options.clone()))
    }
}

fn admission(store: &Store, series_max: u64) -> Arc<Admission> {
    let settings = AdmissionSettings {
        series_max,
        ..AdmissionSettings::for_tests()
    };
    Arc::new(Admission::new(settings, store.ledger().clone()))
}

fn current(store: &Store, pattern: &str) -> Vec<(String, f64)> {
    let selector = Selector::parse(pattern).expect("a pattern");
    let mut found = Vec::new();
    store.latest(&selector, 0, &mut |series, latest| {
        found.push((series.text().to_owned(), latest.value))
    });
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Counts up to `count` names, and adds to each at every pass.
#[derive(Debug)]
struct CountingSource {
    admission: Arc<Admission>,
    board: CurrentValues,
    totals: Vec<(ValueSlot, f64)>,
}

impl CountingSource {
    fn new(admission: Arc<Admission>, store: &Store, names: usize) -> CountingSource {
        let mut board = CurrentValues::new("test", store, START);
        let sender = admission.sender(Input::Statsd, "test");
        let totals = (0..names).map(|at| {
            let name = format!("c{at:05}");
            let offer = SeriesSpec::counter(&name, Input::Statsd);
            let admitted = admission.admit(&sender, &offer).expect("room");
            // These series are charged for the duration of the test.
            std::mem::forget(admitted.permit);
            let (place, before) = board.add(admitted.series, None);
            (place, before.unwrap_or(0.0))
        });
        let totals = totals.collect();
        CountingSource {
            admission,
            board,
            totals,
        }
    }
}

impl ValueSource for CountingSource {
    fn update(&mut self, tick: &mut Tick) {
        for (at, (place, total)) in self.totals.iter_mut().enumerate() {
            *total += (at + 1) as f64;
            self.board.set(*place, *total);
        }
        assert!(self.admission.senders().statuses().len() == 1);
        self.board.emit(tick);
    }
}

fn pulse(
    scene: &IngestFixture,
    store: &Store,
    admission: &Arc<Admission>,
    names: usize,
) -> ProgramSampler {
    let source = CountingSource::new(admission.clone(), store, names);
    // So slow that only the passes requested by the test happen.
    let rate = Duration::from_secs(3600);
    let clock: Arc<dyn Clock> = scene.clock.clone();
    ProgramSampler::start(
        vec![Box::new(source)],
        store.clone(),
        admission.clone(),
        clock,
        rate,
    )
    .expect("started")
}

#[test]
fn a_refresh_makes_values_readable_at_once() {
    let scene = IngestFixture::new();
    let store = scene.store();
    let admission = admission(&store, 10_000);
    let pulse = pulse(&scene, &store, &admission, 600);
    for round in 2..5 {
        pulse.refresh().expect("in the log");
        let values = current(&store, "c*");
        assert_eq!(values.len(), 600);
        assert_eq!(values[0], ("c00000".to_owned(), f64::from(round)));
        assert_eq!(values[599], ("c00599".to_owned(), f64::from(600 * round)));
    }
}

#[test]
fn readers_without_end_do_not_multiply_what_is_stored() {
    let scene = IngestFixture::new();
    let store = scene.store();
    let admission = admission(&store, 10_000);
    let pulse = pulse(&scene, &store, &admission, 1);
    for _ in 0..500 {
        pulse.refresh().expect("in the log");
    }
    // One pass at the start, and those that readers may cause at once.
    assert_eq!(current(&store, "c*"), [("c00000".to_owned(), 65.0)]);
    for _ in 0..10 {
        pulse.write_awaited().expect("in the log");
    }
    assert_eq!(
        current(&store, "c*"),
        [("c00000".to_owned(), 65.0)],
        "no sender waits for this source"
    );
}

#[test]
fn counters_continue_from_the_previous_agent() {
    let scene = IngestFixture::new();
    {
        let store = scene.store();
        let admission = admission(&store, 10_000);
        drop(pulse(&scene, &store, &admission, 600));
        // Queued behind the last tick of the store.
        let _ = store.push(Input::Programs, Vec::new());
        assert_eq!(current(&store, "c*").len(), 600);
        store.close();
    }
    scene.clock.advance(Duration::from_secs(30));
    let store = scene.store();
    assert_eq!(current(&store, "c00001"), [("c00001".to_owned(), 4.0)]);
    let admission = admission(&store, 10_000);
    // Fewer names than before: groups that become empty are ended.
    let pulse = pulse(&scene, &store, &admission, 10);
    pulse.refresh().expect("in the log");
    let values = current(&store, "c*");
    assert_eq!(
        values.len(),
        10,
        "the others are removed, and there are no duplicates"
    );
    assert_eq!(values[1], ("c00001".to_owned(), 8.0));
}

#[test]
fn totals_of_the_previous_agent_are_charged_and_released() {
    let scene = IngestFixture::new();
    {
        let store = scene.store();
        let admission = admission(&store, 10_000);
        drop(pulse(&scene, &store, &admission, 600));
        let _ = store.push(Input::Programs, Vec::new());
        store.close();
    }
    let store = scene.store();
    let admission = admission(&store, 10_000);
    let mut values = CurrentValues::new("test", &store, START);
    let sender = admission.sender(Input::Statsd, "uid 4000000001");
    values.publish_restored(START, |series, account| {
        assert_eq!(account, None, "the groups have no sender");
        admission.charge_restored(&sender, series)
    });
    assert_eq!((values.len(), sender.series()), (600, 600));
    values.remove_restored(|_| true);
    assert_eq!((values.len(), sender.series()), (0, 0));
}

#[test]
fn a_removed_series_disappears_and_its_slot_is_reused() {
    let scene = IngestFixture::new();
    let store = scene.store();
    let admission = admission(&store, 10_000);
    let sender = admission.sender(Input::Lane, "a");
    let mut board = CurrentValues::new("test", &store, START);
    let add = |board: &mut CurrentValues, name: &str| {
        let offer = SeriesSpec {
            name,
            labels: &[],
            identity: &[],
            kind: MetricKind::Gauge,
            help: "",
            level: 1,
            input: Input::Statsd,
        };
        let admitted = admission.admit(&sender, &offer).expect("room");
        let (place, _) = board.add(admitted.series, None);
        board.set(place, 1.0);
        place
    };
    let emit = |board: &mut CurrentValues, time: Millis| {
        let mut tick = Tick::new(Input::Programs);
        tick.reset(time);
        board.emit(&mut tick);
        let rows = tick.rows().len();
        store.tick(&mut tick);
        let _ = store.push(Input::Programs, Vec::new());
        rows
    };
    let places: Vec<ValueSlot> = (0..256)
        .map(|at| add(&mut board, &format!("g{at}")))
        .collect();
    assert_eq!(emit(&mut board, START), 1);
    assert_eq!(emit(&mut board, START + 500), 0, "nothing changed");
    assert_eq!(
        emit(&mut board, START + 60_000),
        1,
        "an idle group is written now and then"
    );
    board.set(places[3], 1.0);
    assert_eq!(
        emit(&mut board, START + 60_500),
        0,
        "the same value is no change"
    );
    board.remove(places[7]);
    assert_eq!(emit(&mut board, START + 61_000), 1);
    assert_eq!(current(&store, "g7"), []);
    assert_eq!(current(&store, "g*").len(), 255);
    add(&mut board, "new");
    assert_eq!(
        emit(&mut board, START + 61_500),
        1,
        "in the place that was left"
    );
    assert_eq!(current(&store, "*").len(), 256);
}

#[test]
fn points_are_kept_one_by_one_and_refused_one_by_one() {
    let scene = IngestFixture::new();
    let store = scene.store();
    let admission = admission(&store, 2);
    let points = PointWriter::new(admission.clone(), store.clone());
    let sender = admission.sender(Input::Put, "10.0.0.7");
    let point = |name: &'static str, time, value| IncomingPoint {
        name,
        labels: &[("host", "n1")],
        help: "",
        kind: MetricKind::Unknown,
        level: 1,
        time,
        value,
    };
    let day = 86_400_000;
    let offered = [
        point("a", START - 1, 1.5),
        point("b", START, f64::NAN),
        point("", START, 1.0),
        point("c", START - 10 * day, 1.0),
        point("d", START + day, 1.0),
        point("a", START, 2.5),
    ];
    let outcome = points.write(&sender, &offered, START).expect("taken");
    assert_eq!(outcome.kept, 2);
    let refused: Vec<(usize, DropReason)> = outcome
        .refused
        .iter()
        .map(|(place, refusal)| (*place, refusal.reason()))
        .collect();
    let expected = [
        (1, DropReason::BadValue),
        (2, DropReason::BadName),
        (3, DropReason::TooOld),
        (4, DropReason::SeriesLimit),
    ];
    assert_eq!(refused, expected);
    assert_eq!(current(&store, "*"), [("a{host=\"n1\"}".to_owned(), 2.5)]);
    let ledger = store.ledger();
    assert_eq!(ledger.received_total(Input::Put), 6);
    assert_eq!(ledger.kept_total(Input::Put), 2);
    let account = &admission.senders().statuses()[0];
    assert_eq!((account.received, account.series), (6, 2));
    assert_eq!(account.dropped.values().sum::<u64>(), 4);

    let later = START + 20 * 60_000;
    points
        .write(&sender, &[point("a", START + 2, 1.0)], later)
        .expect("taken");
    assert_eq!(
        sender.series(),
        1,
        "a series without points is no longer charged"
    );
}

#[test]
fn points_of_another_user_do_not_replace_those_of_the_agents_user() {
    let scene = IngestFixture::new();
    let store = scene.store();
    let admission = admission(&store, 10);
    let points = PointWriter::new(admission.clone(), store.clone());
    let own = rustix::process::geteuid().as_raw();
    for (uid, value) in [(own, 1.0), (4_000_000_001, 2.0)] {
        let sender = admission.sender(Input::Put, &format!("uid {uid}"));
        let point = IncomingPoint {
            name: "depth",
            labels: &[],
            help: "",
            kind: MetricKind::Unknown,
            level: 1,
            time: START,
            value,
        };
        points.write(&sender, &[point], START).expect("taken");
    }
    let mut found = current(&store, "*");
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let other = "depth{user=\"4000000001\"}".to_owned();
    assert_eq!(found, [("depth".to_owned(), 1.0), (other, 2.0)]);
}

#[test]
fn a_name_of_points_is_not_taken_by_statsd_while_the_store_has_its_samples() {
    let scene = IngestFixture::new();
    let own = format!("uid {}", rustix::process::geteuid().as_raw());
    for round in 0..3 {
        let store = scene.store();
        let clock: Arc<dyn Clock> = scene.clock.clone();
        let settings = AdmissionSettings::for_tests();
        let rate = Duration::from_secs(3600);
        let ingest = Ingest::start(settings, None, &store, clock, rate).expect("started");
        let put = |name| {
            let point = IncomingPoint {
                name,
                labels: &[],
                help: "",
                kind: MetricKind::Unknown,
                level: 1,
                time: scene.clock.utc(),
                value: 44.0,
            };
            let sender = ingest.sender(Input::Put, &own);
            ingest.store_points(&sender, &[point]).expect("taken");
        };
        if round == 0 {
            put("depth");
        }
        // Longer than a series without points is charged to its sender.
        scene.clock.advance(Duration::from_secs(11 * 60));
        put("other");
        ingest.refresh().expect("in the log");
        let stranger = ingest.sender(Input::Statsd, "127.0.0.1");
        let line = SeriesSpec::counter("depth", Input::Statsd);
        let admitted = ingest.admission().admit(&stranger, &line).expect("room");
        let text = admitted.series.text();
        assert_eq!(text, "depth{input=\"statsd\"}", "round {round}");
        ingest.stop();
        drop(ingest);
        store.close();
    }
}

#[test]
fn labels_without_values_are_charged_although_they_are_in_no_series() {
    let scene = IngestFixture::new();
    let store = scene.store();
    let settings = AdmissionSettings {
        text_bytes_max: 100_000,
        ..AdmissionSettings::for_tests()
    };
    let admission = Arc::new(Admission::new(settings, store.ledger().clone()));
    let writer = PointWriter::new(admission.clone(), store.clone());
    let sender = admission.sender(Input::Put, "uid 4000000001");
    let key = "k".repeat(15_000);
    let write = |name: &str, now: Millis| {
        let point = IncomingPoint {
            name,
            labels: &[(&*key, "")],
            help: "",
            kind: MetricKind::Unknown,
            level: 1,
            time: now,
            value: 1.0,
        };
        writer.write(&sender, &[point], now).expect("readable").kept
    };
    let kept = |now: Millis| -> u64 {
        ["a", "b", "c", "d"]
            .map(|name| write(name, now))
            .iter()
            .sum()
    };
    // Half of the bytes of names.
    assert_eq!((kept(START), sender.series()), (3, 3));
    assert_eq!(write("a", START + 1), 1, "charged once");
    // Series that are not used any more are released.
    let later = 11 * 60 * 1000;
    scene.clock.advance(Duration::from_millis(later));
    assert_eq!((kept(START + later as Millis), sender.series()), (3, 3));
}
