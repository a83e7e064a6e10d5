//! The agent has the counts when the command returns.

use std::process::Command;
use std::time::Duration;

use pegel_testkit::{ChildProcess, TempDir, eventually, eventually_within};

use crate::PEGEL;
use crate::run_mode::{BOUND, RunMode, compile, isolate, pegel, value};

#[test]
fn counts_are_visible_when_the_command_returns() {
    let agent = PEGEL.agent().start();
    let home = TempDir::new();
    let Some(program) = compile(&home, "known", &[]) else {
        return;
    };
    let mut runs = 0.0;
    for way in RunMode::counting() {
        for _ in 0..5 {
            runs += 1.0;
            let words = way.prefix();
            // The agent provides the directory of lanes.
            let mut command = Command::new(&words[0]);
            command
                .args(["run", "-u"])
                .arg(&agent.socket)
                .args(&words[2..])
                .arg(&program);
            isolate(&mut command, &home);
            command
                .env_remove("PEGEL_LANES")
                .env_remove("XDG_RUNTIME_DIR");
            let status = command.status().expect("started");
            assert_eq!(status.code(), Some(42));
            let get = |name: &str, call: &str| {
                value(&agent, &format!("strace_{name}_total{{scall=\"{call}\"}}"))
            };
            assert_eq!(get("hits", "getppid"), Some(260.0 * runs), "{way:?}");
            assert_eq!(get("size", "write"), Some(7.0 * 260.0 * runs), "{way:?}");
            assert_eq!(get("errors", "read"), Some(260.0 * runs), "{way:?}");
            assert!(get("time", "write").expect("there") > 0.0);
            let launches = value(&agent, "tau_metric_proxy_run_total{operation=\"exec\"}");
            assert_eq!(launches, Some(runs), "{way:?}");
        }
    }
    agent.assert_conserved();
}

#[test]
fn a_job_is_named_by_its_scheduler_or_by_hand() {
    let agent = PEGEL.agent().start();
    let home = TempDir::new();
    for (args, variable, job) in [
        (&["-s", "-j", "mine"][..], None, "mine"),
        (&["-s"], Some(("SLURM_JOB_ID", "17")), "17"),
        (&["-s", "-j", "mine"], Some(("SLURM_JOB_ID", "17")), "mine"),
    ] {
        let mut command = pegel(&home, &["-u"]);
        command
            .arg(&agent.socket)
            .args(args)
            .args(["--", "true"])
            .env_remove("PEGEL_LANES")
            .envs(variable);
        assert!(command.status().expect("started").success());
        let series = format!("strace_hits_total{{jobid=\"{job}\",scall=\"execve\"}}");
        assert!(
            value(&agent, &series).is_some_and(|hits| hits >= 1.0),
            "{series}"
        );
    }
}

/// Several at once, as under mpirun: one agent wins, serves all of them, and exits after the last.
#[test]
fn an_agent_is_started_where_there_is_none() {
    let home = TempDir::new();
    let socket = home.join("push.sock");
    let start = || {
        let mut command = pegel(&home, &["-v", "-s", "--agent", "-u"]);
        command
            .arg(&socket)
            .args(["--", "sh", "-c", "until [ -e seen ]; do sleep 0.05; done"])
            .env("PEGEL_DIR", home.join("store"))
            .env("PEGEL_LISTEN", "127.0.0.1:0");
        ChildProcess::start(&mut command)
    };
    let wrappers: Vec<ChildProcess> = (0..4).map(|_| start()).collect();
    let address = pegel_testkit::AgentAddress::Unix(socket.clone());
    let read = || {
        let answer = pegel_testkit::get(&address, "/metrics").map_err(|error| error.to_string())?;
        let text = answer.text().to_owned();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("tau_metric_proxy_run_total{operation=\"exec\"} "));
        Ok::<_, String>(line.map(str::to_owned))
    };
    eventually("one agent has all four", || match read() {
        Ok(Some(count)) if count == "4" => Ok(()),
        other => Err(other),
    });
    std::fs::write(home.join("seen"), "").expect("written");
    for wrapper in wrappers {
        let finished = wrapper.wait(BOUND);
        assert_eq!(finished.code(), Some(0), "{finished}");
    }
    assert!(read().is_ok(), "it is there when the last one returns");
    eventually_within(Duration::from_secs(30), "the agent ends", || match read() {
        Err(_) => Ok(()),
        Ok(_) => Err("it answers"),
    });
}
