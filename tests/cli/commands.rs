//! Every command against an agent with canned responses: output, exit codes, files.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pegel_metric::{Family, Input, MetricKind, Selector, Series, split_series_list};
use pegel_testkit::{
    ChildProcess, FinishedProcess, REPOSITORY, TempDir, assert_golden, eventually, isolate, need,
    need_hardware,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::PEGEL;

const BOUND: Duration = Duration::from_secs(30);
const EXEC: &str = "tau_metric_proxy_run_total{operation=\"exec\"}";

/// An agent with constant responses.
struct CannedAgent {
    home: TempDir,
    thread: Option<JoinHandle<()>>,
}

/// Behaviour of the stream after its last event.
#[derive(Clone, Copy, PartialEq)]
enum StreamEnd {
    Close,
    Hold,
}

fn list() -> Value {
    json!([
        {"name": EXEC, "doc": "Number of launch with the tau_metric_proxy_run command", "type": "counter", "unit": ""},
        {"name": "node_load1", "doc": "Load average over one minute: how many threads ran, could have run or waited for a disk, including this very one.", "type": "gauge", "unit": ""},
        {"name": "node_memory_MemFree_bytes", "doc": "Memory that is \"free\", which is not what is available.", "type": "gauge", "unit": "bytes"},
        {"name": "queue.depth{a=\"1,2\",b=\"x y\"}", "doc": "", "type": "unknown", "unit": ""},
        {"name": "strace_size_total{scall=\"read\"}", "doc": "Bytes moved by the system call", "type": "counter", "unit": "bytes"},
        {"name": "strace_size_total{scall=\"write\"}", "doc": "Bytes moved by the system call", "type": "counter", "unit": "bytes"},
    ])
}

fn values() -> Vec<Value> {
    vec![
        json!({"name": "strace_size_total{scall=\"read\"}", "ts": 1667488121.36, "value": 10315325653u64}),
        json!({"name": EXEC, "ts": 1667486717.483, "value": 9}),
        json!({"name": "node_load1", "ts": 1667486718.0, "value": 0.25}),
        json!({"name": "node_memory_MemFree_bytes", "ts": 1667486718.5, "value": 1234567.5}),
        json!({"name": "queue.depth{a=\"1,2\",b=\"x y\"}", "ts": 1667486718.5, "value": null}),
        json!({"name": "strace_size_total{scall=\"write\"}", "ts": 1667486718.5, "value": 0}),
    ]
}

/// Stored samples of two counters and of a gauge, which has no rate.
fn range() -> Value {
    json!([
        {"name": "strace_size_total", "labels": {"scall": "read"},
         "points": [[1667488120000u64, 10315325000u64], [1667488122000u64, 10315325653u64]]},
        {"name": "strace_size_total", "labels": {"scall": "write"},
         "points": [[1667488120000u64, 0], [1667488122000u64, 0]]},
        {"name": "node_load1", "labels": {}, "points": [[1667488120000u64, 1], [1667488122000u64, 2]]},
    ])
}

/// The steps of the stream: all values first, as an agent sends them, then changes only.
fn steps() -> Vec<Value> {
    vec![
        Value::Array(values()),
        json!([{"name": "node_load1", "ts": 1667486719.0, "value": 0.5}]),
        json!([
            {"name": "strace_size_total{scall=\"read\"}", "ts": 1667488123.277, "value": 10343854648u64},
            {"name": EXEC, "ts": 1667488123.277, "value": 10},
        ]),
    ]
}

fn decode(query: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = query.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                let hex = String::from_utf8(hex).expect("ASCII");
                out.push(u8::from_str_radix(&hex, 16).expect("two hexadecimal digits"));
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).expect("UTF-8")
}

fn parameters(target: &str, key: &str) -> Vec<String> {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    query
        .split('&')
        .filter_map(|pair| Some(decode(pair.strip_prefix(key)?.strip_prefix('=')?)))
        .collect()
}

