//! The life of the agent as a process: start, stop, refusals, faults, and what survives `kill -9`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pegel_testkit::{
    Address, AgentBuilder, AgentProcess, Finished, Process, Readings, Rng, TempDir, eventually,
    get, need, need_hardware,
};
use rustix::process::Signal;
use serde_json::Value;

const PEGEL: &str = env!("CARGO_BIN_EXE_pegel");
const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/basic");

fn agent() -> AgentBuilder {
    AgentBuilder::new(PEGEL)
}

/// Values by series and time, bit for bit.
type Samples = BTreeMap<(String, i64), u64>;

/// Every stored sample of the series that match.
fn samples(agent: &AgentProcess, matching: &str) -> Samples {
    let answer = agent
        .get(&format!("/api/v1/range?match={matching}&start=-1h"))
        .json();
    let mut samples = BTreeMap::new();
    for series in answer.as_array().expect("a list of series") {
        let text = format!("{}{}", series["name"], series["labels"]);
        for point in series["points"].as_array().expect("a list of points") {
            let time = point[0].as_i64().expect("milliseconds");
            // What is not finite is null in JSON.
            let value = point[1].as_f64().unwrap_or(f64::NAN).to_bits();
            samples.insert((text.clone(), time), value);
        }
    }
    samples
}

#[test]
fn the_first_sample_is_there_when_the_agent_says_that_it_is_ready() {
    let agent = agent().start();
    let readings = Readings::parse_prometheus(agent.get("/metrics").text());
    assert!(readings.value("node_load1") >= 0.0);
    assert!(
        !samples(&agent, "node_load1").is_empty(),
        "it is stored as well"
    );
    assert!(
        agent.ready_after < Duration::from_secs(5),
        "{:?}",
        agent.ready_after
    );
    assert_eq!(agent.get("/healthz").status, 200);
    agent.assert_conserved();
}

#[test]
fn the_endpoint_file_says_where_everything_is() {
    let agent = agent()
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
        let agent = agent()
            .dir(home.join("store"))
            .socket(home.join("s/push.sock"))
            .start();
        let seen = samples(&agent, "node_load1");
        agent.assert_conserved();
        let (endpoint, socket) = (agent.dir.join("endpoint.json"), agent.socket.clone());
        assert!(endpoint.exists() && socket.exists());
        agent.signal(signal);
        let finished = agent.wait();
        assert_eq!(finished.code(), Some(0), "{signal:?}: {finished}");
        assert!(!endpoint.exists(), "endpoint.json is removed");
        assert!(!socket.exists(), "the socket is removed");
        assert!(
            finished.took < Duration::from_secs(5),
            "{:?}",
            finished.took
        );

        // The next agent on that directory finds all of it, and one sample more: the last one.
        let again = AgentBuilder::new(PEGEL).dir(home.join("store")).start();
        let kept = samples(&again, "node_load1");
        assert!(seen.iter().all(|(key, value)| kept.get(key) == Some(value)));
        again.assert_conserved();
    }
}

#[test]
fn once_samples_stores_prints_and_exits() {
    let home = TempDir::new();
    let finished = agent()
        .dir(home.join("store"))
        .env("PEGEL_ROOT", FIXTURE)
        .arg("--once")
        .run();
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert!(finished.stdout.contains("node_load1"), "{finished}");
    assert!(!home.join("store/endpoint.json").exists());

    let agent = agent()
        .dir(home.join("store"))
        .args(&["--level", "0"])
        .start();
    assert!(
        !samples(&agent, "node_load1").is_empty(),
        "what --once sampled is stored"
    );
    agent.assert_conserved();
}

#[test]
fn until_pid_ends_with_that_process() {
    let other = Process::start(Command::new("sleep").arg("1000"));
    let pid = other.pid().to_string();
    let mut agent = agent().args(&["--until-pid", &pid]).start();
    assert!(!agent.has_ended());
    agent.assert_conserved();
    other.kill();
    let finished = agent.wait();
    assert_eq!(finished.code(), Some(0), "{finished}");
}

