//! Tests from lines to the values in a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use pegel_config::ByteSize;
use pegel_metric::{DropReason, Input, Millis, Selector, Tick};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::TempDir;
use pegel_wire::PointBatch;

use super::line_batch::StatsdContext;
use super::settings::{IdlePolicy, StatsdSettings};
use super::source::StatsdSource;
use super::statistics::StatisticSettings;
use super::table::{LineOrigin, StatsdTable};
use super::timed_gauges::add_timed_gauge;
use crate::admission::{Admission, AdmissionSettings, AdmittedSeries, SeriesSpec};
use crate::current_values::CurrentValues;
use crate::point_writer::PointWriter;
use crate::program_sampler::ValueSource;

mod senders;

struct StatsdFixture {
    _dir: TempDir,
    store: Store,
    admission: Arc<Admission>,
    shared: Arc<StatsdContext>,
    source: StatsdSource,
    now: Millis,
}

impl StatsdFixture {
    fn new(change: impl FnOnce(&mut StatsdSettings)) -> StatsdFixture {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.path().to_owned())).expect("a new store");
        StatsdFixture::on(dir, store, change, 1000)
    }

    fn on(
        dir: TempDir,
        store: Store,
        change: impl FnOnce(&mut StatsdSettings),
        series_max: u64,
    ) -> StatsdFixture {
        StatsdFixture::with_gate(dir, store, change, |settings| {
            settings.series_max = series_max;
        })
    }

    fn with_gate(
        dir: TempDir,
        store: Store,
        change: impl FnOnce(&mut StatsdSettings),
        change_gate: impl FnOnce(&mut AdmissionSettings),
    ) -> StatsdFixture {
        let mut keys = StatsdSettings::default();
        change(&mut keys);
        let mut settings = AdmissionSettings::for_tests();
        change_gate(&mut settings);
        let admission = Arc::new(Admission::new(settings, store.ledger().clone()));
        let memory = keys.memory.count() as usize;
        let shared = Arc::new(StatsdContext::new(
            StatsdTable::new(StatisticSettings::new(&keys), memory),
            admission.clone(),
        ));
        let now = pegel_metric::Clock::utc(&pegel_metric::SystemClock) / 10_000 * 10_000;
        let board = CurrentValues::new("statsd", &store, now);
        let points = Arc::new(PointWriter::new(admission.clone(), store.clone()));
        let flush = keys.flush.duration();
        let source = StatsdSource::new(shared.clone(), Vec::new(), points, board, flush, now);
        StatsdFixture {
            _dir: dir,
            store,
            admission,
            shared,
            source,
            now,
        }
    }

    fn send(&self, lines: &str) {
        self.send_as(1, lines);
    }

    fn send_as(&self, id: u64, lines: &str) {
        self.send_of("a test", id, lines);
    }

    fn send_of(&self, who: &str, id: u64, lines: &str) {
        let origin = LineOrigin {
            sender: self.admission.sender(Input::Statsd, who),
            id,
        };
        self.shared.batch().apply_lines(lines.as_bytes(), &origin);
    }

    fn push(&self, lines: &str) {
        self.push_of(rustix::process::geteuid().as_raw(), lines);
    }

    fn push_of(&self, uid: u32, lines: &str) {
        let origin = LineOrigin {
            sender: self.admission.sender(Input::Push, &format!("uid {uid}")),
            id: 1,
        };
        self.shared.batch().apply_lines(lines.as_bytes(), &origin);
    }

    /// Admits a series of another input.
    fn claim(&self, input: Input, name: &str) -> AdmittedSeries {
        let offer = SeriesSpec::counter(name, input);
        let sender = self.admission.sender(input, "uid 1");
        self.admission.admit(&sender, &offer).expect("room")
    }

    /// Returns the values after a tick, half a second after the last one.
    fn tick(&mut self) -> BTreeMap<String, f64> {
        self.pass(500)
    }

    /// Returns the same; the interval is over, so that the next tick ends it.
    fn flush(&mut self) -> BTreeMap<String, f64> {
        self.pass(10_000)
    }

    fn pass(&mut self, step: Millis) -> BTreeMap<String, f64> {
        let mut tick = Tick::new(Input::Programs);
        tick.reset(self.now);
        self.source.update(&mut tick);
        self.now += step;
        self.store.tick(&mut tick);
        self.store
            .push(Input::Push, Vec::new())
            .expect("it is through");
        let mut values = BTreeMap::new();
        let all = Selector::all();
        self.store.latest(&all, 0, &mut |series, latest| {
            values.insert(series.text().to_owned(), latest.value);
        });
        values
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.admission.ledger().dropped_total(Input::Statsd, reason)
    }

    fn assert_ledger_balances(&self) {
        let ledger = self.admission.ledger();
        let dropped: u64 = DropReason::ALL
            .iter()
            .map(|reason| self.dropped(*reason))
            .sum();
        let (received, kept) = (
            ledger.received_total(Input::Statsd),
            ledger.kept_total(Input::Statsd),
        );
        assert_eq!(received, kept + dropped);
    }
}

