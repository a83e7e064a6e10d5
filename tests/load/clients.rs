//! The agent under load: slow, silent, numerous and hostile clients. It continues to sample, stays
//! within its memory, responds to other clients, and counts refusals.

#![allow(clippy::print_stderr)] // A failing test shows what it measured; a passing one does not.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use pegel_testkit::{
    AgentAddress, AgentBuilder, AgentProcess, ExporterReadings, StoredSamples, TempDir, eventually,
    eventually_within, get, get_with,
};
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::PEGEL;

const MIB: u64 = 1 << 20;

/// The most memory that the process may use in addition to that at its start:
///
/// | | MiB |
/// |---|---|
/// | responses in memory, together | 64 |
/// | four queries at once, up to 32 MiB each; these need 8 | 32 |
/// | samples and series, at these rates and durations | 16 |
/// | 512 + 64 connections with 16 KiB each way and a task | 32 |
/// | freed buffers below 1 MiB that the allocator keeps | 32 |
const GROWTH_MAX: u64 = (64 + 32 + 16 + 32 + 32) * MIB;
/// The limit for samples and series; the whole process stays below it.
const LIMITS_MEMORY: u64 = 256 * MIB;

/// The longest permitted time without a sample. Other programs that use both cores can cause more
/// than a second of it; the number of missed samples has a limit of its own.
const GAP_MS_MAX: i64 = 3_000;

struct LoadSetup {
    agent: AgentProcess,
    base_bytes: u64,
    begun: Instant,
    rate_ms: u64,
    _alone: MutexGuard<'static, ()>,
}

impl LoadSetup {
    fn new(rate_ms: u64) -> LoadSetup {
        LoadSetup::with(PEGEL.agent(), rate_ms)
    }

    fn with(builder: AgentBuilder, rate_ms: u64) -> LoadSetup {
        LoadSetup::configured(builder, rate_ms, "")
    }

    fn configured(builder: AgentBuilder, rate_ms: u64, yaml: &str) -> LoadSetup {
        let alone = crate::alone();
        let agent = builder
            .config(&format!("rate: {rate_ms}ms\n{yaml}"))
            .start();
        let base_bytes = memory(agent.pid(), "VmRSS");
        LoadSetup {
            agent,
            base_bytes,
            begun: Instant::now(),
            rate_ms,
            _alone: alone,
        }
    }

    fn address(&self) -> SocketAddr {
        match self.agent.http() {
            AgentAddress::Tcp(address) => *address,
            AgentAddress::Unix(path) => panic!("{} is not TCP", path.display()),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.address(), Duration::from_secs(20));
        let stream = stream.expect("connected");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("set");
        stream
    }

    /// Sends a request and does not read the response. The small window blocks it after a few
    /// kilobytes.
    fn ask_and_stall(&self, path: &str) -> TcpStream {
        let mut stream = self.connect();
        sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("set");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        stream
    }

    /// Checks that other clients, over TCP and over the socket, get responses.
    fn assert_others_are_answered(&self) {
        for address in [self.agent.http(), &self.agent.unix()] {
            assert_answered(address);
        }
    }

    fn refused(&self, reason: &str) -> u64 {
        // The socket has a connection limit of its own.
        let status = get(&self.agent.unix(), "/status")
            .expect("an answer")
            .json();
        let count = &status["http"]["refused"][reason];
        count
            .as_u64()
            .unwrap_or_else(|| panic!("{reason} in {status}"))
    }

    fn assert_memory(&self) {
        let peak = memory(self.agent.pid(), "VmHWM");
        let (base, peak_mib) = (self.base_bytes / MIB, peak / MIB);
        eprintln!("memory: {base} MiB at the start, {peak_mib} MiB at most");
        assert!(
            peak <= self.base_bytes + GROWTH_MAX && peak <= LIMITS_MEMORY,
            "{peak_mib} MiB at most, {base} MiB at the start"
        );
    }

