//! statsd: lines over every socket, recorded lines of Flux, common client libraries, and malformed
//! lines.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{
    AgentBuilder, AgentProcess, ChildProcess, OtherUser, REPOSITORY, TempDir, eventually, fixture,
    need_peer, now_seconds, post,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;

use crate::PEGEL;

type SeriesValues = BTreeMap<String, f64>;

fn agent() -> AgentBuilder {
    PEGEL.agent().args(&["--rate", "100ms"])
}

/// Starts an agent whose flush interval does not end during the test.
fn without_flush() -> AgentProcess {
    agent().config("statsd: {flush: 3650d}").start()
}

fn place<'a>(agent: &'a AgentProcess, kind: &str) -> &'a str {
    let place = &agent.endpoint.json["statsd"][kind];
    let first = place.get(0).unwrap_or(place);
    first
        .as_str()
        .unwrap_or_else(|| panic!("no {kind} in {place}"))
}

fn udp(agent: &AgentProcess) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.connect(place(agent, "udp")).expect("an address");
    socket
}

/// Returns the current values of all matching series.
fn values(agent: &AgentProcess, matching: &str) -> SeriesValues {
    let all = agent
        .get(&format!("/api/v1/values?match={matching}"))
        .json();
    let all = all.as_array().expect("a list").iter();
    all.map(|one| {
        let name = one["name"].as_str().expect("a text").to_owned();
        (name, one["value"].as_f64().unwrap_or(f64::NAN))
    })
    .collect()
}

#[track_caller]
fn shows(agent: &AgentProcess, matching: &str, expected: &[(&str, f64)]) {
    let expected: SeriesValues = expected
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect();
    eventually("the values", || match values(agent, matching) {
        found if found == expected => Ok(()),
        found => Err(found),
    });
}

fn ledger_of(agent: &AgentProcess) -> Value {
    let status = agent.status();
    let inputs = status["inputs"].as_array().expect("a list").clone();
    inputs
        .into_iter()
        .find(|input| input["input"] == "statsd")
        .expect("statsd keeps ledger")
}

#[test]
fn lines_are_accepted_on_every_socket() {
    let agent = agent().start();
    udp(&agent).send(b"jobs:1|c").expect("sent");
    let mut tcp = TcpStream::connect(place(&agent, "tcp")).expect("it listens");
    // Byte by byte, with and without a carriage return.
    for byte in b"jobs:2|c\njobs:4|c\r\n" {
        tcp.write_all(&[*byte]).expect("sent");
    }
    UnixDatagram::unbound()
        .and_then(|socket| socket.send_to(b"jobs:8|c\njobs:16|c\n", place(&agent, "unix")))
        .expect("sent");
    let mut stream = UnixStream::connect(place(&agent, "unix_stream")).expect("it listens");
    stream.write_all(b"jobs:32|c\njobs:64|c").expect("sent");
    drop(stream);
    shows(&agent, "jobs*", &[("jobs", 127.0)]);
    drop(tcp);
    agent.assert_conserved();
    assert_eq!(ledger_of(&agent)["received"], 7);
    let unix = place(&agent, "unix").to_owned();
    agent.stop();
    assert!(!Path::new(&unix).exists(), "the sockets go with the agent");
}