fn values(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect()
}

/// Returns a table and admission without a store, for tests of sockets.
pub(super) fn shared() -> (Arc<StatsdContext>, Arc<Admission>) {
    let settings = AdmissionSettings::for_tests();
    let admission = Arc::new(Admission::new(settings, Arc::default()));
    let table = StatsdTable::new(StatisticSettings::new(&StatsdSettings::default()), 1 << 20);
    (
        Arc::new(StatsdContext::new(table, admission.clone())),
        admission,
    )
}

#[test]
fn counters_add_up_and_gauges_move() {
    let mut trial = StatsdFixture::new(|_| {});
    trial.send("a:1|c\na:2|c|@0.1\nm:3|m\ng:5|g\ng:+2|g\ng:-3.5|g\nn:-4|g");
    assert_eq!(
        trial.tick(),
        values(&[("a", 21.0), ("m", 3.0), ("g", 3.5), ("n", -4.0)])
    );
    trial.send("a:-1|c\ng:0|g\ng:-7|g\na:1:2:3|c");
    assert_eq!(
        trial.tick(),
        values(&[("a", 26.0), ("m", 3.0), ("g", -7.0), ("n", -4.0)])
    );
    trial.assert_ledger_balances();
}

#[test]
fn tags_are_labels_in_any_order() {
    let mut trial = StatsdFixture::new(|_| {});
    trial.send("a:1|c|#x:1,y:2\na:1|c|#y:2,x:1\na:1|c\na:5|c|#bare,x:1,x:2\na:1|c|#,y:2,,x:1,");
    let expected = [
        ("a", 1.0),
        ("a{bare=\"true\",x=\"1;2\"}", 5.0),
        ("a{x=\"1\",y=\"2\"}", 3.0),
    ];
    assert_eq!(trial.tick(), values(&expected));
}

#[test]
fn totals_of_senders_do_not_mix_and_survive_their_restart() {
    let mut trial = StatsdFixture::new(|_| {});
    trial.send_as(1, "flux.c:10|C\nflux.c:12|C");
    trial.send_as(2, "flux.c:100|C");
    assert_eq!(trial.tick(), values(&[("flux.c", 112.0)]));
    trial.send_as(1, "flux.c:3|C");
    trial.send_as(2, "flux.c:101|C");
    assert_eq!(trial.tick(), values(&[("flux.c", 116.0)]));
    trial.send_as(2, "flux.c:-1|C");
    assert_eq!(
        (trial.tick()["flux.c"], trial.dropped(DropReason::BadValue)),
        (116.0, 1)
    );
    let mut tenths = StatsdFixture::new(|_| {});
    for step in 1..=1000 {
        tenths.send(&format!("t:{}|C", f64::from(step) / 10.0));
    }
    assert_eq!(tenths.tick(), values(&[("t", 100.0)]));
}

