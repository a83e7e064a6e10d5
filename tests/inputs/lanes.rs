//! Lanes: a program counts in shared memory, and every client of the agent reads the counts.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pegel_lane::{Counter, Gauge, Handle, LaneKind, LaneSeriesSpec, Points, ProcessLanes};
use pegel_testkit::{
    AgentProcess, ChildProcess, FinishedProcess, ForkedChild, OtherUser, TempDir, eventually, need,
    post, set_mode,
};
use rustix::process::Signal;

use crate::PEGEL;

struct LaneSetup {
    dir: TempDir,
    home: &'static ProcessLanes,
}

impl LaneSetup {
    fn new() -> LaneSetup {
        let dir = TempDir::new();
        fs::create_dir(dir.join("lanes")).expect("made");
        let home = ProcessLanes::in_directory(dir.join("lanes"));
        LaneSetup { dir, home }
    }

    fn agent(&self) -> AgentProcess {
        self.agent_with("")
    }

    fn agent_with(&self, yaml: &str) -> AgentProcess {
        PEGEL
            .agent()
            .dir(self.dir.join("store"))
            .env("PEGEL_LANES", self.dir.join("lanes"))
            .config(&format!("rate: 100ms\n{yaml}"))
            .start()
    }

    fn counter(&self, name: &str) -> Counter {
        Counter::create_in(self.home, &LaneSeriesSpec::new(LaneKind::Counter, name)).expect("made")
    }
}

/// Returns the current value as `pegel get` prints it.
fn value(agent: &AgentProcess, name: &str) -> Option<f64> {
    let got = agent.client(&["get", name, "-f", "json"]);
    let values: serde_json::Value = serde_json::from_str(&got.stdout).ok()?;
    values.as_array()?.first()?["value"].as_f64()
}

#[test]
fn queries_return_what_a_program_has_counted_so_far() {
    let scene = LaneSetup::new();
    let agent = scene.agent();
    let steps = scene.counter("steps_total");
    for count in 1..=20_u32 {
        steps.add(1);
        // At once, not at the next tick.
        assert_eq!(value(&agent, "steps_total"), Some(f64::from(count)));
    }
    let answer = agent.get("/metrics");
    let text = answer.text();
    assert!(text.contains("\nsteps_total 20\n"), "{text}");
    eventually("the store has it", || {
        let answer = agent.get("/api/v1/range?match=steps_total");
        let samples = answer.text().to_string();
        samples.contains(",20.0]").then_some(()).ok_or(samples)
    });
    let status = agent.status();
    assert_eq!(status["lanes"]["alive"], 1, "{}", status["lanes"]);
    let sender = &status["senders"][0];
    assert!(
        sender["sender"]
            .as_str()
            .is_some_and(|who| who.starts_with("uid ")),
        "{sender}"
    );
    // Each of the readings above found another value.
    assert!(
        sender["received"].as_u64().is_some_and(|count| count >= 20),
        "{sender}"
    );
    agent.assert_conserved();
    agent.stop();
}

#[test]
fn totals_are_exact_while_agent_and_programs_are_killed() {
    let scene = LaneSetup::new();
    let own = scene.counter("steps_total");
    let mut expected = 0;
    for round in 0..6_u32 {
        let agent = scene.agent();
        let home = scene.home;
        let children: Vec<ForkedChild> = (0..3)
            .map(|_| {
                ForkedChild::run(|| {
                    let spec = LaneSeriesSpec::new(LaneKind::Counter, "steps_total");
                    let steps = Counter::create_in(home, &spec).expect("made");
                    for _ in 0..1000 {
                        steps.add(1);
                    }
                    std::thread::sleep(Duration::from_secs(60));
                })
            })
            .collect();
        own.add(7);
        expected += 3007;
        eventually("all is counted", || {
            let found = value(&agent, "steps_total");
            (found == Some(f64::from(expected)))
                .then_some(())
                .ok_or(found)
        });
        match round % 3 {
            0 => {
                agent.kill();
                children.into_iter().for_each(ForkedChild::kill);
            }
            1 => {
                children.into_iter().for_each(ForkedChild::kill);
                agent.kill();
            }
            _ => {
                agent.freeze();
                children.into_iter().for_each(ForkedChild::kill);
                agent.signal(Signal::CONT);
                agent.stop();
            }
        }
        // Without an agent.
        own.add(1);
        expected += 1;
    }
    let agent = scene.agent();
    assert_eq!(value(&agent, "steps_total"), Some(f64::from(expected)));
    agent.assert_conserved();
}