#[test]
fn until_pid_of_a_process_that_is_gone_is_an_error() {
    let other = Process::start(&mut Command::new("true"));
    let pid = other.pid().to_string();
    other.wait(Duration::from_secs(10));
    let finished = agent().args(&["--until-pid", &pid]).run();
    assert_ne!(finished.code(), Some(0), "{finished}");
    assert!(finished.stderr.contains(&pid), "{finished}");
}

/// A second agent was refused, with the number of the first, which did not notice.
#[track_caller]
fn assert_refused(second: Finished, first: &AgentProcess) {
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
    let first = agent().start();
    let second = agent().dir(&first.dir).run();
    assert_refused(second, &first);
}

#[test]
fn a_second_agent_on_the_same_socket_is_refused() {
    let first = agent().start();
    let second = agent().socket(&first.socket).run();
    assert_refused(second, &first);
}

#[test]
fn a_socket_left_by_a_killed_agent_is_taken_over() {
    let home = TempDir::new();
    let first = agent()
        .dir(home.join("store"))
        .socket(home.join("push.sock"))
        .start();
    first.kill();
    assert!(home.join("push.sock").exists(), "nobody could remove it");
    let second = agent()
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
        let finished = agent().socket(place.join("push.sock")).run();
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
    let finished = agent().listen(&[&address]).run();
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
    let agent = agent()
        .listen(&[&busy.to_string()])
        .arg("--port-search")
        .start();
    let Address::Tcp(found) = *agent.http() else {
        panic!("TCP")
    };
    assert!(found.port() > busy.port(), "{found} comes after {busy}");
    assert_eq!(agent.get("/healthz").status, 200);
    agent.assert_conserved();
}

#[test]
fn another_root_is_another_machine() {
    let agent = agent().env("PEGEL_ROOT", FIXTURE).start();
    let loadavg = fs::read_to_string(Path::new(FIXTURE).join("proc/loadavg")).expect("the fixture");
    let expected: f64 = loadavg
        .split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .expect("a load");
    let readings = Readings::parse_prometheus(agent.get("/metrics").text());
    assert_eq!(readings.value("node_load1"), expected);
    agent.assert_conserved();
}

/// A small file system of its own, unmounted when the test is over.
struct SmallDisk {
    path: PathBuf,
    _home: TempDir,
}

impl SmallDisk {
    /// None, with the skip noted, where the test may not mount.
    #[track_caller]
    fn mount(size: &str) -> Option<SmallDisk> {
        need("mount")?;
        let home = TempDir::new();
        let path = home.join("disk");
        fs::create_dir(&path).expect("a directory");
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size},mode=700"),
                "pegel-test",
            ])
            .arg(&path)
            .output()
            .is_ok_and(|output| output.status.success());
        need_hardware(mounted, "privilege to mount a file system")?;
        Some(SmallDisk { path, _home: home })
    }

    /// To the last byte: a `write` returns short, then fails.
    fn fill(&self) {
        let mut file = fs::File::create(self.path.join("filler")).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.path.join("filler")).expect("room again");
    }

    fn remount(&self, option: &str) {
        let mut command = Command::new("mount");
        let output = command
            .args(["-o", &format!("remount,{option}")])
            .arg(&self.path)
            .output();
        let output = output.expect("mount");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: an agent that a failed test left behind may still hold it for a moment.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

/// Why the store cannot write, or the status of an agent that is well.
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
    let running = agent().dir(&dir).args(&["--rate", "50ms"]).start();
    disk.fill();
    eventually("it says that it is degraded", || is_degraded(&running));
    let count = samples(&running, "node_load1").len();
    eventually("it goes on sampling", || {
        let now = samples(&running, "node_load1").len();
        if now > count + 3 { Ok(()) } else { Err(now) }
    });
    let health = get(running.http(), "/healthz").expect("it answers");
    assert_eq!(health.status, 503, "{}", health.text());
    running.assert_conserved();
    disk.make_room();
    eventually_well(&running);
    let seen = samples(&running, "node_load1");
    running.assert_conserved();
    running.kill();
    // What it sampled while it could not write is there as well.
    let again = agent().dir(&dir).start();
    assert_all_there(&seen, &samples(&again, "node_load1"));
    again.assert_conserved();
}