#[test]
fn timers_have_running_totals_and_figures_of_the_last_interval() {
    let mut trial = StatsdFixture::new(|_| {});
    let lines: Vec<String> = (1..=100).map(|ms| format!("t:{ms}|ms")).collect();
    trial.send(&lines.join("\n"));
    assert_eq!(
        trial.tick(),
        values(&[("t.count", 100.0), ("t.sum", 5050.0)])
    );
    trial.flush();
    let after = trial.tick();
    assert_eq!((after["t.min"], after["t.max"]), (1.0, 100.0));
    for (name, exact) in [("t.p50", 50.0), ("t.p90", 90.0), ("t.p99", 99.0)] {
        assert!(
            (after[name] - exact).abs() <= exact * 0.01,
            "{name} is {}",
            after[name]
        );
    }
    trial.send("t:7|ms|@0.5");
    trial.flush();
    let after = trial.tick();
    assert_eq!((after["t.count"], after["t.sum"]), (102.0, 5064.0));
    assert_eq!(
        (after["t.min"], after["t.max"], after["t.p50"]),
        (7.0, 7.0, 7.0)
    );
    trial.flush();
    let idle = trial.tick();
    assert_eq!(
        idle,
        values(&[("t.count", 102.0), ("t.sum", 5064.0)]),
        "without samples there are no statistics"
    );
}

#[test]
fn sets_count_their_members() {
    let mut trial = StatsdFixture::new(|_| {});
    trial.send("s:a|s\ns:b|s\ns:a|s\ns:fe80::1|s");
    trial.tick();
    trial.flush();
    assert_eq!(trial.tick(), values(&[("s.count", 3.0)]));
    trial.flush();
    assert_eq!(trial.tick(), values(&[("s.count", 0.0)]));
}

#[test]
fn a_second_type_of_a_name_is_its_own_series() {
    let mut trial = StatsdFixture::new(|_| {});
    trial.send("a:1|c\na:2|g\na:3|C\nb:1|g|#k:v\nb:1|c|#k:w\nb:1|c\nb:2|g");
    let expected = [
        ("a", 1.0),
        ("a{statsd_type=\"g\"}", 2.0),
        ("a{statsd_type=\"C\"}", 3.0),
        ("b{k=\"v\"}", 1.0),
        ("b{k=\"w\",statsd_type=\"c\"}", 1.0),
        ("b{statsd_type=\"c\"}", 1.0),
        ("b", 2.0),
    ];
    assert_eq!(trial.tick(), values(&expected));
}

#[test]
fn a_timer_and_a_counter_of_its_figures_name_are_told_apart() {
    let mut trial = StatsdFixture::new(|_| {});
    trial.send("t.count:5|c\nt:1|ms\nu:1|ms\nu.sum:7|g");
    let after = trial.tick();
    let expected = [
        ("t.count", 5.0),
        ("t.count{statsd_type=\"ms\"}", 1.0),
        ("t.sum{statsd_type=\"ms\"}", 1.0),
        ("u.count", 1.0),
        ("u.sum", 1.0),
        ("u.sum{statsd_type=\"g\"}", 7.0),
    ];
    assert_eq!(after, values(&expected));
    trial.assert_ledger_balances();
}

#[test]
fn idle_metrics_are_deleted_where_that_is_wanted() {
    let mut trial = StatsdFixture::new(|keys| {
        keys.idle = IdlePolicy::Delete;
        keys.idle_gauges = Some(IdlePolicy::Keep);
    });
    trial.send("c:1|c\nc:1|c|#k:v\ng:1|g\nt:1|ms\ns:x|s");
    trial.flush();
    assert_eq!(trial.tick().len(), 11, "the first interval had them all");
    trial.send("c:1|c");
    trial.flush();
    assert_eq!(trial.tick(), values(&[("c", 2.0), ("g", 1.0)]));
    trial.flush();
    assert_eq!(trial.tick(), values(&[("g", 1.0)]));
    trial.send("t:3|c\nc:4|g\nc:5|g|#k:v");
    let again = [("g", 1.0), ("t", 3.0), ("c", 4.0), ("c{k=\"v\"}", 5.0)];
    assert_eq!(
        trial.tick(),
        values(&again),
        "the names are free for any type"
    );
    assert_eq!(trial.admission.sender(Input::Statsd, "a test").series(), 4);
}

#[test]
fn figures_are_published_as_the_keys_say() {
    let mut trial = StatsdFixture::new(|keys| {
        keys.counter_sum = true;
        keys.timer_lower = false;
        keys.timer_sum = false;
        keys.timer_count = false;
        keys.percentiles = vec!["99.9".parse().expect("valid")];
    });
    trial.send("c:5|c\nt:8|h");
    trial.flush();
    trial.send("c:2|c");
    trial.tick();
    let after = trial.tick();
    assert_eq!(
        after,
        values(&[
            ("c", 7.0),
            ("c.increase", 7.0),
            ("t.max", 8.0),
            ("t.p99.9", 8.0)
        ])
    );
}

