//! Tests of acknowledged statsd lines, from the session of a client to the samples in a real store.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pegel_ingest::Ingest;
use pegel_ingest::admission::AdmissionSettings;
use pegel_ingest::handlers::SocketLines;
use pegel_ingest::statsd::{
    LineOrigin, LoopbackPeer, StatsdInput, StatsdListenOptions, StatsdListener, StatsdPeerPolicy,
    StatsdSettings, TransportProtocol,
};
use pegel_metric::{Clock, Input, Millis, Selector};
use pegel_store::{RangeQuery, Store, StoreOptions};
use pegel_testkit::{FakeClock, TempDir};
use pegel_wire::{LineClient, LineHandler, LineInput};

const START: Millis = 1_800_000_000_000;
const OTHER_USER: u32 = 4_000_000_001;
const RATE_ERROR: &str = "the sender exceeds limits.sender_bytes";

#[derive(Debug)]
struct NoPeers;

impl StatsdPeerPolicy for NoPeers {
    fn port_holder(&self, _: TransportProtocol, _: SocketAddr) -> Option<String> {
        None
    }

    fn peer_owner(&self, _: SocketAddr, _: SocketAddr) -> LoopbackPeer {
        LoopbackPeer::Unknown
    }

    fn allows_user(&self, _: u32) -> bool {
        true
    }
}

/// The input of programs with statsd but without sockets. Its only passes are those that
/// acknowledgements and the tests cause.
struct PushFixture {
    clock: Arc<FakeClock>,
    store: Store,
    ingest: Arc<Ingest>,
    lines: SocketLines,
    _dir: TempDir,
}

impl PushFixture {
    fn new(sender_bytes: &str) -> PushFixture {
        PushFixture::with_limits(|settings| {
            settings.senders.sender_bytes = Some(sender_bytes.parse().expect("a size"));
        })
    }

    fn with_limits(change: impl FnOnce(&mut AdmissionSettings)) -> PushFixture {
        let dir = TempDir::new();
        let clock = Arc::new(FakeClock::new(START));
        let mut options = StoreOptions::new(dir.join("store"));
        options.clock = clock.clone();
        let store = Store::open(options).expect("opened");
        let mut settings = AdmissionSettings::for_tests();
        change(&mut settings);
        let rate = Duration::from_secs(3600);
        let ingest = Ingest::start(settings, None, &store, clock.clone(), rate).expect("started");
        let keys = StatsdSettings {
            udp: Vec::new(),
            tcp: Vec::new(),
            ..StatsdSettings::default()
        };
        let statsd = Arc::new(StatsdInput::new(&keys, ingest.admission()));
        let options = StatsdListenOptions::new(&keys, None, false);
        let listener = StatsdListener::bind(&statsd, &options, Arc::new(NoPeers)).expect("bound");
        let source = statsd.source(&listener, ingest.point_writer(), &store, clock.utc());
        ingest.add_source(source);
        let ingest = Arc::new(ingest);
        PushFixture {
            clock,
            store,
            lines: SocketLines {
                ingest: ingest.clone(),
                statsd,
                open_commands: Box::new(|_| Box::new(|_| None)),
            },
            ingest,
            _dir: dir,
        }
    }

    fn session(&self, uid: u32) -> Arc<dyn LineHandler> {
        self.lines.open(&LineClient {
            sender: format!("uid {uid}"),
            uid: None,
            pid: Some(uid),
        })
    }

    /// Applies a line that arrived over UDP.
    fn send(&self, line: &str) {
        let origin = LineOrigin {
            sender: self.ingest.sender(Input::Statsd, "127.0.0.1"),
            id: 1,
        };
        let lines = line.as_bytes();
        self.lines.statsd.apply_lines(lines, &origin).expect("room");
    }

    /// Returns all samples of each series.
    fn samples(&self) -> BTreeMap<String, Vec<f64>> {
        let all = RangeQuery::new(Selector::all(), 0, Millis::MAX, None);
        let mut found = BTreeMap::new();
        let mut visit = |series: &Arc<pegel_metric::Series>, points: &[(Millis, f64)]| {
            let values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
            found.insert(series.text().to_owned(), values);
        };
        self.store.query_range(&all, &mut visit).expect("readable");
        found
    }
}