#[test]
fn a_start_on_a_full_disk_is_degraded_until_there_is_room() {
    let Some(disk) = SmallDisk::mount("16m") else {
        return;
    };
    let dir = disk.path.join("store");
    let first = agent().dir(&dir).start();
    let before = samples(&first, "node_load1");
    assert_eq!(first.stop().code(), Some(0));
    disk.fill();
    let running = agent().dir(&dir).start_without_endpoint();
    eventually("it says that it is degraded", || is_degraded(&running));
    assert_all_there(&before, &samples(&running, "node_load1"));
    running.assert_conserved();
    disk.make_room();
    eventually_well(&running);
    let seen = samples(&running, "node_load1");
    running.assert_conserved();
    running.kill();
    let again = agent().dir(&dir).start();
    assert_all_there(&seen, &samples(&again, "node_load1"));
    again.assert_conserved();
}

#[test]
fn a_start_on_a_read_only_disk_is_refused_and_changes_nothing() {
    let Some(disk) = SmallDisk::mount("16m") else {
        return;
    };
    let dir = disk.path.join("store");
    let first = agent().dir(&dir).start();
    let before = samples(&first, "node_load1");
    assert_eq!(first.stop().code(), Some(0));
    disk.remount("ro");
    let refused = agent().dir(&dir).run();
    assert_eq!(refused.code(), Some(1), "{refused}");
    let place = dir.to_str().expect("UTF-8");
    for word in [place, "Read-only file system"] {
        assert!(refused.stderr.contains(word), "{word}: {refused}");
    }
    disk.remount("rw");
    let again = agent().dir(&dir).start();
    assert_all_there(&before, &samples(&again, "node_load1"));
    again.assert_conserved();
}

/// Every remembered sample is found, with its value.
#[track_caller]
fn assert_all_there(remembered: &Samples, found: &Samples) {
    let wrong: Vec<String> = remembered
        .iter()
        .filter(|(key, value)| found.get(*key) != Some(*value))
        .map(|((series, time), value)| {
            let now = found
                .get(&(series.clone(), *time))
                .map(|bits| f64::from_bits(*bits));
            format!(
                "{series} at {time}: {} before, {now:?} now",
                f64::from_bits(*value)
            )
        })
        .collect();
    let shown = wrong
        .iter()
        .take(10)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        wrong.is_empty(),
        "{} of {} samples lost or changed:\n{shown}",
        wrong.len(),
        remembered.len()
    );
}

#[test]
fn what_could_be_read_survives_kill_9() {
    const WATCHED: &str = "node_load*&match=node_context_switches_total&match=node_disk_*";
    let mut rng = Rng::from_env();
    let home = TempDir::new();
    let dir = home.join("store");
    let mut remembered = Samples::new();
    for _ in 0..6 {
        // Samples go to blocks after a second, so that kills hit sealing too.
        let running = agent()
            .dir(&dir)
            .config("rate: 5ms\nkeep: {memory: 1s}\n")
            .start();
        assert_all_there(&remembered, &samples(&running, WATCHED));
        let deadline = Instant::now() + Duration::from_millis(300 + rng.below(1_500));
        while Instant::now() < deadline {
            remembered.extend(samples(&running, WATCHED));
        }
        running.assert_conserved();
        running.kill();
    }
    assert!(
        remembered.len() > 1_000,
        "only {} samples were read",
        remembered.len()
    );
    let last = agent().dir(&dir).start();
    assert_all_there(&remembered, &samples(&last, WATCHED));
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
fn the_store_is_private() {
    let agent = agent().start();
    for path in [&agent.dir, agent.socket.parent().expect("a directory")] {
        let mode = fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
    }
    agent.assert_conserved();
}