#[test]
fn what_is_refused_is_counted_by_reason_and_the_rest_is_kept() {
    let mut trial = StatsdFixture::new(|_| {});
    trial
        .send("ok:1|c\nbad\n:1|c\nb:x|c\nb:1e400|g\nb:1|c|@2\nok:1|c\nb:1|q\n_e{1,1}:a|b\n_sc|s|0");
    assert_eq!(trial.tick(), values(&[("ok", 2.0)]));
    let reasons = [
        DropReason::Malformed,
        DropReason::BadName,
        DropReason::BadValue,
        DropReason::Unsupported,
    ];
    assert_eq!(reasons.map(|reason| trial.dropped(reason)), [3, 1, 2, 2]);
    trial.send("ok:1e308|c\nok:1e308|c");
    assert_eq!(
        trial.dropped(DropReason::BadValue),
        3,
        "the total must stay finite"
    );
    trial.assert_ledger_balances();
}

#[test]
fn names_without_end_are_refused_and_known_ones_go_on() {
    let dir = TempDir::new();
    let store = Store::open(StoreOptions::new(dir.path().to_owned())).expect("a new store");
    let mut trial = StatsdFixture::on(dir, store, |_| {}, 100);
    for number in 0..10_000 {
        trial.send(&format!("n.{number}:1|c"));
    }
    trial.send("n.0:1|c\nt:1|ms");
    let after = trial.tick();
    // A quarter of the hundred is reserved for the agent's user, root and the node.
    assert_eq!((after.len(), after["n.0"]), (75, 2.0));
    assert_eq!(trial.dropped(DropReason::SeriesLimit), 9_926);
    trial.assert_ledger_balances();
}

#[test]
fn totals_go_on_after_the_agent_was_started_anew() {
    let dir = TempDir::new();
    let open =
        |dir: &TempDir| Store::open(StoreOptions::new(dir.path().to_owned())).expect("the store");
    let store = open(&dir);
    let mut first = StatsdFixture::on(dir, store, |_| {}, 1000);
    first.send("c:5|c\nt:8|ms\nt:2|ms\nown:9|C\ng:1|g");
    first.tick();
    let StatsdFixture {
        _dir: dir, store, ..
    } = first;
    store.close();
    drop(store);
    let store = open(&dir);
    let mut second = StatsdFixture::on(dir, store, |_| {}, 1000);
    second.send("c:1|c\nt:1|ms\nown:10|C");
    let after = second.tick();
    assert_eq!(
        after,
        values(&[("c", 6.0), ("t.count", 3.0), ("t.sum", 11.0), ("own", 10.0)])
    );
}

/// Starts after an agent that ended 30 hours ago; its values are in the log or in a block.
fn after_a_day(in_block: bool, change: impl FnOnce(&mut StatsdSettings)) -> StatsdFixture {
    let dir = TempDir::new();
    let open =
        |dir: &TempDir| Store::open(StoreOptions::new(dir.path().to_owned())).expect("the store");
    let store = open(&dir);
    let mut first = StatsdFixture::on(dir, store, |_| {}, 1000);
    first.now -= 30 * 3_600_000;
    first.send("c:5|c\nt:8|ms\nown:9|C\ng:1|g");
    first.tick();
    let StatsdFixture {
        _dir: dir, store, ..
    } = first;
    if in_block {
        store.flush_to_blocks();
    }
    store.close();
    drop(store);
    let store = open(&dir);
    StatsdFixture::on(dir, store, change, 1000)
}