/// Selects values as the agent does: the union of names and patterns.
fn matching(target: &str, all: Vec<Value>) -> Vec<Value> {
    let names = parameters(target, "names").join(",");
    let names = Selector::from_list(split_series_list(&names)).expect("valid names");
    let patterns = parameters(target, "match");
    let patterns = patterns
        .iter()
        .map(|text| Selector::parse(text).expect("a valid pattern"));
    let selector = Selector::any(std::iter::once(names).chain(patterns).collect());
    let is_selective = target.contains("names=") || target.contains("match=");
    let family = |name: &str| {
        Arc::new(Family {
            name: name.to_owned().into(),
            kind: MetricKind::Unknown,
            help: "".into(),
            unit: "".into(),
            level: 0,
            input: Input::Collect,
        })
    };
    let fits = |value: &Value| {
        let text = value["name"].as_str().expect("a name");
        !is_selective || selector.matches(&Series::parse(text, family).expect("a series"))
    };
    all.into_iter().filter(fits).collect()
}

fn serve(stream: &mut UnixStream, stream_end: StreamEnd) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let target = request.split(' ').nth(1).unwrap_or_default();
    let ok = "HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n";
    match target.split('?').next().unwrap_or_default() {
        "/api/v1/list" => {
            let listed = list().as_array().expect("a list").clone();
            write!(stream, "{ok}{}", Value::Array(matching(target, listed)))
        }
        "/api/v1/values" => write!(stream, "{ok}{}", Value::Array(matching(target, values()))),
        "/api/v1/range" => {
            assert_eq!(parameters(target, "start"), ["-65s"], "{target}");
            write!(stream, "{ok}{}", range())
        }
        "/api/v1/stream" => {
            assert_eq!(parameters(target, "rate").len(), 1, "{target}");
            write!(stream, "{ok}: hello\n\n")?;
            for step in steps() {
                let step = step.as_array().expect("a list").clone();
                write!(stream, "data: {}\n\n", Value::Array(matching(target, step)))?;
            }
            if stream_end == StreamEnd::Hold {
                // Returns when the client closes the connection.
                reader.read_to_end(&mut Vec::new())?;
            }
            Ok(())
        }
        _ => write!(
            stream,
            "HTTP/1.0 404 Not Found\r\n\r\n{{\"error\":\"no such place\"}}"
        ),
    }
}

impl CannedAgent {
    fn start(stream_end: StreamEnd) -> CannedAgent {
        let home = TempDir::new();
        let listener = UnixListener::bind(home.join("push.sock")).expect("a socket");
        let stop = home.join("stop");
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.exists() {
                    return;
                }
                let mut stream = stream.expect("a connection");
                // One thread per connection: the client requests the list while it follows the
                // stream. Errors of clients that close early are ignored.
                std::thread::spawn(move || drop(serve(&mut stream, stream_end)));
            }
        });
        CannedAgent {
            home,
            thread: Some(thread),
        }
    }

    fn socket(&self) -> PathBuf {
        self.home.join("push.sock")
    }

    fn command(&self, program: impl AsRef<Path>, args: &[&str]) -> Command {
        let mut command = Command::new(program.as_ref());
        isolate(&mut command, &self.home);
        command.env("PEGEL_SOCKET", self.socket()).args(args);
        command
    }

    fn pegel(&self, args: &[&str]) -> FinishedProcess {
        ChildProcess::start(&mut self.command(PEGEL.path(), args)).wait(BOUND)
    }

    /// Runs the binary as `tau_metric_client`.
    fn tau(&self, args: &[&str]) -> FinishedProcess {
        ChildProcess::start(&mut self.command(self.tau_path(), args)).wait(BOUND)
    }

    fn tau_path(&self) -> PathBuf {
        let link = self.home.join("tau_metric_client");
        if !link.exists() {
            symlink(PEGEL.path(), &link).expect("a link");
        }
        link
    }
}

