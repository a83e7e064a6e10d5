//! The load of a soak: ordinary readers and senders, and hostile ones beside them.
//!
//! Each function runs on a thread of its own until `stop` is set. Rates are fixed, so that two soaks compare.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use pegel_lane::{Counter, Handle, Home, Kind, Spec};
use pegel_testkit::{Address, AgentProcess, Rng, get, post};

/// Points in one batch of the back-fill.
const BATCH: usize = 1000;

pub struct SoakLoad<'a> {
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
        let Address::Tcp(address) = self.agent.http() else {
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

    /// Scrapes, as Prometheus does.
    pub fn scrape(&self) {
        self.repeat(Duration::from_secs(1), || self.get_ok("/metrics"));
    }

    /// Asks for history, as a dashboard does.
    pub fn read_history(&self) {
        let path = "/api/v1/range?match=node_*&start=-5m&step=10s";
        self.repeat(Duration::from_secs(2), || self.get_ok(path));
    }

    /// Reads a stream of changes as fast as it comes.
    pub fn follow(&self) {
        let mut stream = self.connect("/api/v1/stream?match=node_*&rate=10");
        let mut buffer = [0; 64 << 10];
        while self.is_running() {
            assert!(
                !matches!(stream.read(&mut buffer), Ok(0)),
                "the stream ended"
            );
        }
    }

    /// Takes 1 KiB of a large answer each second, and starts again when the agent gives up on it.
    pub fn read_slowly(&self) {
        let mut stream = self.connect("/api/v1/stream?match=*&rate=10");
        let mut buffer = [0; 1 << 10];
        self.repeat(Duration::from_secs(1), || {
            let gone = match stream.read(&mut buffer) {
                Ok(count) => count == 0,
                Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            };
            if gone {
                stream = self.connect("/api/v1/stream?match=*&rate=10");
            }
        });
    }

    /// Asks for 4,000 names at once, and for a pattern that invites backtracking.
    pub fn send_hostile_queries(&self) {
        let names: Vec<String> = (0..4000).map(|n| format!("hostile_{n}")).collect();
        let names = format!("/api/v1/values?names={}", names.join(","));
        let stars = format!("/api/v1/values?match={}b", "*a".repeat(200));
        self.repeat(Duration::from_millis(500), || {
            for path in [&names, &stars] {
                let answer = get(self.agent.http(), path).expect("an answer, if only an error");
                assert!(answer.status < 500 || answer.status == 503, "{path}");
            }
        });
    }

    /// Sends what ordinary programs send: counters, gauges and timers of 1,000 names, 2,000 lines a second.
    pub fn send_statsd(&self) {
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
            // The kernel counts what it drops, and the agent reads that count.
            let _ = socket.send(datagram.as_bytes());
        });
    }

    /// Sends new names, forged names, malformed lines and changing gauges without end, 20,000 lines a second.
    pub fn send_hostile_statsd(&self) {
        let socket = self.statsd();
        let mut rng = Rng::new(7);
        self.repeat(Duration::from_millis(10), || {
            for _ in 0..10 {
                let mut datagram = String::new();
                for _ in 0..20 {
                    let any = rng.next_u64();
                    let _ = match any % 8 {
                        0 => writeln!(datagram, "new.{any}:1|c"),
                        1 => writeln!(datagram, "node.load1:{any}|g"),
                        2 => writeln!(datagram, "x{any}:|||#"),
                        3 => writeln!(datagram, "timer{}:{}|ms", any % 5000, any % 1000),
                        _ => writeln!(datagram, "hostile_{}:{any}|g", any % 50_000),
                    };
                }
                let _ = socket.send(datagram.as_bytes());
            }
        });
    }

    /// Writes points of the last hour in random order: by `put`, and by statsd with times of their own.
    pub fn back_fill(&self) {
        let socket = self.statsd();
        let mut rng = Rng::new(11);
        let json = [("Content-Type", "application/json")];
        self.repeat(Duration::from_secs(1), || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let now = now.expect("after 1970").as_millis() as u64;
            let mut body = String::from("[");
            for at in 0..BATCH {
                let time = now - rng.next_u64() % 3_000_000;
                let comma = if at == 0 { "" } else { "," };
                let _ = write!(
                    body,
                    "{comma}{{\"metric\":\"backfill\",\"timestamp\":{time},\"value\":{at},\"tags\":{{\"k\":\"v\"}}}}"
                );
                if at % 20 == 0 {
                    let line = format!("shuffled:{at}|g|T{}", time / 1000);
                    let _ = socket.send(line.as_bytes());
                }
            }
            body.push(']');
            let answer = post(self.agent.http(), "/api/put", &json, body.as_bytes());
            let status = answer.expect("an answer").status;
            // 400 where the sender's share of the disk is used up: refused and counted.
            assert!(matches!(status, 200 | 204 | 400 | 503), "put: {status}");
        });
    }

    /// Counts in a lane. Returns what it counted.
    pub fn count_in_lane(&self, home: &'static Home) -> u64 {
        let spec = Spec::new(Kind::Counter, "soak_steps_total");
        let steps = Counter::create_in(home, &spec).expect("made");
        let mut count = 0;
        self.repeat(Duration::from_millis(1), || {
            steps.add(1);
            count += 1;
        });
        count
    }
}