#[test]
fn totals_go_on_and_are_shown_at_once_however_long_no_agent_ran() {
    for in_block in [false, true] {
        let mut second = after_a_day(in_block, |_| {});
        let totals = [("c", 5.0), ("t.count", 1.0), ("t.sum", 8.0), ("own", 9.0)];
        assert_eq!(second.tick(), values(&totals), "before any line");
        second.send("c:1|c\nt:2|ms\nown:10|C");
        let totals = [("c", 6.0), ("t.count", 2.0), ("t.sum", 10.0), ("own", 10.0)];
        assert_eq!(second.tick(), values(&totals));
        // Another type takes the name over.
        let mut other = after_a_day(in_block, |_| {});
        other.send("c:3|g");
        let shown = other.tick();
        assert_eq!((shown["c"], shown["own"]), (3.0, 9.0));
    }
}

#[test]
fn totals_from_before_a_restart_are_deleted_when_idle_where_that_is_wanted() {
    let mut second = after_a_day(false, |keys| keys.idle_timers = Some(IdlePolicy::Delete));
    second.flush();
    second.flush();
    second.send("c:1|c");
    let shown = second.flush();
    assert_eq!(shown, values(&[("c", 6.0), ("own", 9.0)]));
}

#[test]
fn memory_for_timers_and_sets_is_bounded() {
    let mut trial = StatsdFixture::new(|keys| keys.memory = "8KiB".parse().expect("valid"));
    for exponent in -100..100 {
        trial.send(&format!("t:1e{exponent}|ms"));
    }
    let after = trial.tick();
    let dropped = trial.dropped(DropReason::Memory) as f64;
    assert!(
        dropped > 0.0 && after["t.count"] == 200.0 - dropped,
        "{after:?}"
    );
    trial.flush();
    trial.tick();
    trial.send("t:1|ms");
    assert_eq!(
        trial.tick()["t.count"],
        201.0 - dropped,
        "the next interval has room again"
    );
    trial.assert_ledger_balances();
}

#[test]
fn timers_of_a_stranger_leave_memory_to_the_agents_user_and_root() {
    let mut trial = StatsdFixture::new(|keys| keys.memory = "64KiB".parse().expect("valid"));
    for exponent in -200..200 {
        trial.send_of("127.0.0.1", 1, &format!("theirs:1e{exponent}|ms"));
    }
    assert!(trial.dropped(DropReason::Memory) > 0);
    let dropped = trial.dropped(DropReason::Memory);
    let own = format!("uid {}", rustix::process::geteuid().as_raw());
    for who in ["uid 0", &own] {
        trial.send_of(who, 2, "ours:1|ms\nours:7|ms\nmembers:a|s");
    }
    assert_eq!(trial.dropped(DropReason::Memory), dropped);
    assert_eq!(trial.tick()["ours.count"], 4.0);
    trial.flush();
    assert_eq!(trial.tick()["ours.max"], 7.0);
    for exponent in -200..200 {
        trial.send_of("127.0.0.1", 1, &format!("theirs:1e{exponent}|ms"));
    }
    let dropped = trial.dropped(DropReason::Memory);
    trial.send_of("127.0.0.1", 1, "others:1e300|ms");
    assert_eq!(trial.dropped(DropReason::Memory), dropped + 1);
    trial.assert_ledger_balances();
}

#[test]
fn a_gauge_with_a_time_is_a_point_of_that_time() {
    let mut trial = StatsdFixture::new(|_| {});
    let seconds = trial.now / 1000 - 60;
    trial.send(&format!(
        "depth:1:2|g|#q:main|T{seconds}\nnow:5|g\njobs:2|c|T{seconds}\nold:1|g|T1000"
    ));
    let values = trial.tick();
    assert_eq!(values["depth{q=\"main\"}"], 2.0);
    assert_eq!(
        (values["now"], values["jobs"]),
        (5.0, 2.0),
        "a counter adds to its total"
    );
    let question =
        pegel_store::RangeQuery::new(Selector::parse("depth").expect("a name"), 0, i64::MAX, None);
    let mut samples = Vec::new();
    trial
        .store
        .query_range(&question, &mut |_, found| samples.extend_from_slice(found))
        .expect("an answer");
    assert_eq!(
        samples,
        [(seconds * 1000, 2.0)],
        "the last value of one time counts"
    );
    assert_eq!(trial.dropped(DropReason::TooOld), 1);
    trial.assert_ledger_balances();
}