impl Drop for CannedAgent {
    fn drop(&mut self) {
        let _ = fs::write(self.home.join("stop"), "");
        let _ = UnixStream::connect(self.socket());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(REPOSITORY).join("tests/golden/cli").join(name)
}

#[track_caller]
fn assert_ok(finished: &FinishedProcess) {
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert_eq!(finished.stderr, "", "{finished}");
}

const FORMATS: [&str; 6] = ["md", "json", "yaml", "txt", "csv", "ndjson"];

#[test]
fn every_query_in_every_format() {
    let agent = CannedAgent::start(StreamEnd::Close);
    for format in FORMATS {
        for (name, args) in [
            ("list", vec!["list"]),
            ("values", vec!["values"]),
            (
                "get",
                vec![
                    "get",
                    "node_load1,queue.depth{a=\"1,2\",b=\"x y\"}",
                    "strace_size_total",
                ],
            ),
        ] {
            let mut args = args;
            args.extend(["-f", format]);
            let finished = agent.pegel(&args);
            assert_ok(&finished);
            assert_golden(golden(&format!("{name}.{format}")), &finished.stdout);
        }
    }
}

#[test]
fn track_in_every_format() {
    let agent = CannedAgent::start(StreamEnd::Close);
    for format in FORMATS {
        let all = agent.pegel(&["track", "-f", format]);
        assert_eq!(all.code(), Some(3), "the canned agent goes away: {all}");
        assert_eq!(all.stderr, "pegel: lost connection to the agent\n");
        assert_golden(golden(&format!("track.{format}")), &all.stdout);
        let named = agent.pegel(&["track", "node_load1", "-F", "1000", "-f", format]);
        assert_eq!(named.code(), Some(3), "{named}");
        assert_golden(golden(&format!("track_named.{format}")), &named.stdout);
    }
}

#[test]
fn json_parses_and_only_counters_are_tracked() {
    let agent = CannedAgent::start(StreamEnd::Close);
    let steps: Value =
        serde_json::from_str(&agent.pegel(&["track", "-f", "json"]).stdout).expect("JSON");
    let names: Vec<Vec<&str>> = steps
        .as_array()
        .expect("steps")
        .iter()
        .map(|step| {
            step.as_array()
                .expect("values")
                .iter()
                .filter_map(|v| v["name"].as_str())
                .collect()
        })
        .collect();
    let read = "strace_size_total{scall=\"read\"}";
    assert_eq!(
        names,
        [vec![read, EXEC], vec![read, EXEC]],
        "no gauges, nothing that is zero, no empty step"
    );
    let values: Value =
        serde_json::from_str(&agent.pegel(&["values", "-f", "json"]).stdout).expect("JSON");
    assert_eq!(values.as_array().map(Vec::len), Some(6));
    for line in agent.pegel(&["values", "-f", "ndjson"]).stdout.lines() {
        serde_json::from_str::<Value>(line).expect("JSON on every line");
    }
}

#[test]
fn a_signal_leaves_a_complete_file() {
    let agent = CannedAgent::start(StreamEnd::Hold);
    for signal in [Signal::INT, Signal::TERM] {
        let file = agent.home.join("log.json");
        let _ = fs::remove_file(&file);
        let args = ["track", "node_load1", "-F", "50", "-o", "log.json"];
        let process = ChildProcess::start(&mut agent.command(PEGEL.path(), &args));
        eventually("two steps are written", || {
            let text = fs::read_to_string(&file).unwrap_or_default();
            if text.matches("node_load1").count() == 2 {
                Ok(())
            } else {
                Err(text)
            }
        });
        process.signal(signal);
        let finished = process.wait(BOUND);
        assert_ok(&finished);
        assert_eq!(finished.stdout, "");
        let text = fs::read_to_string(&file).expect("the file");
        let steps: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(steps.as_array().map(Vec::len), Some(2), "{text}");
    }
}

#[test]
fn a_lost_agent_leaves_a_complete_file() {
    let agent = CannedAgent::start(StreamEnd::Close);
    let finished = agent.pegel(&["track", "node_load1", "-o", "log.json"]);
    assert_eq!(finished.code(), Some(3), "{finished}");
    assert_eq!(
        finished.stderr,
        "pegel: lost connection to the agent; log.json holds the values received so far\n"
    );
    let text = fs::read_to_string(agent.home.join("log.json")).expect("the file");
    assert_eq!(
        text,
        fs::read_to_string(golden("track_named.json")).expect("the golden file")
    );
}

#[test]
fn the_extension_selects_the_format() {
    let agent = CannedAgent::start(StreamEnd::Close);
    for (file, format) in [
        ("a.json", "json"),
        ("a.csv", "csv"),
        ("a.yml", "yaml"),
        ("a.dat", "md"),
        ("a.jsonl", "ndjson"),
    ] {
        assert_ok(&agent.pegel(&["list", "-o", file]));
        let text = fs::read_to_string(agent.home.join(file)).expect("the file");
        assert_eq!(
            text,
            fs::read_to_string(golden(&format!("list.{format}"))).expect("the golden file")
        );
    }
    assert_ok(&agent.pegel(&["list", "-o", "b.json", "-f", "txt"]));
    let text = fs::read_to_string(agent.home.join("b.json")).expect("the file");
    assert!(text.starts_with("# name doc type\n"), "{text}");
}

#[test]
fn patterns_select_series() {
    let agent = CannedAgent::start(StreamEnd::Close);
    let listed = agent.pegel(&["list", "--match", "strace*"]);
    assert!(
        listed.stdout.contains("List of pegel metrics (2 of 6)"),
        "{listed}"
    );
    let values = agent.pegel(&["values", "--match", "node_load*", "-f", "txt"]);
    assert_eq!(
        values.stdout,
        "# name ts value\nnode_load1 1667486718 0.25\n"
    );
    let got = agent.pegel(&[
        "get",
        "strace_size_total",
        "--match",
        "*write*",
        "-f",
        "csv",
    ]);
    assert_eq!(
        got.stdout,
        "name,ts,value\n\"strace_size_total{scall=\"\"write\"\"}\",1667486718.5,0\n"
    );
    let tracked = agent.pegel(&["track", "--match", "node_load*", "-f", "csv"]);
    assert_eq!(
        tracked.stdout,
        "name,ts,value\nnode_load1,1667486718,0.25\nnode_load1,1667486719,0.5\n"
    );
}

#[test]
fn names_may_be_globs_and_matchers_and_patterns_may_be_repeated() {
    let agent = CannedAgent::start(StreamEnd::Close);
    let names = |args: &[&str]| -> Vec<String> {
        let finished = agent.pegel(&[args, &["-f", "txt"]].concat());
        assert_ok(&finished);
        let lines = finished.stdout.lines().skip(1);
        lines
            .map(|line| line.rsplitn(3, ' ').last().expect("a name").to_owned())
            .collect()
    };
    let write = "strace_size_total{scall=\"write\"}";
    let read = "strace_size_total{scall=\"read\"}";
    let load = "node_load1";
    assert_eq!(names(&["values", load]), [load]);
    assert_eq!(names(&["get", "node_l*"]), [load]);
    assert_eq!(names(&["get", "{scall!=\"\"}", load]), [load, read, write]);
    assert_eq!(names(&["values", "strace*{scall=~\"w.*\"}"]), [write]);
    assert_eq!(
        names(&["values", "--match", "load", "--match", "wri"]),
        [load, write]
    );
    assert_eq!(
        names(&["get", "strace_size_total", "--match", "rea"]),
        [read]
    );
    let listed = agent.pegel(&["list", "strace_size_total", "-f", "csv"]);
    assert_ok(&listed);
    assert_eq!(listed.stdout.lines().count(), 3, "{listed}");
}

#[test]
fn a_tracked_name_without_series_has_its_exit_code() {
    let agent = CannedAgent::start(StreamEnd::Hold);
    let args = ["track", "node_load1,node_lod5", "-o", "log.json"];
    let process = ChildProcess::start(&mut agent.command(PEGEL.path(), &args));
    let file = agent.home.join("log.json");
    eventually("a step is written", || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.contains("node_load1").then_some(()).ok_or(text)
    });
    process.signal(Signal::INT);
    let finished = process.wait(BOUND);
    assert_eq!(finished.code(), Some(5), "{finished}");
    let expected = "pegel: no series named node_lod5; did you mean node_load1?\n\
                    pegel: no series appeared for node_lod5\n";
    assert_eq!(finished.stderr, expected);
}

