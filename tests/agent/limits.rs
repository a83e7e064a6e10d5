//! Limits that the system sets on the agent: few descriptors, little memory.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pegel_lane::{Counter, Handle, LaneKind, LaneSeriesSpec, ProcessLanes};
use pegel_testkit::{
    AgentAddress, AgentBuilder, AgentProcess, ForkedChild, PLANTED_TOKEN, TempDir, check_conserved,
    eventually, get, need_hardware, now_millis,
};
use pegel_tree_simulator::{ChildSimulation, SimulationPlan};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::PEGEL;

/// Returns an agent that a shell starts after `before`.
fn agent_after(dir: &TempDir, before: &str) -> AgentBuilder {
    // The log gets a new file every second: a missing descriptor would be noticed.
    PEGEL
        .agent_after(dir, before)
        .config("keep: {memory: 1s}\nrate: 100ms\n")
}

fn status(agent: &AgentProcess) -> Value {
    let answer = eventually("the socket answers", || {
        get(&agent.unix(), "/status").and_then(|answer| match answer.status {
            200 => Ok(answer),
            status => Err(std::io::Error::other(status.to_string())),
        })
    });
    answer.json()
}

/// Checks over the socket that received = kept + dropped: TCP connections may not be closed yet.
fn assert_conserved(agent: &AgentProcess) {
    eventually("received = kept + dropped", || {
        check_conserved(&status(agent))
    });
}

fn tcp(address: &AgentAddress) -> std::net::SocketAddr {
    match address {
        AgentAddress::Tcp(address) => *address,
        AgentAddress::Unix(path) => panic!("{} is not TCP", path.display()),
    }
}

/// Opens `count` connections on every listener, keeps the accepted ones, and checks that blocks and
/// log are still written.
fn crowd_and_check(agent: &AgentProcess, count: usize) {
    let statsd = agent.endpoint.json["statsd"]["tcp"][0].as_str();
    let statsd = statsd.expect("an address").parse().expect("an address");
    let mut held: Vec<TcpStream> = Vec::new();
    let mut held_on_socket: Vec<UnixStream> = Vec::new();
    let bound = Duration::from_secs(20);
    for _ in 0..count {
        for address in [tcp(agent.http()), statsd] {
            held.extend(TcpStream::connect_timeout(&address, bound).ok());
        }
    }
    for _ in 0..count {
        held_on_socket.extend(UnixStream::connect(&agent.socket).ok());
    }
    drop(held_on_socket);
    let blocks = |status: &Value| status["store"]["blocks"].as_u64().unwrap_or(0);
    let before = blocks(&status(agent));
    for _ in 0..3 {
        let mut status = status(agent);
        eventually("further blocks", || {
            status = self::status(agent);
            assert_eq!(status["degraded"], false, "{status}");
            if blocks(&status) > before {
                Ok(())
            } else {
                Err(blocks(&status))
            }
        });
        let range = get(&agent.unix(), "/api/v1/range?match=node_load1").expect("an answer");
        assert!(
            range.status == 200 || range.status == 503,
            "{}",
            range.text()
        );
    }
    let status = status(agent);
    let failed = status["collectors"].as_array().expect("a list").iter();
    let failed: Vec<_> = failed.filter(|one| one["state"] == "failed").collect();
    assert!(failed.is_empty(), "{failed:?}");
    drop(held);
}

#[test]
fn too_few_descriptors_are_a_start_error() {
    let dir = TempDir::new();
    let finished = agent_after(&dir, "ulimit -n 64").run();
    assert_ne!(finished.code(), Some(0), "{finished}");
    let expected = "the limit on open files is 64, and the agent requires at least 112";
    assert!(finished.stderr.contains(expected), "{finished}");
}

#[test]
fn connections_do_not_take_the_descriptors_of_the_log() {
    for limit in [128, 256] {
        let dir = TempDir::new();
        let agent = agent_after(&dir, &format!("ulimit -n {limit}")).start();
        assert_eq!(status(&agent)["limits"]["open_files"], limit);
        crowd_and_check(&agent, 300);
        assert_conserved(&agent);
    }
}

#[test]
fn four_hundred_lanes_and_many_connections_leave_the_log_its_descriptors() {
    let dir = TempDir::new();
    let builder = agent_after(&dir, "ulimit -n 1024");
    let lanes = builder.lanes();
    let agent = builder.start();
    let home = ProcessLanes::in_directory(&lanes);
    let programs: Vec<ForkedChild> = (0..400)
        .map(|_| {
            ForkedChild::run(|| {
                let spec = LaneSeriesSpec::new(LaneKind::Counter, "steps_total");
                let steps = Counter::create_in(home, &spec).expect("made");
                steps.add(1);
                loop {
                    std::thread::sleep(Duration::from_secs(60));
                }
            })
        })
        .collect();
    crowd_and_check(&agent, 600);
    eventually("all lanes are read", || {
        let answer = get(&agent.unix(), "/metrics")?;
        let is_there = answer.text().contains("\nsteps_total 400\n");
        let lines = || std::io::Error::other("not 400 yet");
        is_there.then_some(()).ok_or_else(lines)
    });
    assert_conserved(&agent);
    programs.into_iter().for_each(ForkedChild::kill);
}

