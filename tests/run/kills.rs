//! Whoever is killed: the others go on, and what was counted stays.

use std::process::Command;
use std::time::Duration;

use pegel_testkit::{AgentBuilder, AgentProcess, Process, TempDir, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::wrapped::{BOUND, PEGEL, Way, compile, isolate};

fn hits(agent: &AgentProcess) -> f64 {
    let text = agent.get("/metrics").text().to_owned();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("strace_hits_total{scall=\"getppid\"} "));
    line.map_or(0.0, |value| value.parse().expect("a number"))
}

#[test]
fn when_the_one_who_counts_is_killed_the_program_goes_on() {
    for way in Way::counting() {
        let agent = AgentBuilder::new(PEGEL).start();
        let home = TempDir::new();
        let Some(program) = compile(&home, "steps", &[]) else {
            return;
        };
        let process = start(way, &agent, &home, &program, "marker");
        let helper = helper_by_marker(&home);
        let step = |name: &str| std::fs::write(home.join(name), "").expect("written");
        step("first");
        eventually("the first thousand", || match hits(&agent) {
            1000.0 => Ok(()),
            other => Err(other),
        });
        kill_process(helper, Signal::KILL).expect("ours");
        eventually("it is gone", || {
            match rustix::process::test_kill_process(helper) {
                Err(_) => Ok(()),
                Ok(()) => Err("it is there"),
            }
        });
        step("second");
        let finished = process.wait(BOUND);
        assert_eq!(finished.code(), Some(42), "{way:?}: {finished}");
        assert_eq!(hits(&agent), 1000.0, "{way:?}");
    }
}

#[test]
fn when_the_program_is_killed_its_counts_stay() {
    for way in Way::counting() {
        let agent = AgentBuilder::new(PEGEL).start();
        let home = TempDir::new();
        let Some(program) = compile(&home, "steps", &[]) else {
            return;
        };
        let process = start(way, &agent, &home, &program, "marker");
        std::fs::write(home.join("first"), "").expect("written");
        eventually("the program is through", || {
            match home.join("done").exists() {
                true => Ok(()),
                false => Err("not yet"),
            }
        });
        let finished = process.kill();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(finished.status.signal(), Some(9));
        assert_eq!(hits(&agent), 1000.0, "{way:?}");
    }
}

#[test]
fn when_the_agent_is_killed_nothing_is_lost_or_counted_twice() {
    for way in Way::counting() {
        let dir = TempDir::new();
        let build = || {
            AgentBuilder::new(PEGEL)
                .dir(dir.join("store"))
                .env("PEGEL_LANES", dir.join("lanes"))
        };
        std::fs::create_dir(dir.join("lanes")).expect("made");
        let agent = build().start();
        let home = TempDir::new();
        let Some(program) = compile(&home, "steps", &[]) else {
            return;
        };
        let process = start(way, &agent, &home, &program, "marker");
        std::fs::write(home.join("first"), "").expect("written");
        eventually("the first thousand", || match hits(&agent) {
            1000.0 => Ok(()),
            other => Err(other),
        });
        agent.kill();
        std::fs::write(home.join("second"), "").expect("written");
        assert_eq!(process.wait(BOUND).code(), Some(42));
        let agent = build().start();
        eventually("both thousands", || match hits(&agent) {
            2000.0 => Ok(()),
            other => Err(other),
        });
    }
}

fn start(
    way: Way,
    agent: &AgentProcess,
    home: &TempDir,
    program: &std::path::Path,
    marker: &str,
) -> Process {
    let words = way.words();
    let mut command = Command::new(&words[0]);
    command
        .args(["run", "-u"])
        .arg(&agent.socket)
        .args(&words[2..])
        .arg(program);
    command.arg(home.path()).arg(marker);
    isolate(&mut command, home);
    command.env_remove("PEGEL_LANES");
    Process::start(&mut command)
}

/// The helper keeps the wrapper's command line, in which the directory of this test stands.
fn helper_by_marker(home: &TempDir) -> Pid {
    let marker = home.path().display().to_string();
    eventually("somebody counts", || {
        let processes = std::fs::read_dir("/proc").expect("processes");
        let found = processes.filter_map(Result::ok).find_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let words = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
            let is_ours = words.contains(&marker) && words.contains("\0run\0");
            let has_started = home.join("ready").exists();
            (is_ours && has_started).then_some(pid)
        });
        found.and_then(Pid::from_raw).ok_or("nobody")
    })
}

#[test]
fn a_thousand_signals_do_not_confuse_the_count() {
    for way in Way::counting() {
        let agent = AgentBuilder::new(PEGEL).start();
        let home = TempDir::new();
        let Some(program) = compile(&home, "steps", &[]) else {
            return;
        };
        let process = start(way, &agent, &home, &program, "signals");
        eventually("it is ready", || match home.join("ready").exists() {
            true => Ok(()),
            false => Err("not yet"),
        });
        for name in ["first", "second"] {
            for _ in 0..500 {
                process.signal(Signal::USR1);
                std::thread::sleep(Duration::from_micros(100));
            }
            std::fs::write(home.join(name), "").expect("written");
        }
        let finished = process.wait(BOUND);
        assert_eq!(finished.code(), Some(42), "{way:?}: {finished}");
        assert_eq!(hits(&agent), 2000.0, "{way:?}");
    }
}
