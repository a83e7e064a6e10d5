//! The systemd units: systemd accepts them, they restrict the agent, and the agent works within
//! their restrictions.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pegel_testkit::{
    AgentAddress, ChildProcess, REPOSITORY, TempDir, eventually, get, isolate, need, need_hardware,
};
use rustix::process::Signal;

use crate::PEGEL;

const BOUND: Duration = Duration::from_secs(60);

fn packaging() -> PathBuf {
    Path::new(REPOSITORY).join("packaging/systemd")
}

fn unit(name: &str) -> String {
    let path = packaging().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn drop_ins() -> Vec<(String, String)> {
    let entries = fs::read_dir(packaging().join("drop-ins")).expect("a directory");
    let mut all: Vec<(String, String)> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            (name, fs::read_to_string(path).expect("a text"))
        })
        .collect();
    all.sort();
    all
}

/// The unit in a temporary directory, with some of the drop-ins, and with this binary instead of
/// the installed one.
struct InstalledUnit {
    home: TempDir,
}

impl InstalledUnit {
    fn new(text: &str, drop_ins: &[(String, String)]) -> InstalledUnit {
        let home = TempDir::new();
        let text = text.replace("/usr/bin/pegel", PEGEL.path());
        fs::write(home.join("pegel.service"), text).expect("written");
        let dir = home.join("pegel.service.d");
        fs::create_dir(&dir).expect("made");
        for (name, text) in drop_ins {
            fs::write(dir.join(name), text).expect("written");
        }
        InstalledUnit { home }
    }

    #[track_caller]
    fn analyze(&self, args: &[&str]) -> String {
        let mut command = Command::new("systemd-analyze");
        // The manager of a user requires a runtime directory.
        command
            .args(args)
            .arg(self.home.join("pegel.service"))
            .env("XDG_RUNTIME_DIR", self.home.path());
        let finished = ChildProcess::start(&mut command).wait(BOUND);
        assert_eq!(finished.code(), Some(0), "{finished}");
        // An unknown directive is a warning only, and is ignored.
        assert!(!finished.stderr.contains("pegel.service"), "{finished}");
        finished.stdout
    }
}

#[test]
fn systemd_understands_every_unit_and_drop_in() {
    if need("systemd-analyze").is_none() {
        return;
    }
    let system = unit("pegel.service");
    InstalledUnit::new(&system, &[]).analyze(&["verify", "--man=no"]);
    InstalledUnit::new(&system, &drop_ins()).analyze(&["verify", "--man=no"]);
    for drop_in in drop_ins() {
        InstalledUnit::new(&system, &[drop_in]).analyze(&["verify", "--man=no"]);
    }
    let user = unit("user/pegel.service");
    InstalledUnit::new(&user, &[]).analyze(&["verify", "--man=no", "--user"]);
}

#[test]
fn an_unknown_directive_is_detected() {
    if need("systemd-analyze").is_none() {
        return;
    }
    let wrong = unit("pegel.service").replace("ProtectHostname=", "ProtectHostnames=");
    let installed = InstalledUnit::new(&wrong, &[]);
    let result = std::panic::catch_unwind(|| installed.analyze(&["verify", "--man=no"]));
    assert!(result.is_err());
}

/// The largest permitted exposure level of `systemd-analyze security`, in tenths, from 0 to 100.
#[test]
fn the_unit_is_restricted_and_each_drop_in_opens_only_what_it_documents() {
    if need("systemd-analyze").is_none() {
        return;
    }
    let check = |drop_ins: &[(String, String)], most: u32| {
        let threshold = format!("--threshold={most}");
        let installed = InstalledUnit::new(&unit("pegel.service"), drop_ins);
        installed.analyze(&["security", "--offline=yes", "--no-pager", &threshold]);
    };
    check(&[], 20);
    for drop_in in drop_ins() {
        let most = match drop_in.0.as_str() {
            "rapl.conf" => 20,
            "nvidia.conf" => 23,
            "ebpf.conf" | "ptrace.conf" => 25,
            "other-users-processes.conf" => 26,
            "nvme-smart.conf" => 27,
            other => panic!("how open may {other} be?"),
        };
        check(&[drop_in], most);
    }
}

