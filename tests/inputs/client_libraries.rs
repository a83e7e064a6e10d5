//! The libraries for C, Fortran and Rust with a real agent, and with other statsd servers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use pegel_testkit::{
    AgentProcess, ChildProcess, REPOSITORY, TempDir, c_library, eventually, eventually_within, need,
};
use serde_json::Value;

use crate::PEGEL;

/// collectd starts slowly on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

fn run(command: &mut Command) -> String {
    let finished = ChildProcess::start(command).wait(Duration::from_secs(120));
    assert!(finished.status.success(), "{command:?}: {finished}");
    finished.stdout
}

/// Links sources against the installed library.
fn build(dir: &TempDir, compiler: &Path, sources: &[&str]) -> PathBuf {
    let program = dir.join("program");
    let lib = c_library().join("lib");
    let mut command = Command::new(compiler);
    command
        .current_dir(dir.path())
        .args(["-Wall", "-Wextra", "-Werror", "-O1"]);
    command.args(
        sources
            .iter()
            .map(|source| Path::new(REPOSITORY).join(source)),
    );
    command
        .arg("-I")
        .arg(c_library().join("include"))
        .arg("-L")
        .arg(&lib)
        .args(["-lpegel", "-o"]);
    command
        .arg(&program)
        .arg(format!("-Wl,-rpath,{}", lib.display()));
    run(&mut command);
    program
}

fn c_program(dir: &TempDir, source: &str) -> Option<PathBuf> {
    Some(build(dir, &need("cc")?, &[source]))
}

fn marks(agent: &AgentProcess) -> Vec<Value> {
    let list = agent.get("/api/v1/marks").json();
    list["marks"].as_array().expect("a list").clone()
}

#[test]
fn a_fortran_program_counts_and_sets_marks() {
    let Some(gfortran) = need("gfortran") else {
        return;
    };
    let dir = TempDir::new();
    let sources = [
        "clients/fortran/pegel.f90",
        "clients/fortran/examples/solver.f90",
    ];
    let program = build(&dir, &gfortran, &sources);
    let agent = PEGEL.agent().config("rate: 100ms\n").start();
    let mut command = Command::new(&program);
    agent.connect(&mut command);
    let printed = run(&mut command);
    let reason = printed.strip_prefix("50 steps, published: T, refused: T, ");
    assert!(
        reason.is_some_and(|reason| reason.contains("name")),
        "{printed}"
    );
    let value = |name: &str| {
        let values = agent.get("/api/v1/values?match=fortran_*").json();
        let mut values = values.as_array().expect("a list").iter();
        values.find(|value| value["name"] == name)?["value"].as_f64()
    };
    for (name, expected) in [
        ("fortran_iterations_total{phase=\"solve\"}", 50.0),
        ("fortran_change_count", 50.0),
        ("fortran_step_seconds_count", 50.0),
    ] {
        eventually(name, || match value(name) {
            Some(found) if found == expected => Ok(()),
            other => Err(format!(
                "{other:?} {}",
                agent.get("/api/v1/values?match=fortran_*").text()
            )),
        });
    }
    let busy = value("fortran_busy_seconds_total").expect("counted");
    assert!((49e-6..51e-6).contains(&busy), "{busy}");
    let points = agent
        .get("/api/v1/range?match=fortran_residual_history&start=-1h")
        .json();
    assert_eq!(
        points[0]["points"].as_array().map(Vec::len),
        Some(50),
        "{points}"
    );
    let found = eventually("the marks", || {
        let found = marks(&agent);
        let is_over = found.iter().any(|mark| !mark["end"].is_null());
        if found.len() == 2 && is_over {
            Ok(found)
        } else {
            Err(format!("{found:?}"))
        }
    });
    assert_eq!(found[0]["text"], "solver starts");
    assert_eq!(found[1]["text"], "solve");
    agent.assert_conserved();
}

#[test]
fn a_c_program_sets_marks_and_phases() {
    let dir = TempDir::new();
    let Some(program) = c_program(&dir, "clients/c/examples/phases.c") else {
        return;
    };
    let agent = PEGEL.agent().start();
    let mut command = Command::new(&program);
    agent.connect(&mut command);
    // A mark without a text is one with an empty text.
    assert_eq!(run(command.env("SLURM_PROCID", "5")), "0 lost\n");
    let found = eventually("all of them", || {
        let found = marks(&agent);
        let over = found.iter().filter(|mark| !mark["end"].is_null()).count();
        if found.len() == 5 && over == 2 {
            Ok(found)
        } else {
            Err(format!("{found:?}"))
        }
    });
    let by_text: BTreeMap<&str, &Value> = { found.iter() }
        .map(|mark| (mark["text"].as_str().expect("a text"), mark))
        .collect();
    assert!(by_text["never ends"]["end"].is_null());
    let time = |text: &str, key: &str| by_text[text][key].as_i64().expect("a time");
    assert!(time("outer", "start") <= time("inner", "start"));
    for text in ["outer", "inner"] {
        assert!(time(text, "start") <= time(text, "end"), "{found:?}");
    }
    let labels = &by_text["checkpoint 12"]["labels"];
    assert_eq!(labels["program"], "program");
    assert_eq!(labels["rank"], "5");
    assert!(
        labels["pid"]
            .as_str()
            .is_some_and(|pid| pid.parse::<u32>().is_ok())
    );
    agent.assert_conserved();
    // Without an agent nothing fails, and the losses are counted.
    agent.stop();
    let mut command = Command::new(&program);
    command.env("PEGEL_SOCKET", dir.join("none.sock"));
    assert_eq!(run(&mut command), "7 lost\n");
}