/// Sends recorded lines, each sender from its own socket, and computes the expected values
/// independently.
fn replay(file: &str) {
    let agent = agent().start();
    let text = fs::read_to_string(fixture("statsd").join(file)).expect("the fixture");
    let mut sockets: HashMap<u64, UdpSocket> = HashMap::new();
    let mut expected = SeriesValues::new();
    for line in text.lines() {
        let datagram: Value = serde_json::from_str(line).expect("JSON");
        let data = datagram["data"].as_str().expect("a text");
        let port = datagram["port"].as_u64().expect("a number");
        let socket = sockets.entry(port).or_insert_with(|| udp(&agent));
        assert_eq!(
            socket.send(data.as_bytes()).expect("sent") as u64,
            datagram["len"]
        );
        for line in data.split('\n') {
            let (name, value) = line.split_once(':').expect("a name");
            let value = value.strip_suffix("|g").expect("Flux sent gauges");
            let number: f64 = value.parse().expect("a number");
            let before = expected.entry(name.to_owned()).or_default();
            *before = if value.starts_with(['+', '-']) {
                *before + number
            } else {
                number
            };
        }
    }
    let list: Vec<(&str, f64)> = expected
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    shows(&agent, "flux.*", &list);
    agent.assert_conserved();
    assert_eq!(
        ledger_of(&agent)["dropped"]
            .as_object()
            .expect("a map")
            .values()
            .filter(|v| **v != 0)
            .count(),
        0
    );
    if file == "flux-200-jobs.jsonl" {
        let expected = [
            ("flux.0.content-cache.size", 6_140_129.0),
            ("flux.0.content-cache.valid", 13_077.0),
        ];
        for (name, value) in expected {
            assert_eq!(
                values(&agent, name),
                SeriesValues::from([(name.to_owned(), value)])
            );
        }
    }
}

#[test]
fn recorded_lines_of_flux_give_their_values() {
    replay("flux-200-jobs.jsonl");
}

#[test]
fn the_shipped_rules_make_a_label_of_fluxs_ranks() {
    let rules = format!("{REPOSITORY}/config/flux.yaml");
    let agent = agent().args(&["--config", &rules]).start();
    let socket = udp(&agent);
    let lines = "flux.0.content-cache.size:375|g\nflux.3.content-cache.size:7|g\nflux.kvs.12.cache:2|g\nfluxion:1|g";
    socket.send(lines.as_bytes()).expect("sent");
    let expected = [
        ("flux.content-cache.size{rank=\"0\"}", 375.0),
        ("flux.content-cache.size{rank=\"3\"}", 7.0),
        ("flux.kvs.cache{rank=\"12\"}", 2.0),
        ("fluxion", 1.0),
    ];
    shows(&agent, "flux*", &expected);
    agent.assert_conserved();
}

#[test]
fn job_states_that_flux_sent_move_gauges() {
    replay("flux-job-states.jsonl");
}

#[test]
fn no_spelling_writes_into_a_family_of_the_node() {
    let rules = "relabel: [{name: 'mine.{rest:any}', rename: 'node.{rest}'}]";
    let agent = agent().config(rules).start();
    let lines = [
        "node_load1:0|g|#fake:yes",
        "node.load1:0|g|#fake:yes",
        "node.filesystem.avail.bytes:0|g|#fake:yes,mountpoint:/",
        "node-filesystem-avail-bytes:0|g|#fake:yes",
        "node.network.receive.bytes_total:0|c|#fake:yes",
        "pegel.received:7|ms|#fake:yes",
        "up:0|g|#fake:yes",
        "scrape.duration.seconds:0|g|#fake:yes",
        "load.average:0|g|#fake:yes",
        "load_average:0|h|#fake:yes",
        "mine.load1:0|g|#fake:yes",
        "node.load1:0|g|#fake:yes|T1",
    ];
    let socket = udp(&agent);
    for line in lines {
        socket.send(line.as_bytes()).expect("sent");
    }
    let put = r#"{"metric":"node.load1","timestamp":1,"value":0,"tags":{"fake":"yes"}}"#;
    let answer = post(agent.http(), "/api/put?details", &[], put.as_bytes()).expect("asked");
    assert_eq!(answer.status, 400, "{}", answer.text());
    socket.send(b"node:1|c|#fake:no").expect("sent");
    shows(&agent, "node{*}", &[("node{fake=\"no\"}", 1.0)]);
    eventually("all are refused", || {
        let dropped = ledger_of(&agent)["dropped"].clone();
        if dropped["bad_name"] == lines.len() {
            Ok(())
        } else {
            Err(dropped)
        }
    });
    let metrics = agent.get("/metrics");
    let forged: Vec<String> = metrics
        .text()
        .lines()
        .filter(|line| line.contains("fake=\"yes\""))
        .map(str::to_owned)
        .collect();
    assert!(forged.is_empty(), "{forged:?}");
    agent.assert_conserved();
}

