//! Start and stop of the agent, and reasons to refuse a start.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{
    AgentAddress, AgentProcess, ChildProcess, ExporterReadings, FinishedProcess, TempDir, fixture,
    get, need_hardware,
};
use rustix::process::Signal;
use serde_json::Value;

use crate::PEGEL;

#[test]
fn the_first_sample_is_stored_before_the_agent_is_ready() {
    let agent = PEGEL.agent().start();
    let readings = ExporterReadings::parse_prometheus(agent.get("/metrics").text());
    assert!(readings.value("node_load1") >= 0.0);
    assert!(
        !agent.samples("node_load1").is_empty(),
        "it is stored as well"
    );
    assert_eq!(agent.get("/healthz").status, 200);
    agent.assert_conserved();
}

#[test]
fn the_endpoint_file_lists_every_address() {
    let agent = PEGEL
        .agent()
        .listen(&["127.0.0.1:0", "127.0.0.1:0"])
        .args(&["--node", "n1"])
        .start();
    let json = &agent.endpoint.json;
    assert_eq!(json["pid"], agent.pid());
    assert_eq!(json["node"], "n1");
    assert_eq!(json["socket"], agent.socket.to_str().expect("UTF-8"));
    assert_eq!(json["dir"], agent.dir.to_str().expect("UTF-8"));
    assert_eq!(
        agent.endpoint.http.len(),
        2,
        "lists are in the order of the options"
    );
    for address in agent.endpoint.http.iter().chain([&agent.unix()]) {
        assert_eq!(
            get(address, "/healthz").expect("an answer").status,
            200,
            "{address}"
        );
    }
    agent.assert_conserved();
}

#[test]
fn sigterm_and_sigint_end_it_cleanly() {
    for signal in [Signal::TERM, Signal::INT] {
        let home = TempDir::new();
        let agent = PEGEL
            .agent()
            .dir(home.join("store"))
            .socket(home.join("s/push.sock"))
            .start();
        let seen = agent.samples("node_load1");
        agent.assert_conserved();
        let (endpoint, socket) = (agent.dir.join("endpoint.json"), agent.socket.clone());
        assert!(endpoint.exists() && socket.exists());
        agent.signal(signal);
        let finished = agent.wait();
        assert_eq!(finished.code(), Some(0), "{signal:?}: {finished}");
        assert!(!endpoint.exists(), "endpoint.json is removed");
        assert!(!socket.exists(), "the socket is removed");

        // The next agent on that directory has all samples.
        let again = PEGEL.agent().dir(home.join("store")).start();
        seen.assert_all_in(&again.samples("node_load1"));
        again.assert_conserved();
    }
}

#[test]
fn once_samples_stores_prints_and_exits() {
    let home = TempDir::new();
    let finished = PEGEL
        .agent()
        .dir(home.join("store"))
        .env("PEGEL_ROOT", fixture("basic"))
        .arg("--once")
        .run();
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert!(finished.stdout.contains("node_load1"), "{finished}");
    assert!(!home.join("store/endpoint.json").exists());

    let agent = PEGEL
        .agent()
        .dir(home.join("store"))
        .args(&["--level", "0"])
        .start();
    assert!(
        !agent.samples("node_load1").is_empty(),
        "what --once sampled is stored"
    );
    agent.assert_conserved();
}

#[test]
fn until_pid_ends_with_that_process() {
    let other = ChildProcess::start(Command::new("sleep").arg("1000"));
    let pid = other.pid().to_string();
    let mut agent = PEGEL.agent().args(&["--until-pid", &pid]).start();
    assert!(!agent.has_ended());
    agent.assert_conserved();
    other.kill();
    let finished = agent.wait();
    assert_eq!(finished.code(), Some(0), "{finished}");
}

#[test]
fn until_pid_of_a_process_that_is_gone_is_an_error() {
    let other = ChildProcess::start(&mut Command::new("true"));
    let pid = other.pid().to_string();
    other.wait(Duration::from_secs(10));
    let finished = PEGEL.agent().args(&["--until-pid", &pid]).run();
    assert_ne!(finished.code(), Some(0), "{finished}");
    assert!(finished.stderr.contains(&pid), "{finished}");
}

