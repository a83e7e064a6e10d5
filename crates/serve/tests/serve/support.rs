//! Shared helpers: a server in front of a real store, and raw connections to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pegel_config::ListenAddress as Listen;
use pegel_ingest::Ingest;
use pegel_ingest::admission::AdmissionSettings;
use pegel_ingest::handlers::{DragonCleanup, DragonMetrics, PutPoints, SocketLines, TelnetLines};
use pegel_ingest::reserved_names::ReservedNames;
use pegel_ingest::statsd::{
    LoopbackPeer, StatsdInput, StatsdListenOptions, StatsdListener, StatsdPeerPolicy,
    StatsdSettings, TransportProtocol,
};
use pegel_metric::Clock;
use pegel_metric::{
    Family, Input, MetricKind, Millis, Point, ProcessRow, ProcessTable, Series, SystemClock,
};
use pegel_query::Annotations;
use pegel_serve::{
    Access, AgentHandles, BoundServer, InputRoute, ProcessesUnavailable, RunningServer,
    ServeSettings, StatusSource,
};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::{AgentAddress, FaultyFiles, TempDir, TestResponse, get};
use pegel_tree_protocol::NodeTree;
use tokio::runtime::Runtime;

pub(crate) struct FixedStatus(Arc<Ingest>);

impl StatusSource for FixedStatus {
    fn collectors(&self) -> serde_json::Value {
        serde_json::json!([{"name": "cpu", "state": "active"}])
    }

    fn config(&self) -> serde_json::Value {
        serde_json::json!([{"key": "level", "value": "3", "place": "default"}])
    }

    fn processes(&self) -> Result<Arc<ProcessTable>, ProcessesUnavailable> {
        let process = ProcessRow {
            pid: 7,
            comm: "a\"b\n".into(),
            uid: Some(0),
            user: "root".into(),
            threads: 3,
            state: 'R',
            cpu: 1.5,
            memory: 4096,
            io: None,
            gpu_memory: None,
            cgroup: "/system.slice".into(),
            job: None,
            started: 1_700_000_000,
            command: Some("run --fast".into()),
            owner: Some(0),
        };
        Ok(Arc::new(ProcessTable {
            time: 1_700_000_005_000,
            interval: 5.0,
            rows: vec![process],
        }))
    }

    fn extra_fields(&self) -> serde_json::Map<String, serde_json::Value> {
        let senders = self.0.sender_statuses();
        let facts = serde_json::json!({"fact": "shown", "node": "overridden", "senders": senders});
        facts.as_object().cloned().unwrap_or_default()
    }
}

/// The name of the node.
const NODE: &str = "nid0001";

/// A server with a store; both are removed at the end of the test.
pub(crate) struct TestServer {
    pub store: Store,
    /// Whether a client requested a stop.
    pub finished: Arc<AtomicBool>,
    pub running: Option<RunningServer>,
    pub runtime: Runtime,
    _dir: TempDir,
}

impl TestServer {
    pub(crate) fn new() -> TestServer {
        TestServer::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ServeSettings)) -> TestServer {
        TestServer::start(change, false, None, (NODE, None))
    }

    /// Starts the agent of a node, with the nodes below it.
    pub(crate) fn of_node(node: &str, tree: Option<Arc<dyn NodeTree>>) -> TestServer {
        TestServer::start(|_| {}, false, None, (node, tree))
    }

    /// Starts it as a job would.
    pub(crate) fn of_job() -> TestServer {
        TestServer::start(|_| {}, true, None, (NODE, None))
    }

    /// Starts it with a disk whose faults the test controls.
    pub(crate) fn on(files: &FaultyFiles) -> TestServer {
        TestServer::start(|_| {}, false, Some(files), (NODE, None))
    }

    fn start(
        change: impl FnOnce(&mut ServeSettings),
        is_job: bool,
        files: Option<&FaultyFiles>,
        (node, tree): (&str, Option<Arc<dyn NodeTree>>),
    ) -> TestServer {
        let dir = TempDir::new();
        let mut options = StoreOptions::new(dir.join("store"));
        if let Some(files) = files {
            options.files = Arc::new(files.clone());
        }
        let store = Store::open(options).expect("a store");
        let mut settings = ServeSettings {
            listen: vec![Listen::loopback(0), Listen::loopback(0)],
            socket: Some(dir.join("push.sock")),
            ..ServeSettings::default()
        };
        change(&mut settings);
        let gate = AdmissionSettings {
            reserved: Arc::new(ReservedNames::default().of_node(node)),
            ..AdmissionSettings::for_tests()
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let rate = Duration::from_millis(500);
        let ingest = Ingest::start(gate, None, &store, clock, rate).expect("started");
        let ingest = Arc::new(ingest);
        let statsd = statsd(&ingest, &store);
        let finished = Arc::new(AtomicBool::new(false));
        let finish = finished.clone();
        let app = AgentHandles {
            store: store.clone(),
            input_routes: input_routes(&ingest),
            socket_lines: Arc::new(SocketLines {
                ingest: ingest.clone(),
                statsd,
                open_commands: Box::new(|_| Box::new(|_| None)),
            }),
            telnet_lines: Arc::new(TelnetLines {
                ingest: ingest.clone(),
                version: "1.2.3".into(),
            }),
            refresh_programs: {
                let ingest = ingest.clone();
                Arc::new(move || drop(ingest.refresh()))
            },
            charge_bytes: {
                let ingest = ingest.clone();
                Arc::new(move |sender, bytes| ingest.try_charge(sender, bytes))
            },
            annotations: Arc::new(Annotations::open_or_empty(&store.status().dir)),
            jobs: pegel_jobs::Jobs::in_memory(&Default::default()),
            request_stop: is_job.then(|| -> Arc<dyn Fn() + Send + Sync> {
                let finish = finish.clone();
                Arc::new(move || finish.store(true, Ordering::Relaxed))
            }),
            history: None,
            participants_done: is_job.then(|| -> Arc<dyn Fn() + Send + Sync> {
                Arc::new(move || finish.store(true, Ordering::Relaxed))
            }),
            stop_supervised: None,
            sessions: Arc::new(pegel_serve::NoSessions),
            clock: Arc::new(SystemClock),
            node: node.into(),
            version: "1.2.3".into(),
            started: 1_700_000_000_000,
            level: 3,
            rate: Duration::from_millis(500),
            status_source: Arc::new(FixedStatus(ingest)),
            tree,
        };
        let server = BoundServer::bind(settings, app).expect("bound");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let running = server.start(runtime.handle()).expect("started");
        TestServer {
            store,
            finished,
            running: Some(running),
            runtime,
            _dir: dir,
        }
    }

    pub(crate) fn running(&self) -> &RunningServer {
        self.running.as_ref().expect("not stopped yet")
    }

    pub(crate) fn tcp(&self) -> SocketAddr {
        self.running().http_addresses()[0]
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> TestResponse {
        get(&AgentAddress::Tcp(self.tcp()), path).expect("an answer")
    }

    pub(crate) fn refused(&self, name: &str) -> u64 {
        let all = self.running().refused();
        all.into_iter()
            .find(|(known, _)| *known == name)
            .expect("a known reason")
            .1
    }

    /// Stores values; they can be read when this returns.
    pub(crate) fn push(&self, kind: MetricKind, samples: &[(&str, Millis, f64)]) {
        let points = samples
            .iter()
            .map(|&(text, time, value)| Point {
                series: series(kind, text),
                time,
                value,
            })
            .collect();
        let pushed = self.store.push(Input::Push, points).expect("stored");
        assert_eq!(
            (pushed.kept, pushed.refused),
            (samples.len() as u64, vec![])
        );
    }

    pub(crate) fn connect(&self) -> RawConnection {
        RawConnection::new(self.tcp())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.running.take());
        self.store.close();
    }
}