#[test]
fn values_of_a_line_with_a_time_share_its_labels() {
    let mut trial = StatsdFixture::new(|_| {});
    let seconds = trial.now / 1000;
    let packed = |values: usize, label: usize| {
        let (values, label) = (":1".repeat(values), "k".repeat(label));
        format!("a{values}|g|T{seconds}|#k:{label}")
    };
    let line = packed(14_000, 16_000);
    trial.send(&line);
    let (values, bytes) = trial.shared.timed_gauges.queued();
    assert_eq!(values, 14_000);
    assert!(
        bytes < 2 * line.len() + 14_000 * size_of::<f64>(),
        "{bytes}"
    );
    let mut batch = PointBatch::default();
    assert!(add_timed_gauge(line.as_bytes(), &mut batch));
    assert_eq!((batch.len(), batch.labels().len()), (14_000, 1));
    trial.tick();
    assert_eq!(trial.shared.timed_gauges.queued(), (0, 0));
    // Such a series would be refused later.
    trial.send(&packed(3, 20_000));
    assert_eq!(trial.dropped(DropReason::BadName), 3);
    assert_eq!(trial.shared.timed_gauges.queued(), (0, 0));
    trial.assert_ledger_balances();
}

#[test]
fn queued_gauges_are_bounded_by_bytes_and_leave_room_for_the_agents_user() {
    let mut trial = StatsdFixture::new(|_| {});
    let line = format!("a:1|g|T{}|#k:{}", trial.now / 1000, "k".repeat(16_000));
    for _ in 0..1_000 {
        trial.send_of("127.0.0.1", 1, &line);
    }
    let (values, bytes) = trial.shared.timed_gauges.queued();
    assert!(values < 400 && bytes <= 6 << 20, "{values} with {bytes}");
    assert_eq!(trial.dropped(DropReason::QueueFull), 1_000 - values as u64);
    trial.send_of("uid 0", 1, &line);
    assert_eq!(trial.shared.timed_gauges.queued().0, values + 1);
    trial.tick();
    trial.assert_ledger_balances();
}

#[test]
fn a_name_that_a_lane_claims_is_given_up_with_its_value() {
    let mut trial = StatsdFixture::new(|keys| keys.percentiles = Vec::new());
    trial.send("x:3|c\nt:5|ms\ng:7|g\nx:1|c|#a:b");
    trial.tick();
    let _lanes = ["x", "t.count"].map(|name| trial.claim(Input::Lane, name));
    let put = trial.claim(Input::Put, "g");
    // Before and after a pass has seen the new names.
    trial.send("x:4|c");
    trial.tick();
    trial.send("x:1|c\nt:6|ms\ng:-1|g\nx:1|g");
    let found = trial.tick();
    let expected = [
        ("g{input=\"statsd\"}", 6.0),
        ("t.count{input=\"statsd\"}", 2.0),
        ("t.sum{input=\"statsd\"}", 11.0),
        ("x{a=\"b\"}", 1.0),
        ("x{input=\"statsd\"}", 8.0),
        ("x{statsd_type=\"g\"}", 1.0),
    ];
    assert_eq!(found, values(&expected));
    assert_eq!(put.series.text(), "g");
    trial.flush();
    trial.tick();
    let account = &trial.admission.senders().statuses()[0];
    assert_eq!(account.series, 8, "the old names are no longer charged");
}

#[test]
fn a_name_that_came_after_the_lane_has_the_label_at_once() {
    let mut trial = StatsdFixture::new(|_| ());
    let lane = trial.claim(Input::Lane, "x");
    trial.send("x:3|c\nx:1|c|#input:statsd");
    let forged = "x{exported_input=\"statsd\"}";
    let expected = [("x{input=\"statsd\"}", 3.0), (forged, 1.0)];
    assert_eq!(trial.tick(), values(&expected));
    drop(lane);
    trial.send("x:3|c");
    let expected = [("x{input=\"statsd\"}", 6.0), (forged, 1.0)];
    assert_eq!(trial.tick(), values(&expected));
}