/// More children and unproven peers than there are descriptors.
#[test]
fn children_do_not_take_the_descriptors_of_the_log() {
    let dir = TempDir::new();
    let builder = PEGEL.agent_after(&dir, "ulimit -n 256");
    let config = "keep: {memory: 1s}\nrate: 100ms\ntree: {accept: '127.0.0.1:0', interval: 1s}\n";
    let agent = builder.config(config).start();
    let limited = status(&agent);
    assert_eq!(limited["limits"]["open_files"], 256);
    eventually("the message", || {
        let said = agent.stderr();
        let is_there = said.contains("open files are limited to 256") && said.contains(" children");
        is_there.then_some(()).ok_or(said)
    });
    let address = limited["tree"]["accepts"].as_str().expect("an address");
    let address: std::net::SocketAddr = address.parse().expect("an address");
    let runtime = Runtime::new().expect("a runtime");
    let plan = SimulationPlan {
        address,
        token: Some(PLANTED_TOKEN.to_owned()),
        prefix: "n".to_owned(),
        children: 200,
        ramp: Duration::from_secs(1),
    };
    let children = ChildSimulation::start(runtime.handle(), plan);
    eventually("some children are accepted, and others are refused", || {
        let found = (children.connected(), children.ended());
        (found.0 >= 4 && found.1 > 0).then_some(()).ok_or(found)
    });
    let bound = Duration::from_secs(20);
    let peers = (0..200).filter_map(|_| TcpStream::connect_timeout(&address, bound).ok());
    let peers: Vec<TcpStream> = peers.collect();
    crowd_and_check(&agent, 200);
    assert!(status(&agent)["tree"]["children"].as_u64() < Some(64));
    drop(peers);
    drop(children);
    assert_conserved(&agent);
}

/// Returns a fixture tree in which the agent is in a cgroup with a limit.
fn machine(version: u8, limit: &str) -> TempDir {
    let root = TempDir::new();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    };
    match version {
        2 => {
            write("proc/self/cgroup", "0::/user.slice/job\n");
            write("sys/fs/cgroup/cgroup.controllers", "memory\n");
            write("sys/fs/cgroup/user.slice/job/memory.max", "max\n");
            write("sys/fs/cgroup/user.slice/memory.max", &format!("{limit}\n"));
        }
        _ => {
            write("proc/self/cgroup", "4:memory:/job\n0::/\n");
            let file = "sys/fs/cgroup/memory/job/memory.limit_in_bytes";
            write(file, &format!("{limit}\n"));
        }
    }
    root
}

#[test]
fn limits_are_sized_to_the_memory_of_the_cgroup() {
    for version in [1, 2] {
        let root = machine(version, "67108864");
        let agent = PEGEL
            .agent()
            .env("PEGEL_ROOT", root.path())
            .config("limits: {series_per_sender: 77}\n")
            .start();
        let status = status(&agent);
        let limits = &status["limits"];
        assert_eq!(limits["cgroup_memory_bytes"], 64 << 20);
        let memory = limits["memory_bytes"].as_u64().expect("a number");
        assert!((8 << 20..32 << 20).contains(&memory), "{limits}");
        assert!(limits["series"].as_u64() < Some(20_000), "{limits}");
        let config = get(&agent.unix(), "/api/v1/config")
            .expect("an answer")
            .json();
        let rows = config.as_array().expect("a list").clone();
        let value = |key: &str| {
            let row = rows.iter().find(|row| row["key"] == key);
            row.expect("a row")["value"].as_str().map(str::to_owned)
        };
        assert_eq!(value("limits.series_per_sender").as_deref(), Some("77"));
        assert_ne!(value("limits.memory").as_deref(), Some("256MiB"));
        eventually("the message", || {
            let said = agent.stderr();
            let is_there = said.contains("the cgroup limits memory to 64 MiB");
            is_there.then_some(()).ok_or(said)
        });
    }
}

#[test]
fn too_little_memory_is_a_start_error() {
    let root = machine(2, "16777216");
    let finished = PEGEL.agent().env("PEGEL_ROOT", root.path()).run();
    assert_ne!(finished.code(), Some(0), "{finished}");
    let expected = "the cgroup limits memory to 16 MiB, and the agent requires at least 24 MiB";
    assert!(finished.stderr.contains(expected), "{finished}");
}

/// A real cgroup, removed when dropped.
struct RealCgroup(PathBuf);

impl RealCgroup {
    fn new(mebibytes: u64) -> Option<RealCgroup> {
        let name = format!("pegel-test-{}-{mebibytes}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (parent, file) = if v1.is_dir() {
            (v1.to_owned(), "memory.limit_in_bytes")
        } else {
            (PathBuf::from("/sys/fs/cgroup"), "memory.max")
        };
        let path = parent.join(name);
        fs::create_dir(&path).ok()?;
        let cgroup = RealCgroup(path);
        let limit = (mebibytes << 20).to_string();
        fs::write(cgroup.0.join(file), limit).ok()?;
        Some(cgroup)
    }
}

