//! Faults that the agent survives (a full or read-only disk, `kill -9` under load), and one that
//! ends it (the end of a thread).

use std::fs;
use std::time::{Duration, Instant};

use pegel_testkit::{
    AgentProcess, Rng, SmallDisk, StoredSamples, TempDir, eventually, get, now_seconds, post,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::Value;

use crate::PEGEL;

/// Returns the reason why the store cannot write, or the status of a healthy agent.
fn is_degraded(agent: &AgentProcess) -> Result<Value, Value> {
    let status = agent.status();
    match status["degraded"].as_bool() {
        Some(true) => Ok(status["store"]["degraded"].clone()),
        Some(false) => Err(status),
        None => panic!("no `degraded` in {status}"),
    }
}

fn eventually_well(agent: &AgentProcess) {
    eventually("it has recovered", || match is_degraded(agent) {
        Ok(reason) => Err(reason),
        Err(_) => Ok(()),
    });
}

#[test]
fn a_full_disk_degrades_it_until_there_is_room() {
    let Some(disk) = SmallDisk::mount("16m") else {
        return;
    };
    let dir = disk.path.join("store");
    let running = PEGEL.agent().dir(&dir).args(&["--rate", "50ms"]).start();
    disk.fill();
    eventually("it says that it is degraded", || is_degraded(&running));
    let count = running.samples("node_load1").len();
    eventually("it goes on sampling", || {
        let now = running.samples("node_load1").len();
        if now > count + 3 { Ok(()) } else { Err(now) }
    });
    let health = get(running.http(), "/healthz").expect("it answers");
    assert_eq!(health.status, 503, "{}", health.text());
    running.assert_conserved();
    disk.free_space();
    eventually_well(&running);
    let seen = running.samples("node_load1");
    running.assert_conserved();
    running.kill();
    // Samples taken while it could not write are stored too.
    let again = PEGEL.agent().dir(&dir).start();
    seen.assert_all_in(&again.samples("node_load1"));
    again.assert_conserved();
}

#[test]
fn a_start_on_a_full_disk_is_degraded_until_there_is_room() {
    let Some(disk) = SmallDisk::mount("16m") else {
        return;
    };
    assert_starts_degraded(&disk, SmallDisk::fill, SmallDisk::free_space);
}

#[test]
fn a_start_on_a_read_only_disk_is_degraded_until_it_can_write() {
    let Some(disk) = SmallDisk::mount("16m") else {
        return;
    };
    // A file system with a file open for writing cannot become read-only: it is remounted between
    // two runs.
    assert_starts_degraded(&disk, |disk| disk.remount("ro"), |disk| disk.remount("rw"));
}

/// Checks that stored samples can be read, and that samples taken meanwhile are stored later.
fn assert_starts_degraded(disk: &SmallDisk, spoil: fn(&SmallDisk), repair: fn(&SmallDisk)) {
    let dir = disk.path.join("store");
    let first = PEGEL.agent().dir(&dir).start();
    let before = first.samples("node_load1");
    assert_eq!(first.stop().code(), Some(0));
    spoil(disk);
    let running = PEGEL
        .agent()
        .dir(&dir)
        .args(&["--rate", "50ms"])
        .start_without_endpoint();
    eventually("it says that it is degraded", || is_degraded(&running));
    before.assert_all_in(&running.samples("node_load1"));
    running.assert_conserved();
    assert!(!dir.join("endpoint.json").exists());
    repair(disk);
    eventually_well(&running);
    eventually("it says where it can be reached", || {
        fs::read_to_string(dir.join("endpoint.json"))
    });
    // What was sampled while it was degraded is in no log: it survives once it is in a block.
    eventually("the samples are in a block", || {
        let files = fs::read_dir(dir.join("blocks")).expect("a directory");
        let names: Vec<_> = files.flatten().map(|file| file.file_name()).collect();
        let is_block = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".blk");
        names.iter().any(is_block).then_some(()).ok_or(names)
    });
    let seen = running.samples("node_load1");
    assert!(seen.len() > before.len(), "it sampled meanwhile");
    running.assert_conserved();
    running.kill();
    let again = PEGEL.agent().dir(&dir).start();
    seen.assert_all_in(&again.samples("node_load1"));
    again.assert_conserved();
}