#[test]
fn exit_codes_and_messages() {
    let agent = CannedAgent::start(StreamEnd::Close);
    for (args, code, message) in [
        (
            vec!["values", "--match", "nope*"],
            4,
            "pegel: no series matches nope*; `pegel list` lists all\n",
        ),
        (
            vec!["list", "--match", "nope*"],
            4,
            "pegel: no series matches nope*; `pegel list` lists all\n",
        ),
        (
            vec!["get", "nope"],
            4,
            "pegel: no series named nope; `pegel list` lists all\n",
        ),
        (
            vec!["track", "nope"],
            4,
            "pegel: no series named nope; `pegel list` lists all\n",
        ),
        (
            vec!["get", "node_lod1,strace_sizes_total"],
            4,
            "pegel: no series named node_lod1; did you mean node_load1?\n\
             pegel: no series named strace_sizes_total; did you mean strace_size_total?\n",
        ),
        (
            vec!["values", "strace_size_total{scall=\"raed\"}"],
            4,
            "pegel: no series matches strace_size_total{scall=\"raed\"}; scall is read, write\n",
        ),
        (
            vec!["get", "node_load1", "--match", "strace"],
            4,
            "pegel: no series of these names matches strace\n",
        ),
        (
            vec!["track", "memfree"],
            4,
            "pegel: no series named memfree; did you mean node_memory_MemFree_bytes?\n",
        ),
        (vec!["get", ","], 2, "pegel: no name given\n"),
        (
            vec!["track", "-F", "1001"],
            2,
            "pegel: -F 1001: expected a frequency in Hz, greater than 0 and at most 1000\n",
        ),
        (
            vec!["values", "--match", ""],
            2,
            "pegel: --match \"\": the pattern is empty\n",
        ),
    ] {
        let finished = agent.pegel(&args);
        assert_eq!(
            (finished.code(), finished.stderr.as_str()),
            (Some(code), message),
            "{args:?}"
        );
        assert_eq!(finished.stdout, "", "{args:?}");
    }
    for args in [
        vec!["get"],
        vec!["frobnicate"],
        vec!["list", "-f", "xml"],
        vec!["agent", "--once", "--until-pid", "1"],
    ] {
        assert_eq!(agent.pegel(&args).code(), Some(2), "{args:?}");
    }
    let partly = agent.pegel(&["get", "node_load1,nope", "-f", "txt"]);
    assert_eq!(partly.code(), Some(5), "{partly}");
    assert_eq!(
        partly.stderr,
        "pegel: no series named nope; `pegel list` lists all\n"
    );
    assert_eq!(partly.stdout.lines().count(), 2, "{partly}");
    let unwritable = agent.pegel(&["list", "-o", "no/such/dir/f"]);
    assert_eq!(unwritable.code(), Some(1), "{unwritable}");
    assert!(
        unwritable
            .stderr
            .starts_with("pegel: cannot write no/such/dir/f: No such file"),
        "{unwritable}"
    );
}