#[test]
fn gauges_end_with_their_program_and_points_remain() {
    let scene = LaneSetup::new();
    let agent = scene.agent();
    let (home, said) = (scene.home, scene.dir.join("said"));
    let child = ForkedChild::run(|| {
        Gauge::create_in(home, &LaneSeriesSpec::new(LaneKind::Gauge, "depth"))
            .expect("made")
            .set(2.5);
        let points = Points::create_in(home, &LaneSeriesSpec::new(LaneKind::Point, "moments"))
            .expect("made");
        for at in 0..10 {
            points.add_at(f64::from(at), pegel_lane::now_ms() - 1000 + i64::from(at));
        }
        fs::write(&said, "x").expect("written");
        std::thread::sleep(Duration::from_secs(60));
    });
    eventually("set", || said.exists().then_some(()).ok_or("not yet"));
    assert_eq!(value(&agent, "depth"), Some(2.5));
    child.kill();
    eventually("the gauge is gone", || match value(&agent, "depth") {
        None => Ok(()),
        found => Err(found),
    });
    let samples = agent.samples("moments");
    let status = agent.status();
    let lane = status["inputs"].as_array().and_then(|inputs| {
        inputs
            .iter()
            .find(|input| input["input"] == "lane")
            .cloned()
    });
    let lane = lane.expect("an account");
    assert_eq!(
        (&lane["received"], &lane["kept"]),
        (&10.into(), &10.into()),
        "{samples:?}"
    );
    agent.assert_conserved();
}

#[test]
fn rules_and_limits_hold_for_lanes() {
    let scene = LaneSetup::new();
    let yaml = "limits: {series_per_sender: 5}\nrelabel:\n  - {name: \"noise*\", drop: true}\n  \
                - {name: \"flux.{rank:int}.{rest:any}\", rename: \"flux.{rest}\", label: {rank: \"{rank}\"}}\n";
    let agent = scene.agent_with(yaml);
    scene.counter("noise_total").add(1);
    scene.counter("flux.3.jobs").add(4);
    for at in 0..10 {
        scene.counter(&format!("c{at}_total")).add(1);
    }
    assert_eq!(value(&agent, "flux.jobs"), Some(4.0));
    assert_eq!(value(&agent, "noise_total"), None);
    let status = agent.status();
    let sender = &status["senders"][0];
    assert_eq!(sender["series"], 5, "{sender}");
    assert_eq!(sender["dropped"]["sender_limit"], 6, "{sender}");
    assert_eq!(sender["dropped"]["rule"], 1, "{sender}");
    agent.assert_conserved();
}

/// Returns all current values of one name, by their labels.
fn by_labels(agent: &AgentProcess, name: &str) -> BTreeMap<String, f64> {
    let values = agent.get(&format!("/api/v1/values?names={name}")).json();
    let values = values.as_array().expect("a list").iter();
    values
        .map(|one| {
            let text = one["name"].as_str().expect("a text");
            (
                text.replace(name, ""),
                one["value"].as_f64().expect("a number"),
            )
        })
        .collect()
}

/// Sends a statsd line, which needs no permission.
fn overwrite(agent: &AgentProcess, name: &str) {
    let udp = &agent.endpoint.json["statsd"]["udp"][0];
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let line = format!("{name}:7|c");
    let address = udp.as_str().expect("an address");
    socket.send_to(line.as_bytes(), address).expect("sent");
}

#[test]
fn no_other_input_overwrites_what_a_lane_counted() {
    let scene = LaneSetup::new();
    let agent = scene.agent();
    // One name belongs to a lane first, one to statsd.
    let first = scene.counter("first_total");
    first.add(100);
    assert_eq!(value(&agent, "first_total"), Some(100.0));
    overwrite(&agent, "first_total");
    overwrite(&agent, "second_total");
    eventually("statsd has it", || {
        let found = value(&agent, "second_total");
        (found == Some(7.0)).then_some(()).ok_or(found)
    });
    let second = scene.counter("second_total");
    second.add(100);
    // Points that arrive before the lane is read would be the first with this name.
    eventually("the lane has it", || {
        let found = value(&agent, "second_total");
        (found == Some(100.0)).then_some(()).ok_or(found)
    });
    for name in ["first_total", "second_total"] {
        let put = format!(
            r#"{{"metric":"{name}","timestamp":{},"value":7,"tags":{{}}}}"#,
            pegel_lane::now_ms()
        );
        let answer = post(agent.http(), "/api/put?details", &[], put.as_bytes());
        assert_eq!(answer.expect("asked").status, 200);
        let pushed = agent.client(&["push", "-t", "counter", &format!("{name}=7")]);
        assert_eq!(pushed.code(), Some(0), "{pushed}");
    }
    let expected: BTreeMap<String, f64> = [
        ("", 100.0),
        ("{input=\"push\"}", 7.0),
        ("{input=\"put\"}", 7.0),
        ("{input=\"statsd\"}", 7.0),
    ]
    .map(|(labels, value)| (labels.to_owned(), value))
    .into();
    let shows = |agent: &AgentProcess, name: &str| {
        eventually("the values", || {
            let found = by_labels(agent, name);
            (found == expected).then_some(()).ok_or(found)
        });
    };
    shows(&agent, "first_total");
    shows(&agent, "second_total");
    let stored = agent.get("/api/v1/range?match=first_total").json();
    let series = stored.as_array().expect("a list").iter();
    let plain = series.filter(|series| series["labels"] == serde_json::json!({}));
    for point in plain.flat_map(|series| series["points"].as_array().expect("points")) {
        assert_eq!(point[1], 100.0, "{stored}");
    }
    agent.kill();
    // The lines arrive before and after the lane is read.
    let agent = scene.agent();
    assert_eq!(value(&agent, "first_total"), Some(100.0));
    overwrite(&agent, "first_total");
    eventually("it goes on with its label", || {
        let found = by_labels(&agent, "first_total");
        let is_right =
            found.get("") == Some(&100.0) && found.get("{input=\"statsd\"}") == Some(&14.0);
        is_right.then_some(()).ok_or(found)
    });
    agent.assert_conserved();
}