/// Checks that a second agent was refused with the process ID of the first, which is not affected.
#[track_caller]
fn assert_refused(second: FinishedProcess, first: &AgentProcess) {
    assert_eq!(second.code(), Some(1), "{second}");
    let pid = first.pid().to_string();
    assert!(
        second.stderr.contains(&pid),
        "the message names {pid}: {second}"
    );
    for address in [first.http(), &first.unix()] {
        assert_eq!(get(address, "/healthz").expect("still there").status, 200);
    }
    let endpoint = fs::read_to_string(first.dir.join("endpoint.json")).expect("untouched");
    let endpoint: Value = serde_json::from_str(&endpoint).expect("JSON");
    assert_eq!(endpoint["pid"], first.pid());
    first.assert_conserved();
}

#[test]
fn a_second_agent_on_the_same_directory_is_refused() {
    let first = PEGEL.agent().start();
    let second = PEGEL.agent().dir(&first.dir).run();
    assert_refused(second, &first);
}

#[test]
fn a_second_agent_on_the_same_socket_is_refused() {
    let first = PEGEL.agent().start();
    let second = PEGEL.agent().socket(&first.socket).run();
    assert_refused(second, &first);
}

#[test]
fn a_socket_left_by_a_killed_agent_is_taken_over() {
    let home = TempDir::new();
    let first = PEGEL
        .agent()
        .dir(home.join("store"))
        .socket(home.join("push.sock"))
        .start();
    first.kill();
    assert!(home.join("push.sock").exists(), "nobody could remove it");
    let second = PEGEL
        .agent()
        .dir(home.join("store"))
        .socket(home.join("push.sock"))
        .start();
    assert_eq!(
        get(&second.unix(), "/healthz").expect("an answer").status,
        200
    );
    second.assert_conserved();
}

#[test]
fn a_squatted_socket_path_is_refused_and_its_owner_named() {
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to make another user's file").is_none() {
        return;
    }
    let nobody = 65534;
    for kind in ["file", "directory"] {
        let home = TempDir::new();
        let place = home.join("run");
        fs::create_dir(&place).expect("a directory");
        match kind {
            "file" => {
                fs::write(place.join("push.sock"), "").expect("a file");
                std::os::unix::fs::chown(place.join("push.sock"), Some(nobody), None)
                    .expect("root");
            }
            _ => std::os::unix::fs::chown(&place, Some(nobody), None).expect("root"),
        }
        let finished = PEGEL.agent().socket(place.join("push.sock")).run();
        assert_eq!(finished.code(), Some(1), "{kind}: {finished}");
        assert!(
            finished.stderr.contains("65534") || finished.stderr.contains("nobody"),
            "{kind}: the message names the owner: {finished}"
        );
    }
}

#[test]
fn a_busy_port_is_refused_and_its_holder_named() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = holder.local_addr().expect("bound").to_string();
    let finished = PEGEL.agent().listen(&[&address]).run();
    assert_eq!(finished.code(), Some(1), "{finished}");
    let pid = std::process::id().to_string();
    assert!(finished.stderr.contains(&address), "{finished}");
    assert!(
        finished.stderr.contains(&pid),
        "the message names {pid}: {finished}"
    );
}

#[test]
fn port_search_takes_the_next_free_port() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let busy = holder.local_addr().expect("bound");
    let agent = PEGEL
        .agent()
        .listen(&[&busy.to_string()])
        .arg("--port-search")
        .start();
    let AgentAddress::Tcp(found) = *agent.http() else {
        panic!("TCP")
    };
    assert!(found.port() > busy.port(), "{found} comes after {busy}");
    assert_eq!(agent.get("/healthz").status, 200);
    agent.assert_conserved();
}

#[test]
fn pegel_root_selects_another_machine() {
    let agent = PEGEL.agent().env("PEGEL_ROOT", fixture("basic")).start();
    let loadavg = fs::read_to_string(fixture("basic").join("proc/loadavg")).expect("the fixture");
    let expected: f64 = loadavg
        .split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .expect("a load");
    let readings = ExporterReadings::parse_prometheus(agent.get("/metrics").text());
    assert_eq!(readings.value("node_load1"), expected);
    agent.assert_conserved();
}

#[test]
fn the_store_is_private() {
    let agent = PEGEL.agent().start();
    for path in [&agent.dir, agent.socket.parent().expect("a directory")] {
        let mode = fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
    }
    agent.assert_conserved();
}