/// The routes of the inputs, as the agent registers them.
fn input_routes(ingest: &Arc<Ingest>) -> Vec<InputRoute> {
    let ingest = || ingest.clone();
    vec![
        InputRoute::new("/api/put", Access::Change, PutPoints(ingest())),
        InputRoute::new("/api/metrics", Access::Change, DragonMetrics(ingest())),
        InputRoute::new("/api/tsdb_cleanup", Access::Owner, DragonCleanup(ingest())),
    ]
}

/// Accepts statsd lines, but only from the push socket.
fn statsd(intake: &Ingest, store: &Store) -> Arc<StatsdInput> {
    let statsd = Arc::new(StatsdInput::new(
        &StatsdSettings::default(),
        intake.admission(),
    ));
    let mut plan = StatsdListenOptions::new(&StatsdSettings::default(), None, false);
    (plan.keys.udp, plan.keys.tcp) = (Vec::new(), Vec::new());
    let listening =
        StatsdListener::bind(&statsd, &plan, Arc::new(DenyAllPeers)).expect("nothing to bind");
    intake.add_source(statsd.source(&listening, intake.point_writer(), store, intake.now()));
    statsd
}

#[derive(Debug)]
struct DenyAllPeers;

impl StatsdPeerPolicy for DenyAllPeers {
    fn port_holder(&self, _: TransportProtocol, _: SocketAddr) -> Option<String> {
        None
    }

    fn peer_owner(&self, _: SocketAddr, _: SocketAddr) -> LoopbackPeer {
        LoopbackPeer::Unknown
    }

    fn allows_user(&self, _: u32) -> bool {
        false
    }
}

pub(crate) fn now() -> Millis {
    SystemClock.utc()
}

fn series(kind: MetricKind, text: &str) -> Arc<Series> {
    let family = |name: &str| {
        Arc::new(Family {
            name: name.to_owned().into(),
            kind,
            help: format!("About {name}.").into(),
            unit: "".into(),
            level: 1,
            input: Input::Collect,
        })
    };
    Arc::new(Series::parse(text, family).expect("a valid series"))
}

/// A connection whose bytes the test sends and reads itself.
pub(crate) struct RawConnection(pub TcpStream);

impl RawConnection {
    pub(crate) fn new(address: SocketAddr) -> RawConnection {
        let stream = TcpStream::connect(address).expect("connected");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("set");
        stream.set_nodelay(true).expect("set");
        RawConnection(stream)
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).expect("sent");
    }

    /// Reads up to the end of the connection.
    pub(crate) fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        // A reset after the response also ends it.
        let _ = self.0.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads until `mark` arrives; returns everything up to and including it.
    #[track_caller]
    pub(crate) fn until(&mut self, mark: &str) -> String {
        let mut text = String::new();
        let mut byte = [0];
        while !text.ends_with(mark) {
            let read = self.0.read(&mut byte).expect("more to read");
            assert!(read > 0, "the connection ended after {text:?}");
            text.push(char::from(byte[0]));
        }
        text
    }
}