    /// Checks that the agent samples without a gap, is within its memory and healthy, and that
    /// received = kept + dropped.
    fn assert_unharmed(mut self) {
        eventually("connections are given back", || {
            let http = get(&self.agent.unix(), "/status")
                .expect("an answer")
                .json()["http"]
                .clone();
            match http["connections"].as_u64() {
                Some(0) => Ok(()),
                _ => Err(http),
            }
        });
        self.assert_memory();
        // A shorter test would have too few samples.
        std::thread::sleep(Duration::from_secs(1).saturating_sub(self.begun.elapsed()));
        let elapsed = self.begun.elapsed().as_millis() as u64;
        let samples = StoredSamples::since(&self.agent, "node_load1", &format!("-{elapsed}ms"));
        let mut times: Vec<i64> = samples.times().collect();
        times.sort_unstable();
        let gap = times.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(
            gap.is_some_and(|gap| gap <= GAP_MS_MAX),
            "{gap:?} ms without a sample"
        );
        let metrics = ExporterReadings::parse_prometheus(self.agent.get("/metrics").text());
        let missed = metrics.value("pegel_samples_missed_total") as u64;
        let late = metrics.value("pegel_samples_late_total");
        let due = elapsed / self.rate_ms;
        eprintln!(
            "samples: {} of {due}, {missed} missed, {late} late, {gap:?} ms apart at most",
            times.len()
        );
        // On a machine with both cores in use, an agent without clients misses 13 to 18 % at 100
        // Hz, and none or one at 10 Hz: the cost of the clients is visible at 10 Hz.
        let missed_max = if self.rate_ms >= 100 {
            due / 5
        } else {
            due / 2
        };
        assert!(missed <= missed_max, "{missed} of {due} missed");
        let health = self.agent.get("/healthz");
        assert_eq!(health.text(), "ok\n");
        assert!(!self.agent.has_ended());
        self.agent.assert_conserved();
    }
}

fn assert_answered(address: &AgentAddress) {
    for path in [
        "/healthz",
        "/metrics",
        "/status",
        "/api/v1/values?match=node_load1",
        "/api/v1/range?match=node_load1&start=-2s",
    ] {
        let answer = get(address, path).unwrap_or_else(|e| panic!("{address}{path}: {e}"));
        assert_eq!(answer.status, 200, "{address}{path}: {}", answer.text());
    }
}

/// Returns a line of `/proc/PID/status`, in bytes.
fn memory(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the agent is alive");
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let words = line.and_then(|line| line.strip_prefix(':')?.split_ascii_whitespace().next());
    let kib: u64 = words.and_then(|word| word.parse().ok()).expect("a number");
    kib << 10
}

/// Waits until the agent has stored so many samples of each series.
fn wait_for_samples(agent: &AgentProcess, wanted: usize) {
    eventually_within(Duration::from_secs(60), "enough samples", || {
        let count = agent.samples("node_load1").len();
        if count >= wanted { Ok(()) } else { Err(count) }
    });
}

/// Repeats `work` for this time.
fn meanwhile(time: Duration, mut work: impl FnMut()) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        work();
    }
}

#[test]
fn stuck_or_slow_readers_delay_no_other_client() {
    let scene = LoadSetup::new(10);
    // Some history: every series at 100 Hz.
    wait_for_samples(&scene.agent, 50);
    let paths = [
        "/metrics",
        "/api/v1/range?match=*&start=-1h",
        "/api/v1/stream?rate=1000",
        "/api/v1/values",
    ];
    let stuck: Vec<TcpStream> = (0..100)
        .map(|n| scene.ask_and_stall(paths[n % paths.len()]))
        .collect();
    let mut slow: Vec<TcpStream> = (0..20)
        .map(|n| scene.ask_and_stall(paths[n % paths.len()]))
        .collect();
    let mut last = Instant::now();
    meanwhile(Duration::from_secs(4), || {
        scene.assert_others_are_answered();
        if last.elapsed() >= Duration::from_secs(1) {
            last = Instant::now();
            for stream in &mut slow {
                stream.read_exact(&mut [0]).expect("a byte");
            }
        }
    });
    drop((stuck, slow));
    scene.assert_unharmed();
}