#[test]
fn acknowledgements_store_only_the_values_of_their_senders() {
    let agent = PushFixture::new("1MiB");
    let own = agent.session(rustix::process::geteuid().as_raw());
    assert!(own.handle(b"mine:1|c\n")[0].is_ok());
    let other = agent.session(OTHER_USER);
    agent.send("theirs:1|c");
    for _ in 0..50 {
        agent.send("theirs:1|c");
        assert!(other.handle(b"loop:1|c\n")[0].is_ok());
    }
    let samples = agent.samples();
    let stored = |text: &str| samples.get(text).map_or(0, Vec::len);
    assert_eq!(stored(&format!("loop{{user=\"{OTHER_USER}\"}}")), 50);
    assert_eq!(stored("mine"), 1, "it did not change");
    assert_eq!(stored("theirs"), 0, "it is stored at the next tick");
    agent.ingest.refresh().expect("in the log");
    assert_eq!(agent.samples()["theirs"], [51.0]);
}

#[test]
fn acknowledgements_use_up_only_the_allowance_of_their_senders() {
    // 6000 bytes at once.
    let agent = PushFixture::new("10");
    let other = agent.session(OTHER_USER);
    let mut refused = 0;
    for _ in 0..1000 {
        agent.send("theirs:1|c");
        refused += usize::from(other.handle(b"loop:1|c\n")[0].is_err());
    }
    assert!(refused > 700, "{refused}: a row costs more than its value");
    agent.ingest.refresh().expect("in the log");
    assert_eq!(agent.samples()["theirs"], [1000.0]);
    let third = agent.session(OTHER_USER + 1);
    assert!(third.handle(b"loop:1|c\n")[0].is_ok());
}

#[test]
fn a_push_beyond_the_senders_bytes_is_refused_and_none_that_is_acknowledged_is_lost() {
    // 600 bytes at once.
    let agent = PushFixture::new("1");
    let other = agent.session(OTHER_USER);
    let mut acknowledged = 0;
    let error = loop {
        match other.handle(b"jobs:1|c\n").remove(0) {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, RATE_ERROR);
    assert!(acknowledged > 5, "{acknowledged}");
    let series = format!("jobs{{user=\"{OTHER_USER}\"}}");
    let stored = || agent.samples()[&series].last().copied();
    assert_eq!(stored(), Some(f64::from(acknowledged)));
    for line in [
        format!("put depth {START} 1 q=main\n"),
        format!("depth:1|g|T{}\n", START / 1000),
        "depth:1|g\n".to_owned(),
    ] {
        let reply = other.handle(line.as_bytes()).remove(0);
        assert_eq!(reply.expect_err("refused"), RATE_ERROR, "{line}");
    }
    agent.clock.advance(Duration::from_secs(100));
    agent.ingest.refresh().expect("in the log");
    assert_eq!(stored(), Some(f64::from(acknowledged)), "not counted");
    assert!(other.handle(b"jobs:1|c\n")[0].is_ok());
    assert_eq!(stored(), Some(f64::from(acknowledged + 1)));
}

#[test]
fn a_gauge_with_a_time_is_stored_when_it_is_acknowledged() {
    let agent = PushFixture::new("1MiB");
    let own = agent.session(rustix::process::geteuid().as_raw());
    let line = format!("depth:4|g|#q:main|T{}\n", START / 1000);
    assert!(own.handle(line.as_bytes())[0].is_ok());
    assert_eq!(agent.samples()["depth{q=\"main\"}"], [4.0]);
    let old = own.handle(b"depth:4|g|T1000\n").remove(0);
    old.expect_err("older than the store keeps samples");
}

#[test]
fn the_reply_to_a_line_names_the_limit_that_refused_it() {
    let agent = PushFixture::with_limits(|settings| settings.text_bytes_max = 1000);
    let first = agent.session(OTHER_USER);
    let second = agent.session(OTHER_USER + 1);
    let line = |letter: &str| format!("{}:1|c\n", letter.repeat(380));
    assert!(first.handle(line("a").as_bytes())[0].is_ok());
    let refused = |session: &Arc<dyn LineHandler>, line: &str| {
        let reply = session.handle(line.as_bytes()).remove(0);
        reply.expect_err("refused")
    };
    let sender =
        "names and labels of the sender exceed the limit of 500 bytes (a part of limits.memory)";
    assert_eq!(refused(&first, &line("b")), sender);
    let all =
        "names and labels of all programs exceed the limit of 1000 bytes (a part of limits.memory)";
    assert_eq!(refused(&second, &line("c")), all);
    assert!(refused(&first, "node.load1:1|g\n").contains("reserved"));
}