/// Runs a script in a mount namespace of its own, in `home`, with a copy of the binary there: tests
/// mount over the directories in which lanes and sockets are by default.
fn run_among_own_mounts(unshare: &Path, home: &TempDir, script: &str) -> FinishedProcess {
    PEGEL.copy_to(&home.join("pegel"));
    let mut command = Command::new(unshare);
    command
        .args(["--mount", "sh", "-c", script])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("PEGEL_IMDS_URL", "none")
        .current_dir(home.path());
    ChildProcess::start(&mut command).wait(Duration::from_secs(60))
}

/// An agent with `allow_users` creates a lane directory for them.
#[test]
fn programs_of_allowed_users_are_counted() {
    let (Some(_), Some(unshare)) = (OtherUser::new(), need("unshare")) else {
        return;
    };
    let home = TempDir::new();
    set_mode(&home, 0o755);
    fs::write(home.join("pegel.yaml"), "allow_users: [65534]\n").expect("written");
    // Hides the machine's own lanes of root.
    let script = "
        mount -t tmpfs tmpfs /run && mount -t tmpfs -o mode=1777 tmpfs /dev/shm || exit 9
        ./pegel agent --config pegel.yaml --listen 127.0.0.1:0 --statsd udp:127.0.0.1:0 --socket push.sock --dir store 2>agent.log &
        for try in $(seq 400); do ./pegel list -u push.sock >/dev/null 2>&1 && break; sleep 0.05; done
        setpriv --reuid=65534 --regid=65534 --clear-groups ./pegel run -v -s -u push.sock -- true
        ./pegel get -u push.sock strace_hits_total -f csv | grep execve
        stat -c %a /dev/shm/pegel.0.guests
        kill $!; wait $!";
    let finished = run_among_own_mounts(&unshare, &home, script);
    let said = "the agent reads lanes in /dev/shm/pegel.0.guests";
    assert!(finished.stderr.contains(said), "{finished}");
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{finished}");
    assert!(
        lines[0].ends_with(",1") || lines[0].ends_with(",1.0"),
        "{finished}"
    );
    assert_eq!(lines[1], "1733");
}

/// Another user has taken the default names in `/dev/shm` and `/tmp`: agent, programs and commands
/// use the next ones.
#[test]
fn default_paths_taken_by_another_user_are_skipped() {
    let (Some(_), Some(unshare)) = (OtherUser::new(), need("unshare")) else {
        return;
    };
    let home = TempDir::new();
    // The working directory stays reachable below the new /tmp.
    let script = "
        mount -t tmpfs tmpfs /run && mount -t tmpfs -o mode=1777 tmpfs /dev/shm || exit 9
        mount -t tmpfs -o mode=1777 tmpfs /tmp || exit 9
        mkdir /dev/shm/pegel.0 /tmp/pegel-0 && chown 65534 /dev/shm/pegel.0 /tmp/pegel-0
        ./pegel agent --listen 127.0.0.1:0 --statsd udp:127.0.0.1:0 2>agent.log &
        for try in $(seq 400); do ./pegel list >/dev/null 2>&1 && break; sleep 0.05; done
        ./pegel run -s -- true
        ./pegel get strace_hits_total -f csv | grep execve
        ls -d /tmp/pegel-0.1/push.sock
        kill $!; wait $!
        cat agent.log";
    let finished = run_among_own_mounts(&unshare, &home, script);
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert!(
        lines[0].ends_with(",1") || lines[0].ends_with(",1.0"),
        "{finished}"
    );
    assert_eq!(lines[1], "/tmp/pegel-0.1/push.sock", "{finished}");
    for said in [
        "lanes: /dev/shm/pegel.0: it is not a directory of user 0",
        "/tmp/pegel-0 belongs to user 65534: the socket is /tmp/pegel-0.1/push.sock",
        "no home directory, /tmp/pegel-0 belongs to user 65534: the store is in /tmp/pegel-0.1/",
    ] {
        assert!(finished.stdout.contains(said), "{said} in {finished}");
    }
}