impl Drop for RealCgroup {
    fn drop(&mut self) {
        eventually("the cgroup is empty", || fs::remove_dir(&self.0));
    }
}

#[test]
fn the_agent_survives_a_flood_under_a_real_memory_limit() {
    for mebibytes in [32, 64] {
        let cgroup = RealCgroup::new(mebibytes);
        if need_hardware(cgroup.is_some(), "cgroup that may be limited").is_none() {
            return;
        }
        let cgroup = cgroup.expect("it is there");
        let dir = TempDir::new();
        let enter = format!("echo $$ > {}", cgroup.0.join("cgroup.procs").display());
        let mut agent = agent_after(&dir, &enter).start();
        let limit = &status(&agent)["limits"]["cgroup_memory_bytes"];
        assert_eq!(*limit, mebibytes << 20);
        let statsd = agent.endpoint.json["statsd"]["udp"][0].as_str();
        let statsd = statsd.expect("an address").to_owned();
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bound");
        // Many times the series and bytes that fit into memory.
        for round in 0..20 {
            for at in 0..2_000 {
                let name = format!("flood.{}.{at}", round % 10);
                let lines = format!("{name}:1|c\n{name}.t:{at}|ms\n{name}.s:{at}|s\n");
                let _ = sender.send_to(lines.as_bytes(), &statsd);
            }
            let mut lines = UnixStream::connect(&agent.socket).expect("connected");
            let _ = lines.write_all(&[b'x'; 8 << 10]);
            let answer = get(&agent.unix(), "/metrics").expect("it is alive");
            assert!(answer.status == 200 || answer.status == 503);
            assert!(!agent.has_ended(), "{}", agent.output());
        }
        assert_conserved(&agent);
        assert!(agent.stop().code() == Some(0));
    }
}

#[test]
fn queries_fit_into_a_real_memory_limit() {
    let cgroup = RealCgroup::new(32);
    if need_hardware(cgroup.is_some(), "cgroup that may be limited").is_none() {
        return;
    }
    let cgroup = cgroup.expect("it is there");
    let dir = TempDir::new();
    let enter = format!("echo $$ > {}", cgroup.0.join("cgroup.procs").display());
    let mut agent = agent_after(&dir, &enter).start();
    let statsd = agent.endpoint.json["statsd"]["udp"][0].as_str();
    let statsd = statsd.expect("an address").to_owned();
    let sender = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let count = "/api/v1/query?query=count(%7B__name__=~%22wide.*%22%7D)";
    eventually("there are many series", || {
        for at in 0..400 {
            let line = format!("wide_{at}:1|c\n");
            let _ = sender.send_to(line.as_bytes(), &statsd);
        }
        let answer = agent.get(count).json();
        let found = answer["data"]["result"][0]["value"][1].as_str();
        let found = found.and_then(|text| text.parse::<f64>().ok());
        found
            .filter(|found| *found >= 300.0)
            .ok_or(answer.to_string())
    });
    // With one value of 8 bytes for each step and series, a result takes 32 MB.
    let end = now_millis() / 1_000;
    let range = format!("start={}&end={end}&step=1", end - 10_000);
    let wide = "%7B__name__=~%22wide.*%22%7D";
    let paths = [
        format!("/api/v1/query_range?query={wide}&{range}"),
        format!("/api/v1/query_range?query=sum({wide})&{range}"),
        format!("/api/v1/query_range?query=sum%20by%20(__name__)(rate({wide}[60s]))&{range}"),
        "/api/v1/range?match=*&start=-1h".to_owned(),
        "/api/query?start=1h-ago&m=sum:node_load1".to_owned(),
    ];
    for _ in 0..3 {
        std::thread::scope(|scope| {
            for path in &paths {
                let http = agent.http().clone();
                scope.spawn(move || {
                    let answer = get(&http, path).expect("the agent is alive");
                    let expected = [200, 413, 422, 503, 504];
                    let text = answer.text();
                    assert!(expected.contains(&answer.status), "{path}: {text}");
                });
            }
        });
        assert!(!agent.has_ended(), "{}", agent.output());
    }
    assert_conserved(&agent);
    assert!(agent.stop().code() == Some(0));
}

/// Expensive queries must not delay the sampler.
#[test]
fn query_threads_have_a_lower_priority_than_the_sampler() {
    let agent = PEGEL.agent().start();
    assert_eq!(agent.get("/api/v1/range?match=node_load1").status, 200);
    let tasks = fs::read_dir(format!("/proc/{}/task", agent.pid())).expect("the agent runs");
    let mut nice: BTreeMap<String, i32> = BTreeMap::new();
    for task in tasks.filter_map(Result::ok) {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // `PID (NAME) STATE …`: the nice value is the 17th field after the name.
        let Some((start, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let name = start.split_once('(').map(|(_, name)| name.to_owned());
        let value = rest.split(' ').nth(16).and_then(|value| value.parse().ok());
        nice.extend(name.zip(value));
    }
    assert!(nice["query"] > nice["sampler"], "{nice:?}");
    assert_eq!(nice["serve"], nice["sampler"], "{nice:?}");
    agent.assert_conserved();
}