#[test]
fn senders_that_fill_their_part_do_not_lock_out_the_agents_user() {
    let dir = TempDir::new();
    let limits = "limits: {series: 16000, series_per_sender: 16000}";
    // The second agent starts with a store full of names that it did not admit.
    for round in 0..2 {
        let agent = agent().dir(dir.join("store")).config(limits).start();
        eventually("there are too many names", || {
            for from in ["127.0.0.2", "127.0.0.3", "127.0.0.4"] {
                let socket = UdpSocket::bind((from, 0)).expect("a free port");
                socket.connect(place(&agent, "udp")).expect("an address");
                for at in 0..300 {
                    let lines = (0..20).map(|line| format!("flood.{from}.{at}.{line}:1|g\n"));
                    let lines: String = lines.collect();
                    socket.send(lines.as_bytes()).expect("sent");
                }
            }
            let dropped = ledger_of(&agent)["dropped"].clone();
            match dropped["series_limit"].as_u64() {
                Some(1..) => Ok(()),
                _ => Err(dropped),
            }
        });
        let mine: Vec<String> = (0..200).map(|at| format!("mine.{round}.{at}=1")).collect();
        let args: Vec<&str> = ["push"]
            .into_iter()
            .chain(mine.iter().map(|one| &**one))
            .collect();
        let pushed = agent.client(&args);
        assert_eq!(pushed.code(), Some(0), "{pushed}");
        let put = format!(
            r#"{{"metric":"mine.put","value":1,"timestamp":{},"tags":{{}}}}"#,
            now_seconds()
        );
        let answer = post(agent.http(), "/api/put?details", &[], put.as_bytes()).expect("asked");
        assert_eq!(answer.status, 200, "{}", answer.text());
        agent.assert_conserved();
        agent.kill();
    }
}

#[test]
fn bad_lines_are_refused_by_reason_and_the_rest_of_the_datagram_is_kept() {
    let agent = agent().start();
    let socket = udp(&agent);
    let cases: &[(&[u8], &str)] = &[
        (b"nothing", "malformed"),
        (b"a:1", "malformed"),
        (b"a:1|zz", "malformed"),
        (b"a:1|c|@0", "malformed"),
        (b"a:1|c|@-1", "malformed"),
        (b"a:1|c|@1.5", "malformed"),
        (b"a:1|c|@NaN", "malformed"),
        (b"a:1|c|what", "malformed"),
        (b"\xff\xfe:1|c", "malformed"),
        (b"a\0b:1|c", "malformed"),
        (b"_e{5,5}:short|x", "malformed"),
        (b"_sc|name|9", "malformed"),
        (b"_sc|name|0", "unsupported"),
        (b":1|c", "bad_name"),
        (b"a{x}:1|c", "bad_name"),
        (b"a:1|c|#=x", "bad_name"),
        (b"a:one|c", "bad_value"),
        (b"a:NaN|g", "bad_value"),
        (b"a:-inf|g", "bad_value"),
        (b"a:1e400|c", "bad_value"),
        (b"a:|s", "bad_value"),
        (b"node_load1:1|g", "bad_name"),
    ];
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for (line, reason) in cases {
        let mut datagram = b"good:1|c\n".to_vec();
        datagram.extend_from_slice(line);
        datagram.extend_from_slice(b"\ngood:1|c");
        socket.send(&datagram).expect("sent");
        *expected.entry(reason).or_default() += 1;
    }
    let long_name = "n".repeat(1025);
    socket
        .send(format!("{long_name}:1|c\ngood:1|c").as_bytes())
        .expect("sent");
    *expected.entry("bad_name").or_default() += 1;
    // The largest datagram that UDP can carry.
    let mut largest = "good:1|c\n".repeat(7_278);
    largest.truncate(65_507 / 9 * 9);
    socket.send(largest.as_bytes()).expect("sent");
    let good = cases.len() * 2 + 1 + largest.len() / 9;
    shows(&agent, "good", &[("good", good as f64)]);
    let dropped = ledger_of(&agent)["dropped"].clone();
    for (reason, count) in expected {
        assert_eq!(dropped[reason], count, "{reason} of {dropped}");
    }
    assert!(
        values(&agent, "a*").keys().all(|name| name != "a"),
        "nothing of the bad lines is there"
    );
    agent.assert_conserved();
}