#[test]
fn silent_and_half_open_connections_and_a_port_scan_are_counted_and_closed() {
    let scene = LoadSetup::new(100);
    let silent: Vec<TcpStream> = (0..100).map(|_| scene.connect()).collect();
    let half: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = scene.connect();
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: lo")
                .expect("sent");
            stream
        })
        .collect();
    // Connections half closed after a part of a request, and without one.
    let closed: Vec<TcpStream> = (0..100)
        .map(|n| {
            let mut stream = scene.connect();
            if n % 2 == 0 {
                stream.write_all(b"GET / HT").expect("sent");
            }
            stream.shutdown(Shutdown::Write).expect("half closed");
            stream
        })
        .collect();
    for n in 0..2_000 {
        let stream = scene.connect();
        if n % 2 == 0 {
            sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a reset");
        }
    }
    scene.assert_others_are_answered();
    // The limit for a head is five seconds; a read waits for twenty.
    for mut stream in silent.into_iter().chain(half).chain(closed) {
        let mut rest = Vec::new();
        let read = stream.read_to_end(&mut rest);
        let is_closed = read
            .as_ref()
            .map_or_else(|e| e.kind() == ErrorKind::ConnectionReset, |_| true);
        assert!(is_closed, "{read:?}");
    }
    // A connection is counted after it was closed.
    eventually("all are counted", || match scene.refused("head_time") {
        200 => Ok(()),
        count => Err(count),
    });
    scene.assert_unharmed();
}

#[test]
fn ten_thousand_connections_are_held_or_refused_and_the_socket_stays_open() {
    // Of these the agent holds 512.
    let wanted = 10_000;
    let limit = getrlimit(Resource::Nofile);
    let raised = limit.maximum.map_or(u64::MAX, |maximum| maximum);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    let count = raised.saturating_sub(500).min(wanted);
    eprintln!("{count} of {wanted} connections: the limit on descriptors is {raised}");
    let scene = LoadSetup::new(100);
    let begun = Instant::now();
    let mut held = Vec::new();
    for n in 0..count {
        held.push(scene.connect());
        if n % 1_000 == 999 {
            assert_answered(&scene.agent.unix());
        }
    }
    eprintln!("{count} connections in {:?}", begun.elapsed());
    // Each connection is open, was refused, or timed out.
    eventually("all are accounted for", || {
        let status = get(&scene.agent.unix(), "/status")
            .expect("an answer")
            .json();
        let http = &status["http"];
        let number = |value: &serde_json::Value| value.as_u64().expect("a number");
        let seen = number(&http["connections"])
            + number(&http["refused"]["connections"])
            + number(&http["refused"]["head_time"]);
        if seen == count {
            Ok(())
        } else {
            Err(http.clone())
        }
    });
    assert!(scene.refused("connections") > 0);
    assert_answered(&scene.agent.unix());
    drop(held);
    eventually("TCP is served again", || {
        match get(scene.agent.http(), "/healthz") {
            Ok(answer) if answer.status == 200 => Ok(()),
            other => Err(other.map(|answer| answer.status)),
        }
    });
    scene.assert_unharmed();
}

#[test]
fn without_descriptors_the_agent_continues_to_store() {
    let home = TempDir::new();
    let scene = LoadSetup::with(PEGEL.agent_after(&home, "ulimit -n 128"), 10);
    let mut held: Vec<TcpStream> = Vec::new();
    meanwhile(Duration::from_secs(3), || {
        if held.len() < 1_000 {
            held.push(scene.connect());
        }
    });
    let refused = scene.refused("connections") + scene.refused("accept");
    assert!(refused > 0, "a thousand connections on 128 descriptors");
    let status = get(&scene.agent.unix(), "/status")
        .expect("an answer")
        .json();
    assert_eq!(status["degraded"], false, "{status}");
    let failed = status["collectors"].as_array().expect("a list").iter();
    let failed: Vec<_> = failed
        .filter(|collector| collector["state"] == "failed")
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    drop(held);
    scene.assert_unharmed();
}