#[test]
fn without_an_agent_the_message_explains_how_to_start_one() {
    let home = TempDir::new();
    let socket = home.join("none.sock");
    for args in [["list", "-u"], ["values", "-u"], ["track", "-u"]] {
        let mut command = PEGEL.command(&home);
        command.args(args).arg(&socket);
        let finished = ChildProcess::start(&mut command).wait(BOUND);
        assert_eq!(finished.code(), Some(3), "{finished}");
        let expected = format!(
            "pegel: no agent is listening on {}\nhint: start one with `pegel agent`, or pass its socket with -u or $PEGEL_SOCKET\n",
            socket.display()
        );
        assert_eq!(finished.stderr, expected);
    }
}

#[test]
fn nothing_is_sent_to_a_socket_of_another_user() {
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to be another user").is_none()
        || need("python3").is_none()
    {
        return;
    }
    // SO_PEERCRED reports the user that called listen(): here neither root nor this user.
    let script = "\
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.setuid(65534)
s.listen()
print('ready', flush=True)
c, _ = s.accept()
print(repr(c.recv(10)), flush=True)
";
    let home = TempDir::new();
    let socket = home.join("push.sock");
    let server = ChildProcess::start(Command::new("python3").args(["-c", script]).arg(&socket));
    eventually("the other user listens", || {
        let said = server.stdout();
        if said == "ready\n" { Ok(()) } else { Err(said) }
    });
    let mut client = PEGEL.command(&home);
    client.arg("list").arg("-u").arg(&socket);
    let finished = ChildProcess::start(&mut client).wait(BOUND);
    assert_eq!(finished.code(), Some(1), "{finished}");
    let expected = format!(
        "pegel: {} is served by user 65534 (process ",
        socket.display()
    );
    assert!(finished.stderr.starts_with(&expected), "{finished}");
    assert_eq!(
        server.wait(BOUND).stdout,
        "ready\nb''\n",
        "nothing was sent"
    );
}

#[test]
fn a_closed_pipe_exits_without_a_message() {
    let agent = CannedAgent::start(StreamEnd::Close);
    let script = format!("{PEGEL} values | true; {PEGEL} completions bash | head -n 1 >/dev/null");
    let finished = ChildProcess::start(&mut agent.command("/bin/sh", &["-c", &script])).wait(BOUND);
    assert_ok(&finished);
}