#[test]
fn a_total_from_before_a_restart_moves_when_a_lane_claims_its_name() {
    let dir = TempDir::new();
    let store = Store::open(StoreOptions::new(dir.path().to_owned())).expect("a new store");
    let mut first = StatsdFixture::on(dir, store, |_| {}, 1000);
    first.send("x:5|c");
    first.tick();
    let StatsdFixture { _dir, store, .. } = first;
    let mut second = StatsdFixture::on(_dir, store, |_| {}, 1000);
    let _lane = second.claim(Input::Lane, "x");
    let labelled = "x{input=\"statsd\"}";
    assert_eq!(second.tick(), values(&[(labelled, 5.0)]));
    second.send("x:2|c");
    assert_eq!(second.tick(), values(&[(labelled, 7.0)]));
}

#[test]
fn pushed_lines_and_others_do_not_mix() {
    let mut trial = StatsdFixture::new(|_| ());
    trial.send("x:1|c");
    trial.tick();
    trial.push("x:5|c");
    trial.send("x:1|c");
    let expected = [("x", 5.0), ("x{input=\"statsd\"}", 2.0)];
    assert_eq!(trial.tick(), values(&expected));
    let _lane = trial.claim(Input::Lane, "x");
    trial.push("x:5|c");
    trial.send("x:1|c");
    let expected = [("x{input=\"push\"}", 10.0), ("x{input=\"statsd\"}", 3.0)];
    trial.tick();
    assert_eq!(trial.tick(), values(&expected));
}

#[test]
fn a_gauge_with_times_gives_up_a_name_that_a_lane_claims() {
    let mut trial = StatsdFixture::new(|_| ());
    let line = format!("x:1|g|T{}", trial.now / 1000);
    trial.send(&line);
    assert_eq!(trial.tick(), values(&[("x", 1.0)]));
    let _lane = trial.claim(Input::Lane, "x");
    trial.send(&line.replace(":1", ":7"));
    let expected = [("x", 1.0), ("x{input=\"statsd\"}", 7.0)];
    assert_eq!(trial.tick(), values(&expected));
}

#[test]
fn what_users_push_does_not_mix() {
    let mut trial = StatsdFixture::new(|_| ());
    trial.push("x:5|c\ng:1|g");
    trial.push_of(4_000_000_001, "x:70|c\ng:2|g");
    trial.push_of(4_000_000_002, "x:100|g|#user:4000000001");
    let expected = [
        ("g", 1.0),
        ("g{user=\"4000000001\"}", 2.0),
        ("x", 5.0),
        ("x{exported_user=\"4000000001\",user=\"4000000002\"}", 100.0),
        ("x{user=\"4000000001\"}", 70.0),
    ];
    assert_eq!(trial.tick(), values(&expected));
}

#[test]
fn what_a_sender_may_not_write_yet_is_stored_later_and_nothing_is_lost() {
    let dir = TempDir::new();
    let store = Store::open(StoreOptions::new(dir.path().to_owned())).expect("a new store");
    // 600 bytes at once.
    let mut trial = StatsdFixture::with_gate(
        dir,
        store,
        |_| (),
        |settings| settings.senders.sender_bytes = Some(ByteSize::bytes(1)),
    );
    let names: Vec<String> = (10..60).map(|at| format!("c{at}")).collect();
    let send = |trial: &mut StatsdFixture| {
        let lines: Vec<String> = names.iter().map(|name| format!("{name}:1|c\n")).collect();
        trial.send(&lines.concat());
    };
    send(&mut trial);
    assert_eq!(trial.tick().len(), 50);
    let mut written = Vec::new();
    trial.admission.senders().refill(0);
    for second in 1..=10 {
        send(&mut trial);
        trial.admission.senders().refill(second * 80_000);
        let values = trial.tick();
        written.push(
            values
                .values()
                .filter(|&&value| value == (second + 1) as f64)
                .count(),
        );
    }
    // 50 bytes were left, and 80 come each time: 10 samples of 8 bytes.
    assert!(
        written.iter().all(|&now| (9..=17).contains(&now)),
        "{written:?}"
    );
    trial.assert_ledger_balances();
    assert_eq!(trial.admission.ledger().kept_total(Input::Statsd), 550);
    trial.admission.senders().refill(10_000_000);
    let values = trial.tick();
    assert!(values.values().all(|&value| value == 11.0), "{values:?}");
    let account = &trial.admission.senders().statuses()[0];
    assert_eq!(
        account.delayed,
        10 * 50 - written.iter().sum::<usize>() as u64
    );
}