#[test]
fn each_drop_in_documents_its_effect_and_its_cost() {
    for (name, text) in drop_ins() {
        for word in ["# Gives:", "# Does:", "# Costs:", "[Service]"] {
            assert!(text.contains(word), "{name}: {word}");
        }
        // Only a drop-in that documents it may grant more than a capability or a device.
        assert!(
            !text.contains("ProtectSystem") && !text.contains("NoNewPrivileges"),
            "{name}"
        );
    }
}

#[test]
fn the_options_in_the_units_are_those_of_the_agent() {
    let home = TempDir::new();
    let help = ChildProcess::start(PEGEL.command(&home).args(["agent", "--help"]))
        .wait(BOUND)
        .stdout;
    for name in ["pegel.service", "user/pegel.service"] {
        let text = unit(name);
        let start = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="))
            .expect("a command");
        let mut words = start.split_whitespace();
        assert_eq!(
            (words.next(), words.next()),
            (Some("/usr/bin/pegel"), Some("agent"))
        );
        let options: Vec<&str> = words.filter(|word| word.starts_with('-')).collect();
        assert!(!options.is_empty());
        for option in options {
            assert!(
                help.contains(&format!("{option} ")),
                "{name}: {option}: {help}"
            );
        }
    }
}

/// The socket of a service manager.
struct FakeServiceManager {
    socket: UnixDatagram,
    _home: TempDir,
    path: PathBuf,
}

impl FakeServiceManager {
    fn new() -> FakeServiceManager {
        let home = TempDir::new();
        let path = home.join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        socket.set_read_timeout(Some(BOUND)).expect("set");
        FakeServiceManager {
            socket,
            _home: home,
            path,
        }
    }

    fn receive(&self) -> String {
        let mut buffer = [0; 4096];
        let count = self.socket.recv(&mut buffer).expect("told in time");
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }
}

#[test]
fn ready_and_stopping_are_notified() {
    let manager = FakeServiceManager::new();
    let agent = PEGEL.agent().env("NOTIFY_SOCKET", &manager.path).start();
    let ready = manager.receive();
    assert!(ready.starts_with("READY=1\n"), "{ready}");
    assert!(
        ready.contains(&format!("\nMAINPID={}\n", agent.pid())),
        "{ready}"
    );
    // A client that waits for the agent finds samples at once.
    assert!(agent.get("/metrics").text().contains("node_load1 "));
    let pid = agent.pid();
    let finished = agent.stop();
    assert_eq!(finished.code(), Some(0), "{finished}");
    let stopping = manager.receive();
    assert!(stopping.starts_with("STOPPING=1\n"), "{pid}: {stopping}");
}

#[test]
fn a_failed_start_sends_no_notification() {
    let manager = FakeServiceManager::new();
    manager.socket.set_nonblocking(true).expect("set");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let builder = PEGEL
        .agent()
        .listen(&[&address])
        .env("NOTIFY_SOCKET", &manager.path);
    let finished = builder.run();
    assert_eq!(finished.code(), Some(1), "{finished}");
    assert!(manager.socket.recv(&mut [0; 64]).is_err());
}

#[test]
fn watchdog_notifications_come_twice_per_interval() {
    let manager = FakeServiceManager::new();
    let started = Instant::now();
    let agent = PEGEL
        .agent()
        .env("NOTIFY_SOCKET", &manager.path)
        .env("WATCHDOG_USEC", "400000")
        .start();
    assert!(manager.receive().starts_with("READY=1\n"));
    for _ in 0..10 {
        assert_eq!(manager.receive(), "WATCHDOG=1\n");
    }
    // The first comes at once, then one every 200 ms.
    assert!(
        started.elapsed() > Duration::from_millis(1_700),
        "{:?}",
        started.elapsed()
    );
    // Without the manager the agent continues: two samples take longer than the next notification.
    drop(manager);
    let count = agent.samples("node_load1").len();
    eventually("it goes on sampling", || {
        let now = agent.samples("node_load1").len();
        if now >= count + 2 { Ok(()) } else { Err(now) }
    });
    assert_eq!(agent.stop().code(), Some(0));
}