#[test]
fn version_completions_and_manual() {
    let agent = CannedAgent::start(StreamEnd::Close);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        agent.pegel(&["version"]).stdout,
        format!("pegel {version}\n")
    );
    let json: Value =
        serde_json::from_str(&agent.pegel(&["version", "--json"]).stdout).expect("JSON");
    assert_eq!(
        (&json["name"], &json["version"]),
        (&json!("pegel"), &json!(version))
    );
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let finished = agent.pegel(&["completions", shell]);
        assert_ok(&finished);
        assert!(finished.stdout.contains("until-pid"), "{shell}");
    }
    assert_ok(&agent.pegel(&["man", "--dir", "man"]));
    let files = |section: &str| {
        let entries = fs::read_dir(agent.home.join("man").join(section)).expect("the directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names
            .map(|name| name.into_string().expect("UTF-8"))
            .collect();
        names.sort();
        names
    };
    assert_eq!(files("man5"), ["pegel.yaml.5"]);
    let pages = files("man1");
    let expected = [
        "agent",
        "alerts",
        "bundle",
        "completions",
        "config",
        "config-check",
        "config-init",
        "config-show",
        "doctor",
        "export",
        "get",
        "grafana",
        "grafana-provision",
        "hook",
        "inputs",
        "inputs-disable",
        "inputs-enable",
        "job",
        "jobs",
        "list",
        "man",
        "mark",
        "nodes",
        "prometheus-config",
        "push",
        "query",
        "record",
        "record-cat",
        "record-check",
        "record-info",
        "record-trace",
        "rules",
        "rules-check",
        "rules-list",
        "rules-test",
        "run",
        "session",
        "session-credentials",
        "session-start",
        "session-status",
        "session-stop",
        "snapshot",
        "stuck",
        "top",
        "track",
        "tree",
        "tree-init",
        "tunnel",
        "values",
        "version",
        "view",
    ];
    let mut expected: Vec<String> = expected
        .iter()
        .map(|name| format!("pegel-{name}.1"))
        .collect();
    expected.push("pegel.1".into());
    expected.sort();
    assert_eq!(pages, expected);
}

#[test]
fn help_is_stable() {
    let agent = CannedAgent::start(StreamEnd::Close);
    for command in [
        "",
        "agent",
        "run",
        "job",
        "list",
        "values",
        "get",
        "query",
        "track",
        "top",
        "jobs",
        "nodes",
        "tree",
        "tree init",
        "stuck",
        "tunnel",
        "view",
        "push",
        "mark",
        "alerts",
        "rules",
        "rules check",
        "rules test",
        "rules list",
        "inputs",
        "inputs enable",
        "inputs disable",
        "session",
        "session start",
        "session status",
        "session stop",
        "session credentials",
        "snapshot",
        "record",
        "record info",
        "record check",
        "record cat",
        "record trace",
        "hook",
        "bundle",
        "grafana provision",
        "prometheus-config",
        "config",
        "config init",
        "config check",
        "config show",
        "doctor",
        "version",
        "completions",
        "man",
    ] {
        let mut args: Vec<&str> = command.split_whitespace().collect();
        args.push("--help");
        let finished = agent.pegel(&args);
        assert_ok(&finished);
        assert!(
            finished.stdout.contains("\nExamples:\n  pegel"),
            "{finished}"
        );
        let name = match command {
            "" => "pegel".to_owned(),
            command => command.replace(' ', "-"),
        };
        assert_golden(golden(&format!("help/{name}.txt")), &finished.stdout);
    }
}

#[test]
fn tau_metric_client_keeps_its_formats() {
    let agent = CannedAgent::start(StreamEnd::Close);
    for format in ["md", "json", "yaml", "txt"] {
        for (name, args) in [
            ("list", vec!["-l"]),
            ("values", vec!["-v"]),
            ("get", vec!["-g", EXEC]),
        ] {
            let mut args = args;
            args.extend(["-f", format]);
            let finished = agent.tau(&args);
            assert_ok(&finished);
            assert_golden(golden(&format!("tau/{name}.{format}")), &finished.stdout);
        }
    }
    let help = agent.tau(&["-h"]);
    assert_ok(&help);
    assert_golden(golden("tau/help.txt"), &help.stdout);
    assert_eq!(
        agent.tau(&["-l"]).stdout,
        agent.tau(&["--list", "--format=md"]).stdout
    );
    assert_eq!(
        agent.tau(&["-lf", "json"]).stdout,
        agent.tau(&["-l", "-f", "json"]).stdout
    );
    let both = agent.tau(&[
        "-g",
        "node_load1,queue.depth{a=\"1,2\",b=\"x y\"}",
        "-f",
        "txt",
    ]);
    assert_eq!(both.stdout.lines().count(), 3, "{both}");
}

