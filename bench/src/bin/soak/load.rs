//! The load of a soak test: ordinary readers and senders together with hostile ones.
//!
//! Each function runs on a thread of its own until `stop` is set. Rates are fixed, so that runs are
//! comparable.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use pegel_lane::{Counter, Handle, LaneKind, LaneSeriesSpec, ProcessLanes};
use pegel_testkit::{AgentAddress, AgentProcess, Rng, get, post};

/// Points in one batch of the back-fill.
const BATCH: usize = 1000;

pub(crate) struct SoakLoad<'a> {
    pub agent: &'a AgentProcess,
    pub stop: &'a AtomicBool,
    pub answers: &'a AtomicU64,
}

impl SoakLoad<'_> {
    fn is_running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn repeat(&self, pause: Duration, mut work: impl FnMut()) {
        while self.is_running() {
            work();
            std::thread::sleep(pause);
        }
    }

    fn get_ok(&self, path: &str) {
        let answer = get(self.agent.http(), path).expect("the agent answers");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    fn connect(&self, path: &str) -> TcpStream {
        let AgentAddress::Tcp(address) = self.agent.http() else {
            panic!("the agent listens on TCP");
        };
        let mut stream = TcpStream::connect(address).expect("connected");
        let timeout = Some(Duration::from_secs(1));
        stream.set_read_timeout(timeout).expect("set");
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        stream
    }

    fn statsd(&self) -> UdpSocket {
        let address = self.agent.endpoint.json["statsd"]["udp"][0].as_str();
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        socket
            .connect(address.expect("an address"))
            .expect("connected");
        socket
    }

    /// Scrapes once a second, like Prometheus.
    pub(crate) fn scrape(&self) {
        self.repeat(Duration::from_secs(1), || self.get_ok("/metrics"));
    }

    /// Queries history every 2 s, like a dashboard.
    pub(crate) fn read_history(&self) {
        let path = "/api/v1/range?match=node_*&start=-5m&step=10s";
        self.repeat(Duration::from_secs(2), || self.get_ok(path));
    }

    /// Reads a stream of changes without delay.
    pub(crate) fn follow(&self) {
        let mut stream = self.connect("/api/v1/stream?match=node_*&rate=10");
        let mut buffer = [0; 64 << 10];
        while self.is_running() {
            assert!(
                !matches!(stream.read(&mut buffer), Ok(0)),
                "the stream ended"
            );
        }
    }

    /// Reads 1 KiB of a large response each second, and reconnects when the agent closes the
    /// connection.
    pub(crate) fn read_slowly(&self) {
        let mut stream = self.connect("/api/v1/stream?match=*&rate=10");
        let mut buffer = [0; 1 << 10];
        self.repeat(Duration::from_secs(1), || {
            let is_closed = match stream.read(&mut buffer) {
                Ok(count) => count == 0,
                Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            };
            if is_closed {
                stream = self.connect("/api/v1/stream?match=*&rate=10");
            }
        });
    }

    /// Queries 4,000 names at once, and a pattern that provokes backtracking.
    pub(crate) fn send_hostile_queries(&self) {
        let names: Vec<String> = (0..4000).map(|n| format!("hostile_{n}")).collect();
        let names = format!("/api/v1/values?names={}", names.join(","));
        let stars = format!("/api/v1/values?match={}b", "*a".repeat(200));
        self.repeat(Duration::from_millis(500), || {
            for path in [&names, &stars] {
                let answer = get(self.agent.http(), path).expect("a response");
                assert!(answer.status < 500 || answer.status == 503, "{path}");
            }
        });
    }

    /// Sends statsd lines of ordinary programs: counters, gauges and timers under 1,000 names,
    /// 2,000 lines a second.
    pub(crate) fn send_statsd(&self) {
        let socket = self.statsd();
        let mut number = 0;
        self.repeat(Duration::from_millis(10), || {
            let mut datagram = String::new();
            for _ in 0..20 {
                number += 1;
                let rank = number % 1000;
                let _ = match number % 10 {
                    8 => writeln!(datagram, "rank{rank}.queue:{}|g", number % 97),
                    9 => writeln!(datagram, "rank{rank}.step:{}|ms", number % 31),
                    _ => writeln!(datagram, "rank{rank}.iterations:1|c"),
                };
            }
            // Errors are ignored: the kernel counts dropped datagrams, and the agent reads that
            // count.
            let _ = socket.send(datagram.as_bytes());
        });
    }

    /// Sends an unbounded number of new names, names of the node, malformed lines and changing
    /// gauges, 20,000 lines a second.
    pub(crate) fn send_hostile_statsd(&self) {
        let socket = self.statsd();
        let mut rng = Rng::new(7);
        self.repeat(Duration::from_millis(10), || {
            for _ in 0..10 {
                let mut datagram = String::new();
                for _ in 0..20 {
                    let random = rng.next_u64();
                    let _ = match random % 8 {
                        0 => writeln!(datagram, "new.{random}:1|c"),
                        1 => writeln!(datagram, "node.load1:{random}|g"),
                        2 => writeln!(datagram, "x{random}:|||#"),
                        3 => writeln!(datagram, "timer{}:{}|ms", random % 5000, random % 1000),
                        _ => writeln!(datagram, "hostile_{}:{random}|g", random % 50_000),
                    };
                }
                let _ = socket.send(datagram.as_bytes());
            }
        });
    }

    /// Writes points of the last hour in random order: with `put`, and with statsd lines that carry
    /// timestamps.
    pub(crate) fn back_fill(&self) {
        let socket = self.statsd();
        let mut rng = Rng::new(11);
        let json = [("Content-Type", "application/json")];
        self.repeat(Duration::from_secs(1), || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let now = now.expect("after 1970").as_millis() as u64;
            let mut body = String::from("[");
            for index in 0..BATCH {
                let time = now - rng.next_u64() % 3_000_000;
                let comma = if index == 0 { "" } else { "," };
                let _ = write!(
                    body,
                    "{comma}{{\"metric\":\"backfill\",\"timestamp\":{time},\"value\":{index},\"tags\":{{\"k\":\"v\"}}}}"
                );
                if index % 20 == 0 {
                    let line = format!("shuffled:{index}|g|T{}", time / 1000);
                    let _ = socket.send(line.as_bytes());
                }
            }
            body.push(']');
            let answer = post(self.agent.http(), "/api/put", &json, body.as_bytes());
            let status = answer.expect("an answer").status;
            // 400: the sender's share of the disk is used up; the points are rejected and counted.
            assert!(matches!(status, 200 | 204 | 400 | 503), "put: {status}");
        });
    }

    /// Counts in a lane. Returns the total.
    pub(crate) fn count_in_lane(&self, home: &'static ProcessLanes) -> u64 {
        let spec = LaneSeriesSpec::new(LaneKind::Counter, "soak_steps_total");
        let steps = Counter::create_in(home, &spec).expect("created");
        let mut count = 0;
        self.repeat(Duration::from_millis(1), || {
            steps.add(1);
            count += 1;
        });
        count
    }
}