/// Returns the system calls of a name: a group contains other names.
fn calls(name: &str, sets: &str) -> BTreeSet<String> {
    if !name.starts_with('@') {
        return BTreeSet::from([name.to_owned()]);
    }
    let mut lines = sets.lines().skip_while(|line| line.trim() != name);
    assert!(lines.next().is_some(), "no {name}");
    lines
        .take_while(|line| line.starts_with(' '))
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| calls(line, sets))
        .collect()
}

/// Returns the system calls that the unit's filter permits; systemd applies its lines in order.
fn allowed(unit: &str, sets: &str) -> BTreeSet<String> {
    let mut allowed = calls("@default", sets);
    for line in unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="))
    {
        let (forbids, names) = match line.strip_prefix('~') {
            Some(names) => (true, names),
            None => (false, line),
        };
        for call in names.split_whitespace().flat_map(|name| calls(name, sets)) {
            if forbids {
                allowed.remove(&call)
            } else {
                allowed.insert(call)
            };
        }
    }
    allowed
}

/// Sends requests of each kind, a SIGHUP and a SIGTERM.
fn live(endpoint: &Path, socket: &Path) {
    let text = fs::read_to_string(endpoint).expect("there");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let http = json["http"][0].as_str().expect("an address");
    let http = AgentAddress::Tcp(http.parse().expect("an address"));
    for path in ["/metrics", "/status", "/api/v1/range?match=node_load1"] {
        for address in [&http, &AgentAddress::Unix(socket.to_owned())] {
            assert_eq!(get(address, path).expect("an answer").status, 200);
        }
    }
    let pid = i32::try_from(json["pid"].as_i64().expect("a number")).expect("a process");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    for signal in [Signal::HUP, Signal::TERM] {
        rustix::process::kill_process(pid, signal).expect("it runs");
    }
}

/// No service manager runs the unit here: the system calls of the agent are compared with the
/// filter instead.
#[test]
fn the_agent_makes_no_system_call_that_the_filter_forbids() {
    if need("systemd-analyze").is_none() || need("strace").is_none() {
        return;
    }
    let mut command = Command::new("systemd-analyze");
    let sets = ChildProcess::start(command.args(["--no-pager", "syscall-filter"]))
        .wait(BOUND)
        .stdout;
    let home = TempDir::new();
    let (trace, socket) = (home.join("trace"), home.join("push.sock"));
    let mut command = Command::new("strace");
    isolate(&mut command, &home);
    command
        .args(["-f", "-qq", "-e", "signal=none", "-o"])
        .arg(&trace)
        .args([
            PEGEL.path(),
            "agent",
            "--listen",
            "127.0.0.1:0",
            "--statsd",
            "off",
            "--level",
            "4",
            "--rate",
            "100ms",
            "--dir",
        ])
        .arg(home.join("store"))
        .arg("--socket")
        .arg(&socket);
    let mut strace = ChildProcess::start(&mut command);
    let endpoint = home.join("store/endpoint.json");
    let is_traced = eventually("it has started", || {
        match (endpoint.exists(), strace.has_ended()) {
            (true, _) => Ok(true),
            (_, true) => Ok(false),
            _ => Err(strace.output()),
        }
    });
    if need_hardware(is_traced, "privilege to trace a program").is_none() {
        return;
    }
    live(&endpoint, &socket);
    let finished = strace.wait(BOUND);
    assert_eq!(finished.code(), Some(0), "{finished}");

    let trace = fs::read_to_string(&trace).expect("written");
    let called: BTreeSet<&str> = trace
        .lines()
        .filter_map(|line| {
            line.split_once(' ')?
                .1
                .trim_start()
                .split_once('(')
                .map(|(name, _)| name)
        })
        .filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
        .collect();
    assert!(
        called.contains("epoll_wait") && called.contains("clock_adjtime"),
        "{called:?}"
    );
    for name in ["pegel.service", "user/pegel.service"] {
        let allowed = allowed(&unit(name), &sets);
        let forbidden: Vec<&&str> = called
            .iter()
            .filter(|name| !allowed.contains(**name))
            .collect();
        assert!(forbidden.is_empty(), "{name}: {forbidden:?}");
    }
}