/// The examples in the manual of TAU's client, verbatim.
#[test]
fn tau_metric_client_prints_what_its_manual_shows() {
    let agent = CannedAgent::start(StreamEnd::Close);
    let listed = agent.tau(&["-l"]).stdout;
    let shown = "\
╔═════════════════════════════════════════════════════════════════════╗
║                 List of tau_metric_exporter Metrics                 ║
╚═════════════════════════════════════════════════════════════════════╝

";
    assert!(listed.starts_with(shown), "{listed}");
    let item = " • tau_metric_proxy_run_total{operation=\"exec\"} (TAU_METRIC_COUNTER) :\n   Number of launch with the tau_metric_proxy_run command\n";
    assert!(listed.contains(item), "{listed}");
    let json = "    {\n        \"name\": \"tau_metric_proxy_run_total{operation=\\\"exec\\\"}\",\n        \"doc\": \"Number of launch with the tau_metric_proxy_run command\",\n        \"type\": \"TAU_METRIC_COUNTER\"\n    }";
    assert!(agent.tau(&["-l", "-f", "json"]).stdout.contains(json));
    let text = "tau_metric_proxy_run_total{operation=\"exec\"} \"Number of launch with the tau_metric_proxy_run command\" TAU_METRIC_COUNTER\n";
    let listed = agent.tau(&["-l", "-f", "txt"]).stdout;
    assert!(
        listed.starts_with("# name doc type\n") && listed.contains(text),
        "{listed}"
    );
    let got = agent.tau(&["-g", EXEC, "-f", "json"]).stdout;
    let expected = "[\n    {\n        \"name\": \"tau_metric_proxy_run_total{operation=\\\"exec\\\"}\",\n        \"ts\": 1667486717.483,\n        \"value\": 9.0\n    }\n]\n";
    assert_eq!(got, expected);
}

#[test]
fn tau_metric_client_tracks_to_a_file() {
    let agent = CannedAgent::start(StreamEnd::Hold);
    let args = [
        "-T",
        "strace_size_total{scall=\"read\"}",
        "-o",
        "log.json",
        "-F",
        "10",
    ];
    let process = ChildProcess::start(&mut agent.command(agent.tau_path(), &args));
    let file = agent.home.join("log.json");
    eventually("two steps are written", || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        if text.contains("10343854648") {
            Ok(())
        } else {
            Err(text)
        }
    });
    process.signal(Signal::INT);
    let finished = process.wait(BOUND);
    assert_ok(&finished);
    assert_eq!(
        finished.stdout,
        "Logging in log.json interrupt with CTRL + C when done...\n"
    );
    let text = fs::read_to_string(&file).expect("the file");
    let step = "[\n  [\n    {\n      \"name\": \"strace_size_total{scall=\\\"read\\\"}\",\n      \"ts\": 1667488121.36,\n      \"value\": 10315325653\n    }\n  ],\n  [\n";
    assert!(text.starts_with(step), "{text}");
    let steps: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(steps.as_array().map(Vec::len), Some(2));
}

#[test]
fn tau_metric_client_keeps_its_error_messages() {
    let agent = CannedAgent::start(StreamEnd::Close);
    for (args, message) in [
        (
            vec!["-f", "xml", "-l"],
            "argument -f/--format: invalid choice: 'xml' (choose from 'md', 'json', 'yaml', 'txt')",
        ),
        (vec![], "one of the arguments -l -v -g -t -T is required"),
    ] {
        let finished = agent.tau(&args);
        assert_eq!(finished.code(), Some(2), "{finished}");
        assert!(
            finished
                .stderr
                .starts_with("usage: tau_metric_client [-h] [-o OUTPUT]"),
            "{finished}"
        );
        assert!(
            finished
                .stderr
                .ends_with(&format!("tau_metric_client: error: {message}\n")),
            "{finished}"
        );
    }
    assert_eq!(agent.tau(&["--nonsense"]).code(), Some(2));
    assert_eq!(agent.tau(&["-l", "-v"]).code(), Some(2));
    assert_eq!(agent.tau(&["-g", "nope"]).code(), Some(4));
}