/// A program that counts as its arguments specify.
struct Emitter {
    child: Child,
    replies: std::io::Lines<BufReader<ChildStdout>>,
}

impl Emitter {
    fn start(program: &Path, lanes: &TempDir, variables: &[(&str, &str)]) -> Emitter {
        let mut command = Command::new(program);
        command
            .env("PEGEL_LANES", lanes.path())
            .envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let replies = BufReader::new(child.stdout.take().expect("piped")).lines();
        Emitter { child, replies }
    }

    fn tell(&mut self, line: &str) -> String {
        let mut stdin = self.child.stdin.as_ref().expect("piped");
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .expect("it reads");
        self.replies.next().expect("it answers").expect("text")
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Emitter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that sums counters and remembers gauges.
struct Sink {
    socket: UdpSocket,
    values: BTreeMap<String, f64>,
}

impl Sink {
    fn new() -> Sink {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        socket
            .set_read_timeout(Some(Duration::from_secs(30)))
            .expect("set");
        Sink {
            socket,
            values: BTreeMap::new(),
        }
    }

    fn address(&self) -> String {
        self.socket.local_addr().expect("bound").to_string()
    }

    /// Receives one datagram and returns its lines.
    fn receive(&mut self) -> Vec<String> {
        let mut bytes = [0; 65_536];
        let length = self.socket.recv(&mut bytes).expect("a datagram");
        assert!(length <= 1_440, "{length} bytes");
        let text = std::str::from_utf8(&bytes[..length]).expect("text");
        for line in text.lines() {
            let (name, rest) = line.split_once(':').expect("a name");
            let (value, kind) = rest.split_once('|').expect("a kind");
            let (value, kind) = (value.parse::<f64>().expect("a number"), &kind[..1]);
            let sum = self.values.entry(name.to_owned()).or_default();
            *sum = if kind == "c" { *sum + value } else { value };
        }
        text.lines().map(str::to_owned).collect()
    }

    fn receive_until(&mut self, name: &str, expected: f64) {
        while self.values.get(name) != Some(&expected) {
            self.receive();
        }
    }
}

#[test]
fn changed_values_are_sent_to_another_statsd_server() {
    let (dir, lanes) = (TempDir::new(), TempDir::new());
    let Some(program) = c_program(&dir, "clients/c/examples/emitter.c") else {
        return;
    };
    let mut sink = Sink::new();
    let (address, sources) = (sink.address(), dir.join("sources"));
    let variables = [
        ("PEGEL_STATSD", &*address),
        ("PEGEL_STATSD_INTERVAL", "0.1"),
        ("PEGEL_STATSD_PREFIX", "site"),
        ("PEGEL_STATSD_SOURCES", sources.to_str().expect("UTF-8")),
    ];
    let mut emitter = Emitter::start(&program, &lanes, &variables);
    assert_eq!(emitter.tell("add 3"), "0 errors");
    // The thread sends by itself.
    assert_eq!(sink.receive(), ["site.emitter.steps.q.main:3|c"]);
    emitter.tell("add 4");
    emitter.tell("io 100");
    emitter.tell("set -2.5");
    sink.receive_until("site.emitter.depth", -2.5);
    sink.receive_until("site.emitter.steps.q.main", 7.0);
    sink.receive_until("site.emitter.io.bytes", 100.0);
    // Switched off by the program: what is counted meanwhile is not sent later. The file of
    // switches is read in the same pass, and its effect shows that the pass is over.
    emitter.tell("off");
    emitter.tell("io 50");
    emitter.tell("add 1");
    sink.receive_until("site.emitter.steps.q.main", 8.0);
    emitter.tell("on");
    emitter.tell("io 5");
    sink.receive_until("site.emitter.io.bytes", 105.0);
    // Switched off from outside.
    fs::write(&sources, "off emitter.steps\n").expect("written");
    let mut depth = 10.0;
    eventually("the file is read", || {
        let steps = |sink: &Sink| sink.values.get("site.emitter.steps.q.main").copied();
        let before = steps(&sink);
        depth += 1.0;
        emitter.tell("add 1");
        emitter.tell(&format!("set {depth}"));
        // The steps would arrive before the depth.
        sink.receive_until("site.emitter.depth", depth);
        let after = steps(&sink);
        if before == after {
            Ok(())
        } else {
            Err(format!("{after:?}"))
        }
    });
    fs::remove_file(&sources).expect("removed");
    // Sent at the exit, without waiting for an interval.
    emitter.tell(&format!("server {address}"));
    emitter.tell("io 1000");
    emitter.end();
    sink.receive_until("site.emitter.io.bytes", 1105.0);
}

#[test]
fn a_server_that_is_missing_costs_nothing_and_is_counted() {
    let (dir, lanes) = (TempDir::new(), TempDir::new());
    let Some(program) = c_program(&dir, "clients/c/examples/emitter.c") else {
        return;
    };
    let missing = format!("unix:{}", dir.join("none.sock").display());
    let variables = [
        ("PEGEL_STATSD", &*missing),
        ("PEGEL_STATSD_INTERVAL", "0.1"),
    ];
    let mut emitter = Emitter::start(&program, &lanes, &variables);
    emitter.tell("add 3");
    eventually("it is counted", || match &*emitter.tell("add 1") {
        "0 errors" => Err("none yet"),
        _ => Ok(()),
    });
    assert!(
        emitter
            .tell("server nowhere")
            .starts_with("expected HOST:PORT")
    );
    // Another server gets everything that was counted.
    let mut sink = Sink::new();
    emitter.tell(&format!("server {}", sink.address()));
    emitter.tell("io 1");
    sink.receive_until("emitter.io.bytes", 1.0);
    assert!(sink.values["emitter.steps.q.main"] >= 4.0);
    // A mistake in the environment does not stop a program either.
    let mut emitter = Emitter::start(&program, &lanes, &[("PEGEL_STATSD", "nonsense")]);
    assert_eq!(emitter.tell("add 1"), "1 errors");
    emitter.end();
}

#[test]
fn collectd_sums_what_a_program_sends() {
    let (dir, lanes, home) = (TempDir::new(), TempDir::new(), TempDir::new());
    let Some(collectd) = need("collectd") else {
        return;
    };
    let Some(program) = c_program(&dir, "clients/c/examples/emitter.c") else {
        return;
    };
    let free = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let port = free.local_addr().expect("bound").port();
    drop(free);
    let base = home.path().display();
    let config = format!(
        "BaseDir \"{base}\"\nPIDFile \"{base}/pid\"\nPluginDir \"/usr/lib/collectd\"\n\
         TypesDB \"/usr/share/collectd/types.db\"\nHostname \"n1\"\nFQDNLookup false\nInterval 1\n\
         LoadPlugin statsd\nLoadPlugin csv\n\
         <Plugin statsd>\n Host \"127.0.0.1\"\n Port \"{port}\"\n</Plugin>\n\
         <Plugin csv>\n DataDir \"{base}/csv\"\n StoreRates false\n</Plugin>\n"
    );
    fs::write(home.join("collectd.conf"), config).expect("written");
    let mut command = Command::new(collectd);
    let mut collectd =
        ChildProcess::start(command.arg("-f").arg("-C").arg(home.join("collectd.conf")));
    let address = format!("127.0.0.1:{port}");
    let variables = [
        ("PEGEL_STATSD", &*address),
        ("PEGEL_STATSD_INTERVAL", "0.1"),
    ];
    let mut emitter = Emitter::start(&program, &lanes, &variables);
    // The newest value in the files of one metric.
    let last = |name: &str| -> Option<f64> {
        let files = fs::read_dir(home.join("csv/n1/statsd")).ok()?.flatten();
        let mut files = files.map(|file| file.path()).filter(|path| {
            path.file_name()
                .is_some_and(|file| file.to_string_lossy().starts_with(name))
        });
        let text = fs::read_to_string(files.next()?).ok()?;
        text.lines().last()?.split(',').nth(1)?.parse().ok()
    };
    // collectd does not report when it is ready: the gauge is sent until it has it.
    let mut depth = 0;
    eventually_within(BOUND, "collectd receives", || {
        assert!(!collectd.has_ended(), "{}", collectd.output());
        depth += 1;
        emitter.tell(&format!("set {depth}"));
        last("gauge-emitter.depth")
            .filter(|depth| *depth >= 1.0)
            .ok_or_else(|| collectd.output())
    });
    emitter.tell("set -2.5");
    for _ in 0..100 {
        emitter.tell("add 3");
    }
    for (name, expected) in [
        ("derive-emitter.steps.q.main", 300.0),
        ("gauge-emitter.depth", -2.5),
    ] {
        eventually_within(BOUND, "collectd has the value", || match last(name) {
            Some(value) if value == expected => Ok(()),
            other => Err(format!("{name}: {other:?}")),
        });
    }
    assert_eq!(emitter.tell("add 0"), "0 errors");
}