#[test]
fn a_silent_connection_is_closed_after_the_configured_time() {
    let agent = agent()
        .config("statsd: {connection_timeout: 200ms}")
        .start();
    let mut silent = TcpStream::connect(place(&agent, "tcp")).expect("it listens");
    let timeout = Duration::from_secs(20);
    silent.set_read_timeout(Some(timeout)).expect("set");
    assert_eq!(silent.read(&mut [0]).expect("closed in time"), 0);
}

#[test]
fn silent_and_endless_connections_block_no_other() {
    let agent = agent().start();
    let silent: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(place(&agent, "tcp")).expect("it listens"))
        .collect();
    let mut endless = TcpStream::connect(place(&agent, "tcp")).expect("it listens");
    let line = vec![b'x'; 1 << 20];
    endless.write_all(&line).expect("sent");
    endless.write_all(b"\nx.after:1|c\n").expect("sent");
    let mut half = TcpStream::connect(place(&agent, "tcp")).expect("it listens");
    half.write_all(b"half:1|").expect("sent");
    let mut other = TcpStream::connect(place(&agent, "tcp")).expect("it listens");
    other.write_all(b"x.other:1|c\n").expect("sent");
    shows(&agent, "x.*", &[("x.after", 1.0), ("x.other", 1.0)]);
    half.write_all(b"c\n").expect("sent");
    shows(&agent, "half", &[("half", 1.0)]);
    assert_eq!(ledger_of(&agent)["dropped"]["malformed"], 1);
    drop(silent);
    agent.assert_conserved();
}

#[test]
fn timers_and_sets_have_values_after_their_interval() {
    let agent = agent()
        .config("statsd: {flush: 1s, percentiles: [50, 99.9], udp: [\"127.0.0.1:0\"], tcp: []}")
        .args(&["--statsd", "udp:127.0.0.1:0"])
        .start();
    let socket = udp(&agent);
    // Sent repeatedly, so that every interval has all values.
    eventually("figures", || {
        socket
            .send(b"t:1:2:3:4:1000|ms\ns:a|s\ns:b|s\ns:a|s")
            .expect("sent");
        let found = values(&agent, "?.*");
        let has = |name: &str, expected: f64| {
            found
                .get(name)
                .is_some_and(|value| (value - expected).abs() <= expected * 0.01)
        };
        let is_there = has("t.min", 1.0)
            && has("t.max", 1000.0)
            && has("t.p50", 3.0)
            && has("t.p99.9", 1000.0);
        if is_there && has("s.count", 2.0) && found.contains_key("t.sum") {
            Ok(())
        } else {
            Err(found)
        }
    });
}

#[test]
fn a_busy_port_is_an_error_that_names_its_holder() {
    let first = agent().start();
    let address = place(&first, "udp").to_owned();
    let second = agent().args(&["--statsd", &format!("udp:{address}")]).run();
    assert_eq!(second.code(), Some(1), "{second}");
    let expected = format!(
        "udp {address} is already in use by pid {} (pegel)",
        first.pid()
    );
    assert!(second.stderr.contains(&expected), "{second}");
    let searched = agent()
        .args(&["--port-search", "--statsd", &format!("udp:{address}")])
        .start();
    assert_ne!(place(&searched, "udp"), address);
}