#[test]
fn readable_samples_survive_kill_9() {
    const WATCHED: &str = "node_load*&match=node_context_switches_total&match=node_disk_*";
    let mut rng = Rng::from_env();
    let home = TempDir::new();
    let dir = home.join("store");
    let mut remembered = StoredSamples::default();
    for _ in 0..6 {
        // Samples go to blocks after a second, so that kills hit sealing too.
        let running = PEGEL
            .agent()
            .dir(&dir)
            .config("rate: 5ms\nkeep: {memory: 1s}\n")
            .start();
        remembered.assert_all_in(&running.samples(WATCHED));
        let deadline = Instant::now() + Duration::from_millis(300 + rng.below(1_500));
        while Instant::now() < deadline {
            remembered.extend(running.samples(WATCHED));
        }
        running.assert_conserved();
        running.kill();
    }
    assert!(
        remembered.len() > 1_000,
        "only {} samples were read",
        remembered.len()
    );
    let last = PEGEL.agent().dir(&dir).start();
    remembered.assert_all_in(&last.samples(WATCHED));
    let status = last.status();
    assert!(
        status["store"]["set_aside"]
            .as_array()
            .expect("a list")
            .is_empty(),
        "{status}"
    );
    last.assert_conserved();
}

#[test]
fn nothing_is_acknowledged_after_the_stores_directory_was_removed() {
    let home = TempDir::new();
    let dir = home.join("store");
    let running = PEGEL.agent().dir(&dir).args(&["--rate", "50ms"]).start();
    let body = r#"{"metric":"depth","timestamp":"TIME","value":1,"tags":{"by":"test"}}"#;
    let put = || {
        let body = body.replace("\"TIME\"", &now_seconds().to_string());
        let answer = post(running.http(), "/api/put?sync", &[], body.as_bytes());
        answer.expect("an answer").status
    };
    assert_eq!(put(), 204);
    // The agent may create a file while its directory is being removed.
    eventually("the directory is removed", || fs::remove_dir_all(&dir));
    let acknowledged = (0..50).filter(|_| put() < 300).count();
    assert_eq!(acknowledged, 0, "points that nobody will find again");
    let reason = eventually("it says that it is degraded", || is_degraded(&running));
    assert!(
        reason.to_string().contains("removed or replaced"),
        "{reason}"
    );
    let health = get(running.http(), "/healthz").expect("it answers");
    assert_eq!(health.status, 503, "{}", health.text());
    assert!(
        !dir.join("log").exists(),
        "a directory that is not locked is left alone"
    );
    running.assert_conserved();
}

/// Writes to every eventfd of the agent: its statsd threads treat that as the signal to end.
fn ring_all_events(agent: &AgentProcess) {
    let pid = Pid::from_raw(agent.pid().cast_signed()).expect("a process");
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("the agent runs");
    let links = fs::read_dir(format!("/proc/{}/fd", agent.pid())).expect("the agent runs");
    for link in links.filter_map(Result::ok) {
        let target = fs::read_link(link.path()).unwrap_or_default();
        if target.to_string_lossy() != "anon_inode:[eventfd]" {
            continue;
        }
        let number = link.file_name().into_string().expect("a number");
        let number = number.parse().expect("a number");
        let event = pidfd_getfd(&process, number, PidfdGetfdFlags::empty());
        let event = event.expect("its parent may take it");
        rustix::io::write(&event, &1_u64.to_ne_bytes()).expect("written");
    }
}

#[test]
fn a_thread_that_ends_unexpectedly_ends_the_agent_with_status_1() {
    let agent = PEGEL.agent().start();
    ring_all_events(&agent);
    let finished = agent.wait();
    assert_eq!(finished.code(), Some(1), "{finished}");
    assert!(
        finished
            .stderr
            .contains("the agent cannot continue: thread statsd"),
        "{finished}"
    );
    assert!(finished.stderr.contains("ended unexpectedly"), "{finished}");
}
