//! Ten thousand jobs in a row: every one is listed, and neither the number of series nor the memory
//! depends on them.

use std::collections::BTreeSet;
use std::fs;

use pegel_testkit::{AgentProcess, JobCgroups, eventually, eventually_within};
use serde_json::Value;

use crate::PEGEL;

const JOBS: u64 = 10_000;
/// Jobs that are created before the agent is waited for: fewer than the kernel's queue holds.
const BATCH: u64 = 500;
/// A row of the table is about half a kilobyte; the response with all of them is built in memory.
const GROWTH_BYTES_MAX: u64 = 48 << 20;

fn resident_bytes(agent: &AgentProcess) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).expect("read");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("a line");
    let kilobytes = line.split_ascii_whitespace().nth(1).expect("a number");
    kilobytes.parse::<u64>().expect("a number") * 1024
}

fn series_count(agent: &AgentProcess) -> usize {
    let list = agent.get("/api/v1/list").json();
    list.as_array().expect("series").len()
}

/// Runs jobs of a few microseconds each.
fn run_jobs(agent: &AgentProcess, cgroups: &JobCgroups, jobs: std::ops::Range<u64>) {
    let before = agent.status()["jobs"]["begun"].as_u64().expect("a count");
    for (expected, job) in (before + 1..).zip(jobs) {
        let group = format!("{}/job_{job}", JobCgroups::SLURM);
        cgroups.begin(
            &group,
            &[("cpu.stat", "usage_usec 5000\n"), ("memory.peak", "4096\n")],
        );
        cgroups.end(&group);
        if job % BATCH == BATCH - 1 {
            eventually_within(std::time::Duration::from_secs(120), "all are seen", || {
                let begun = agent.status()["jobs"]["begun"].as_u64().expect("a count");
                (begun == expected).then_some(()).ok_or(begun)
            });
        }
    }
}

#[test]
fn ten_thousand_jobs_leave_series_flat_and_are_listed_exactly() {
    let _alone = crate::alone();
    let cgroups = JobCgroups::v2();
    let agent = PEGEL.agent().env("PEGEL_ROOT", cgroups.root()).start();
    run_jobs(&agent, &cgroups, 0..BATCH);
    eventually("values are there", || {
        let found = series_count(&agent);
        (found > 10).then_some(()).ok_or(found)
    });
    let (series, memory) = (series_count(&agent), resident_bytes(&agent));
    run_jobs(&agent, &cgroups, BATCH..JOBS);
    let status = agent.status()["jobs"].clone();
    assert_eq!(
        (&status["overflows"], &status["refused"]),
        (&0.into(), &0.into()),
        "{status}"
    );
    assert_eq!(series_count(&agent), series, "jobs add no series");
    let grown = resident_bytes(&agent).saturating_sub(memory);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more");

    let listed = agent.client(&["jobs", "--limit", "20000", "-f", "json"]);
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).expect("JSON");
    let ids: BTreeSet<u64> = { listed.iter() }
        .map(|job| {
            job["job"]
                .as_str()
                .expect("an id")
                .parse()
                .expect("a number")
        })
        .collect();
    assert_eq!(listed.len() as u64, JOBS, "each once");
    assert_eq!(ids, (0..JOBS).collect(), "and none is missing");
    assert!(listed.iter().all(|job| job["state"] == "ended"));
}