#[test]
fn bodies_without_end_are_refused() {
    let scene = LoadSetup::new(100);
    // With a length: refused before the first byte of the body.
    for method in ["GET", "POST", "PUT"] {
        let mut stream = scene.connect();
        let request = format!(
            "{method} /api/v1/values HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("an answer, and the end");
        assert!(answer.starts_with("HTTP/1.1 413 "), "{method}: {answer}");
    }
    assert_eq!(scene.refused("body_size"), 3);
    // Chunked, as fast as the agent reads.
    let piece = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
    for (method, n) in [("GET", 4), ("POST", 5)] {
        let mut stream = scene.connect();
        let request = format!(
            "{method} /api/v1/values HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut sent = 0_u64;
        while sent < 1 << 30 && stream.write_all(&piece).is_ok() {
            sent += piece.len() as u64;
        }
        // The limit, and the kernel's buffers.
        assert!(sent < 64 << 20, "{method}: {sent} bytes were taken");
        assert_eq!(scene.refused("body_size"), n, "{method}: counted");
    }
    scene.assert_others_are_answered();
    scene.assert_unharmed();
}

#[test]
fn requests_come_byte_by_byte() {
    let scene = LoadSetup::new(100);
    let mut streams: Vec<TcpStream> = (0..50).map(|_| scene.connect()).collect();
    let request = b"GET /api/v1/values?match=node_load1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for byte in request {
        for stream in &mut streams {
            stream.write_all(&[*byte]).expect("sent");
        }
    }
    scene.assert_others_are_answered();
    for mut stream in streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    scene.assert_unharmed();
}

#[test]
fn absurd_queries_get_a_response_or_an_error() {
    let scene = LoadSetup::new(10);
    let many = |text: &str, count: usize| text.repeat(count);
    let questions = [
        (
            "start=0&end=99999999999999&step=1ms&match=*".to_owned(),
            &[200, 413][..],
        ),
        (
            "start=0&end=9223372036854775807&step=1ms&match=*".to_owned(),
            &[200, 400, 413],
        ),
        (
            "start=-99999999d&step=1ms&match=*".to_owned(),
            &[200, 400, 413],
        ),
        ("start=now&end=0".to_owned(), &[400]),
        ("step=0".to_owned(), &[400]),
        ("step=-1".to_owned(), &[400]),
        ("step=99999999999999999999999".to_owned(), &[400]),
        (many("match=a*&", 60), &[200]),
        (many("match=a*&", 800), &[400]),
        (many("match=a&", 10_000), &[414, 431]),
        (
            format!("match=x%7Ba=~%22{}%22%7D", many("(a*)*", 1_000)),
            &[200, 400],
        ),
        (
            format!("match=x%7Ba=~%22{}%22%7D", "(a{1000}){1000}"),
            &[200, 400],
        ),
        (
            format!(
                "match=*%7Bcpu=~%22{}%22%7D",
                "(((.{1,100}){1,100}){1,100}){1,100}"
            ),
            &[200, 400],
        ),
        (
            format!("match=x%7Ba=~%22{}%22%7D", many("(", 2_000)),
            &[400],
        ),
        (format!("match={}", many("*a", 3_000)), &[200]),
        (format!("match={}x", many("*", 7_000)), &[200]),
    ];
    wait_for_samples(&scene.agent, 5);
    for (question, codes) in &questions {
        for path in ["/api/v1/range", "/api/v1/values"] {
            // The second route does not have the other parameters.
            if path.ends_with("values") && !question.starts_with("match") {
                continue;
            }
            let shown: String = question.chars().take(60).collect();
            let begun = Instant::now();
            let answer = get(scene.agent.http(), &format!("{path}?{question}"));
            let answer = answer.unwrap_or_else(|e| panic!("{shown}: {e}"));
            let took = begun.elapsed();
            eprintln!("{path}?{shown}: {} in {took:?}", answer.status);
            assert!(
                codes.contains(&answer.status),
                "{shown}: {} {}",
                answer.status,
                answer.text()
            );
        }
    }
    scene.assert_others_are_answered();
    scene.assert_unharmed();
}

/// Expressions that need more time, memory or samples than a query may use, or are refused before.
const HOSTILE_EXPRESSIONS: [&str; 9] = [
    "sum_over_time(vector(1)[10d:1s])",
    "max_over_time(vector(time())[100y:1s])",
    "{__name__=~\".+\"}",
    "count_values(\"v\", {__name__=~\".+\"} + time())",
    "quantile_over_time(0.5, {__name__=~\".+\"}[1h])",
    "max_over_time(max_over_time(rate({__name__=~\".+\"}[1m])[1h:1s])[1h:1s])",
    "{__name__=~\".+\"} * on () group_left {__name__=~\".+\"}",
    "label_join(label_join({__name__=~\".+\"}, \"a\", \"x\", \"__name__\"), \"b\", \"y\", \"a\", \"a\", \"a\")",
    "{__name__=~\"((a{1000}){1000}){1000}\"}",
];

#[test]
fn hostile_expressions_cost_no_more_than_their_limits() {
    let scene = LoadSetup::configured(PEGEL.agent(), 100, "promql:\n  timeout: 2s\n");
    wait_for_samples(&scene.agent, 20);
    let ask = |number: usize| {
        let expression = HOSTILE_EXPRESSIONS[number % HOSTILE_EXPRESSIONS.len()];
        let encoded: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect();
        let end = pegel_testkit::now_seconds();
        let start = end - 11_000;
        let path = format!("/api/v1/query_range?query={encoded}&start={start}&end={end}&step=1");
        let answer = get(scene.agent.http(), &path).expect("an answer");
        let body = answer.json();
        let is_expected = matches!(answer.status, 200 | 400 | 422 | 503);
        assert!(is_expected, "{expression}: {}", answer.status);
        // The expression that fits into its limits is answered.
        let outcome = if answer.status == 200 {
            "success"
        } else {
            "error"
        };
        assert_eq!(body["status"], outcome, "{expression}");
    };
    std::thread::scope(|scope| {
        for client in 0..HOSTILE_EXPRESSIONS.len() {
            scope.spawn(move || (client..client + 2).for_each(ask));
        }
        meanwhile(Duration::from_secs(2), || {
            for path in [
                "/healthz",
                "/metrics",
                "/status",
                "/api/v1/values?match=node_load1",
            ] {
                let answer = get(&scene.agent.unix(), path).expect("an answer");
                assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            }
        });
    });
    scene.assert_unharmed();
}

/// Creates a store with as many samples as half an hour at the default rate.
fn full_store(home: &TempDir) -> std::path::PathBuf {
    let dir = home.join("store");
    let fast = PEGEL.agent().dir(&dir).config("rate: 1ms\n").start();
    wait_for_samples(&fast, 2_000);
    fast.assert_conserved();
    assert_eq!(fast.stop().code(), Some(0));
    dir
}

/// About 20 MiB of the full store.
const HEAVY: &str = "/api/v1/range?match=node_*&start=-1h";

#[test]
fn many_heavy_queries_at_once_stay_within_memory() {
    let home = TempDir::new();
    let scene = LoadSetup::with(PEGEL.agent().dir(full_store(&home)), 100);
    let counts = Mutex::new(std::collections::BTreeMap::<u16, (u32, usize)>::new());
    std::thread::scope(|scope| {
        let end = Instant::now() + Duration::from_secs(5);
        for n in 0..24 {
            let (scene, counts) = (&scene, &counts);
            scope.spawn(move || {
                while Instant::now() < end {
                    let gzip: &[(&str, &str)] = &[("Accept-Encoding", "gzip")];
                    let headers = if n % 3 == 0 { gzip } else { &[] };
                    // Which of them are refused depends on their order.
                    let answer = get_with(scene.agent.http(), HEAVY, headers).expect("an answer");
                    let code = answer.status;
                    assert!([200, 413, 503, 504].contains(&code), "{code}");
                    let mut counts = counts.lock();
                    let (count, bytes) = counts.entry(code).or_default();
                    *count += 1;
                    *bytes = answer.body.len().max(*bytes);
                }
            });
        }
        while Instant::now() < end {
            scene.assert_others_are_answered();
        }
    });
    eprintln!("{:?}", counts.lock());
    let counts = counts.into_inner();
    assert!(counts.contains_key(&200), "some were answered: {counts:?}");
    let refused = scene.refused("answer_memory") + scene.refused("answer_size");
    let failed: u32 = counts
        .iter()
        .filter(|(code, _)| [503, 413].contains(code))
        .map(|(_, (count, _))| count)
        .sum();
    assert_eq!(refused, u64::from(failed), "{counts:?}");
    scene.assert_unharmed();
}

#[test]
fn stuck_readers_of_large_responses_leave_memory_for_others() {
    let home = TempDir::new();
    let scene = LoadSetup::with(PEGEL.agent().dir(full_store(&home)), 100);
    let mut stuck = Vec::new();
    // Until the memory for responses is used up.
    while scene.refused("answer_memory") == 0 {
        assert!(stuck.len() < 100, "a hundred large answers at once");
        stuck.push(scene.ask_and_stall(HEAVY));
        std::thread::sleep(Duration::from_millis(100));
    }
    meanwhile(Duration::from_secs(2), || {
        for address in [scene.agent.http(), &scene.agent.unix()] {
            for path in ["/metrics", "/api/v1/values", "/api/v1/list", "/healthz"] {
                let answer = get(address, path).expect("an answer");
                assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            }
        }
    });
    drop(stuck);
    scene.assert_unharmed();
}