#[test]
fn other_users_may_not_write_where_the_user_is_known() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let agent = agent().start();
    let tcp = place(&agent, "tcp").to_owned();
    other_user.run_as(move || {
        let mut stream = TcpStream::connect(tcp).expect("it listens");
        // The agent closes the connection: eventually, writing fails.
        eventually("the end", || match stream.write_all(b"theirs:1|c\n") {
            Ok(()) => Err("still connected"),
            Err(_) => Ok(()),
        });
    });
    eventually(
        "the drop",
        || match ledger_of(&agent)["dropped"]["denied"].as_u64() {
            Some(1) => Ok(()),
            other => Err(other),
        },
    );
    let mut ours = TcpStream::connect(place(&agent, "tcp")).expect("it listens");
    ours.write_all(b"ours:1|c\n").expect("sent");
    shows(&agent, "*ours", &[("ours", 1.0)]);
    assert!(values(&agent, "theirs").is_empty());
    let account = agent.status()["senders"].to_string();
    assert!(
        account.contains(&format!("uid {}", OtherUser::UID)),
        "{account}"
    );
    agent.assert_conserved();
}

/// Sends a datagram with eight descriptors. Returns false if the kernel's limit for this user is
/// reached.
fn send_with_descriptors(socket: &UnixDatagram, attached: BorrowedFd<'_>) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let attached = [attached; 8];
    assert!(control.push(SendAncillaryMessage::ScmRights(&attached)));
    let line = [IoSlice::new(b"attached:1|c")];
    match sendmsg(socket, &line, &mut control, SendFlags::empty()) {
        Ok(_) => true,
        Err(rustix::io::Errno::TOOMANYREFS) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn descriptors_attached_to_datagrams_are_closed() {
    const SENT: usize = 5000;
    let agent = agent().start();
    let open = || {
        let entries = fs::read_dir(format!("/proc/{}/fd", agent.pid()));
        entries.expect("our own process").count()
    };
    let socket = UnixDatagram::unbound().expect("a socket");
    socket.connect(place(&agent, "unix")).expect("it listens");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let before = open();
    let mut sent = 0;
    while sent < SENT {
        if send_with_descriptors(&socket, writer.as_fd()) {
            sent += 1
        } else {
            std::thread::sleep(Duration::from_millis(1))
        }
    }
    shows(&agent, "attached", &[("attached", SENT as f64)]);
    // Requests of this test open connections.
    assert!(open() <= before + 8, "{} open, {before} before", open());
    drop(writer);
    let end = (&reader).read(&mut [0]).expect("a pipe");
    assert_eq!(end, 0, "nobody holds the other end");
}

#[test]
fn all_addresses_of_loopback_are_one_sender() {
    let agent = agent().config("limits: {series_per_sender: 10}").start();
    for host in 1..=5 {
        let socket = UdpSocket::bind(format!("127.0.9.{host}:0")).expect("an address of 127/8");
        socket.connect(place(&agent, "udp")).expect("an address");
        for name in 0..10 {
            let line = format!("host{host}.name{name}:1|c");
            socket.send(line.as_bytes()).expect("sent");
        }
    }
    eventually("all lines", || {
        match ledger_of(&agent)["received"].as_u64() {
            Some(50) => Ok(()),
            other => Err(other),
        }
    });
    assert_eq!(ledger_of(&agent)["dropped"]["sender_limit"], 40);
    let status = agent.status();
    let senders = status["senders"].as_array().expect("a list").iter();
    let senders: Vec<&Value> = senders.filter(|one| one["input"] == "statsd").collect();
    assert_eq!(senders.len(), 1, "{senders:?}");
}

#[test]
fn ten_million_names_do_not_increase_memory() {
    let agent = agent()
        .config("limits: {series: 20000, series_per_sender: 10000}")
        .start();
    const NAMES: u64 = 10_000_000;
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).expect("it runs");
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .expect("a line");
        line.split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse::<u64>().ok())
            .expect("a number")
    };
    let mut stream = UnixStream::connect(place(&agent, "unix_stream")).expect("it listens");
    let mut lines = Vec::new();
    let mut at_limit = 0;
    for number in 0..NAMES {
        lines.extend_from_slice(format!("n.{number}:1|c\n").as_bytes());
        if lines.len() > 60_000 || number + 1 == NAMES {
            stream.write_all(&lines).expect("sent");
            lines.clear();
            if at_limit == 0 && number > 100_000 {
                at_limit = resident();
            }
        }
    }
    drop(stream);
    eventually(
        "all of them in the ledger",
        || match ledger_of(&agent)["received"].as_u64() {
            Some(NAMES) => Ok(()),
            other => Err(other),
        },
    );
    let ledger = ledger_of(&agent);
    assert_eq!(
        (
            ledger["kept"].as_u64(),
            ledger["dropped"]["sender_limit"].as_u64()
        ),
        (Some(10_000), Some(NAMES - 10_000))
    );
    let grown = resident().saturating_sub(at_limit);
    assert!(
        grown < 20_000,
        "{grown} KiB more after {NAMES} names than after 100,000"
    );
    agent.assert_conserved();
}

