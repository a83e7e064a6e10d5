//! After a kill of program, counting process or agent, the others continue and no counts are lost.

use std::process::Command;
use std::time::Duration;

use pegel_testkit::{AgentProcess, ChildProcess, TempDir, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::PEGEL;
use crate::run_mode::{BOUND, RunMode, compile, isolate};

fn hits(agent: &AgentProcess) -> f64 {
    let text = agent.get("/metrics").text().to_owned();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("strace_hits_total{scall=\"getppid\"} "));
    line.map_or(0.0, |value| value.parse().expect("a number"))
}

#[test]
fn the_program_continues_when_its_counting_process_is_killed() {
    for way in RunMode::counting() {
        let agent = PEGEL.agent().start();
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
fn counts_are_kept_when_the_program_is_killed() {
    for way in RunMode::counting() {
        let agent = PEGEL.agent().start();
        let home = TempDir::new();
        let Some(program) = compile(&home, "steps", &[]) else {
            return;
        };
        let process = start(way, &agent, &home, &program, "marker");
        std::fs::write(home.join("first"), "").expect("written");
        eventually("the program is through", || {
            if home.join("done").exists() {
                Ok(())
            } else {
                Err("not yet")
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
    for way in RunMode::counting() {
        let dir = TempDir::new();
        let build = || {
            PEGEL
                .agent()
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
    way: RunMode,
    agent: &AgentProcess,
    home: &TempDir,
    program: &std::path::Path,
    marker: &str,
) -> ChildProcess {
    let words = way.prefix();
    let mut command = Command::new(&words[0]);
    command
        .args(["run", "-u"])
        .arg(&agent.socket)
        .args(&words[2..])
        .arg(program);
    command.arg(home.path()).arg(marker);
    isolate(&mut command, home);
    command.env_remove("PEGEL_LANES");
    ChildProcess::start(&mut command)
}

/// Finds the helper by its command line, which is the wrapper's and contains this test's directory.
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

/// Like ranks under mpirun: several programs at once, each after its first thousand calls.
struct Ranks {
    agent: AgentProcess,
    homes: Vec<TempDir>,
    processes: Vec<ChildProcess>,
}

const RANKS: usize = 4;

impl Ranks {
    #[track_caller]
    fn start(way: RunMode, agent: AgentProcess) -> Option<Ranks> {
        let homes: Vec<TempDir> = (0..RANKS).map(|_| TempDir::new()).collect();
        let program = compile(&homes[0], "steps", &[])?;
        let mut processes = Vec::new();
        for home in &homes {
            processes.push(start(way, &agent, home, &program, "rank"));
            // Sequentially, so that the first one loads what they share.
            helper_by_marker(home);
        }
        let ranks = Ranks {
            agent,
            homes,
            processes,
        };
        ranks.step("first");
        ranks.expect(RANKS, "each its first thousand");
        Some(ranks)
    }

    fn step(&self, name: &str) {
        for home in &self.homes {
            std::fs::write(home.join(name), "").expect("written");
        }
    }

    fn expect(&self, thousands: usize, what: &str) {
        eventually(what, || match hits(&self.agent) {
            found if found == 1000.0 * thousands as f64 => Ok(()),
            other => Err(other),
        });
    }

    /// Lets the others make their second thousand calls and exit normally.
    fn go_on(&mut self, way: RunMode) {
        self.step("second");
        for process in self.processes.drain(..) {
            let finished = process.wait(BOUND);
            assert_eq!(finished.code(), Some(42), "{way:?}: {finished}");
        }
    }
}

#[test]
fn other_ranks_are_counted_when_one_is_killed() {
    for way in RunMode::counting() {
        for victim in [0, RANKS - 1] {
            let agent = PEGEL.agent().start();
            let Some(mut ranks) = Ranks::start(way, agent) else {
                return;
            };
            ranks.processes.remove(victim).kill();
            ranks.go_on(way);
            let text = format!("{way:?}: all but the second thousand of rank {victim}");
            ranks.expect(2 * RANKS - 1, &text);
        }
    }
}

#[test]
fn other_ranks_are_counted_when_a_counting_process_is_killed() {
    for way in RunMode::counting() {
        for victim in [0, RANKS - 1] {
            let agent = PEGEL.agent().start();
            let Some(mut ranks) = Ranks::start(way, agent) else {
                return;
            };
            kill_process(helper_by_marker(&ranks.homes[victim]), Signal::KILL).expect("ours");
            // That rank continues too, uncounted.
            ranks.go_on(way);
            let text = format!("{way:?}: all but the second thousand of rank {victim}");
            ranks.expect(2 * RANKS - 1, &text);
        }
    }
}

/// Kills all programs, counting processes and the agent at once: the next agent finds the counts.
#[test]
fn counts_are_kept_when_all_ranks_are_killed() {
    for way in RunMode::counting() {
        for kills_agent in [false, true] {
            let dir = TempDir::new();
            std::fs::create_dir(dir.join("lanes")).expect("made");
            let build = || {
                PEGEL
                    .agent()
                    .dir(dir.join("store"))
                    .env("PEGEL_LANES", dir.join("lanes"))
            };
            let Some(mut ranks) = Ranks::start(way, build().start()) else {
                return;
            };
            let helpers: Vec<Pid> = ranks.homes.iter().map(helper_by_marker).collect();
            if kills_agent {
                for helper in helpers {
                    kill_process(helper, Signal::KILL).expect("ours");
                }
                ranks.agent.signal(Signal::KILL);
            }
            for process in ranks.processes.drain(..) {
                process.kill();
            }
            if kills_agent {
                ranks.agent.kill();
                ranks.agent = build().start();
            }
            let text = format!("{way:?}: the first thousands, kills the agent: {kills_agent}");
            ranks.expect(RANKS, &text);
            ranks.agent.assert_conserved();
        }
    }
}

#[test]
fn a_thousand_signals_do_not_change_the_counts() {
    for way in RunMode::counting() {
        let agent = PEGEL.agent().start();
        let home = TempDir::new();
        let Some(program) = compile(&home, "steps", &[]) else {
            return;
        };
        let process = start(way, &agent, &home, &program, "signals");
        eventually("it is ready", || {
            if home.join("ready").exists() {
                Ok(())
            } else {
                Err("not yet")
            }
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