/// Runs a script of a client library, with the port as its argument.
fn run_client(program: &Path, script: &str, agent: &AgentProcess, dir: &Path) {
    let port = place(agent, "udp")
        .rsplit_once(':')
        .expect("a port")
        .1
        .to_owned();
    let flag = if program.ends_with("node") {
        "-e"
    } else {
        "-c"
    };
    let mut command = Command::new(program);
    command
        .current_dir(dir)
        .args([flag, script, &port, place(agent, "unix")]);
    let finished = ChildProcess::start(&mut command).wait(Duration::from_secs(60));
    assert_eq!(finished.code(), Some(0), "{finished}");
}

/// The clients also send an event, which is a mark, and a service check, which is not supported.
fn assert_all_but_checks_kept(agent: &AgentProcess, text: &str) {
    // One of the clients adds its prefix to the title.
    let is_title = |title: &Value| matches!(title.as_str(), Some("title" | "hot.title"));
    eventually("the event is a mark", || {
        let marks = agent.get("/api/v1/marks").json();
        match &marks["marks"][0] {
            mark if is_title(&mark["text"]) && mark["notes"] == text => Ok(()),
            _ => Err(marks.to_string()),
        }
    });
    let ledger = ledger_of(agent);
    let number = |value: &Value| value.as_u64().expect("a number");
    assert_eq!(
        number(&ledger["received"]),
        number(&ledger["kept"]) + 1,
        "{ledger}"
    );
    assert_eq!(ledger["dropped"]["unsupported"], 1, "{ledger}");
}

#[test]
fn the_clients_of_the_python_package_index_are_understood() {
    let Some(python) = need_peer("python/bin/python3") else {
        return;
    };
    let agent = without_flush();
    let script = r#"
import sys, statsd
from datadog.dogstatsd import DogStatsd
c = statsd.StatsClient("127.0.0.1", int(sys.argv[1]), prefix="py")
c.incr("hits"); c.incr("hits", 4); c.decr("hits", 2)
c.gauge("depth", 10); c.gauge("depth", 5, delta=True); c.gauge("depth", -3, delta=True); c.gauge("low", -7)
c.timing("wait", 12.5); c.set("users", "anna"); c.set("users", "bert")
with c.pipeline() as p:
    p.incr("piped", 3); p.gauge("piped_gauge", 1.5)
d = DogStatsd(host="127.0.0.1", port=int(sys.argv[1]), namespace="dog", constant_tags=["env:test"], disable_telemetry=True)
d.increment("hits", 3, tags=["b:2", "a:1"]); d.gauge("depth", 0.25); d.histogram("size", 8); d.distribution("dist", 9, tags=["bare"])
d.set("users", "carl"); d.event("title", "text\nmore", tags=["x:y"]); d.service_check("up", 0, message="well")
import time; d.gauge_with_timestamp("past", 4, int(time.time()) - 60)
d.flush() if hasattr(d, "flush") else None
u = DogStatsd(socket_path=sys.argv[2], namespace="unix", disable_telemetry=True, disable_buffering=True)
u.increment("hits")
"#;
    run_client(&python, script, &agent, agent.dir.parent().expect("a home"));
    shows(
        &agent,
        "py.*",
        &[
            ("py.hits", 3.0),
            ("py.depth", 12.0),
            ("py.low", -7.0),
            ("py.wait.count", 1.0),
            ("py.wait.sum", 12.5),
            ("py.piped", 3.0),
            ("py.piped_gauge", 1.5),
        ],
    );
    shows(
        &agent,
        "dog.hits*",
        &[("dog.hits{a=\"1\",b=\"2\",env=\"test\"}", 3.0)],
    );
    shows(&agent, "dog.depth*", &[("dog.depth{env=\"test\"}", 0.25)]);
    shows(
        &agent,
        "dog.size*",
        &[
            ("dog.size.count{env=\"test\"}", 1.0),
            ("dog.size.sum{env=\"test\"}", 8.0),
        ],
    );
    shows(
        &agent,
        "dog.dist.sum*",
        &[("dog.dist.sum{bare=\"true\",env=\"test\"}", 9.0)],
    );
    shows(&agent, "unix.*", &[("unix.hits", 1.0)]);
    assert_all_but_checks_kept(&agent, "text\nmore");
    agent.assert_conserved();
}

#[test]
fn the_clients_of_npm_are_understood() {
    let Some(modules) = need_peer("node/node_modules/hot-shots") else {
        return;
    };
    let Some(node) = pegel_testkit::need("node") else {
        return;
    };
    let agent = without_flush();
    let script = r#"
const port = Number(process.argv[1]);
const HotShots = require("hot-shots"), Client = require("statsd-client");
const hot = new HotShots({ host: "127.0.0.1", port, prefix: "hot.", maxBufferSize: 1000, globalTags: { env: "test" } });
hot.increment("hits"); hot.increment("hits", 4, { b: "2", a: "1" }); hot.decrement("hits"); hot.gauge("depth", 42.5);
hot.timing("wait", 7); hot.histogram("size", 3); hot.distribution("dist", 4, 0.999999999); hot.set("users", "anna");
hot.check("up", hot.CHECKS.OK); hot.event("title", "text");
const plain = new Client({ host: "127.0.0.1", port, prefix: "plain" });
plain.counter("hits", 5); plain.increment("hits"); plain.decrement("hits", 2); plain.gauge("depth", 3);
plain.gaugeDelta("depth", -1); plain.timing("wait", 9); plain.set("users", "bert"); plain.histogram("size", 2);
hot.close(() => { plain.close(); });
"#;
    let dir = modules.parent().and_then(Path::parent).expect("a folder");
    run_client(&node, script, &agent, dir);
    shows(
        &agent,
        "plain.*",
        &[
            ("plain.hits", 4.0),
            ("plain.depth", 2.0),
            ("plain.wait.count", 1.0),
            ("plain.wait.sum", 9.0),
            ("plain.size.count", 1.0),
            ("plain.size.sum", 2.0),
        ],
    );
    shows(
        &agent,
        "hot.hits*",
        &[
            ("hot.hits{env=\"test\"}", 0.0),
            ("hot.hits{a=\"1\",b=\"2\",env=\"test\"}", 4.0),
        ],
    );
    shows(&agent, "hot.depth*", &[("hot.depth{env=\"test\"}", 42.5)]);
    shows(
        &agent,
        "hot.wait.sum*",
        &[("hot.wait.sum{env=\"test\"}", 7.0)],
    );
    assert_all_but_checks_kept(&agent, "text");
    agent.assert_conserved();
}
