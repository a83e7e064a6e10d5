//! Jobs of a real agent: found in simulated and in real cgroups, listed, and as a restriction of
//! queries.

mod real_cgroups;
mod visibility;

use std::collections::BTreeSet;
use std::fs;

use pegel_testkit::{
    AgentProcess, JobCgroups, StoredSamples, TempDir, eventually, get, need_hardware, now_millis,
};
use serde_json::{Value, json};

use crate::PEGEL;

/// Starts an agent on a simulated machine.
pub(super) fn agent_on(cgroups: &JobCgroups, dir: &TempDir, config: &str) -> AgentProcess {
    PEGEL
        .agent()
        .dir(dir.join("store"))
        .env("PEGEL_ROOT", cgroups.root())
        .config(&format!("rate: 100ms\n{config}"))
        .start()
}

/// The jobs that the agent's user sees, the newest first.
pub(super) fn jobs(agent: &AgentProcess, query: &str) -> Vec<Value> {
    let answer = agent.get(&format!("/api/v1/jobs{query}")).json();
    answer["jobs"].as_array().expect("a list").clone()
}

/// Waits for a job in a state.
pub(super) fn job_in_state(agent: &AgentProcess, id: &str, state: &str) -> Value {
    eventually(&format!("job {id} is {state}"), || {
        let found = jobs(agent, &format!("?job={id}&steps=1"));
        let is_meant = |job: &&Value| job["state"] == state;
        found.iter().find(is_meant).cloned().ok_or(found.clone())
    })
}

fn slurm(job: &str) -> String {
    format!("{}/{job}", JobCgroups::SLURM)
}

#[test]
fn a_job_has_its_user_limits_figures_and_end() {
    let (cgroups, dir) = (JobCgroups::v2(), TempDir::new());
    let agent = agent_on(&cgroups, &dir, "");
    cgroups.write(
        "proc/18/stat",
        "18 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0 0\n",
    );
    let before = now_millis();
    cgroups.begin(
        &slurm("job_17/step_0/user/task_0"),
        &[("cgroup.procs", "18\n")],
    );
    cgroups.begin(
        &slurm("job_17"),
        &[
            ("cpuset.cpus.effective", "1-2\n"),
            ("memory.max", "4096\n"),
            ("memory.peak", "1024\n"),
            ("cpu.stat", "usage_usec 1500000\n"),
            ("memory.events", "oom_kill 0\n"),
            ("cgroup.events", "populated 1\n"),
        ],
    );
    let running = eventually("its figures are read", || {
        let job = job_in_state(&agent, "17", "running");
        let is_complete = job["cpu_seconds"] == 1.5 && job["cpus"] == 2 && !job["user"].is_null();
        is_complete.then_some(job.clone()).ok_or(job)
    });
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(
        (&running["uid"], &running["scheduler"]),
        (&json!(own), &json!("slurm"))
    );
    assert_eq!(
        (&running["memory_peak"], &running["memory_limit"]),
        (&json!(1024), &json!(4096))
    );
    assert_eq!(running["on_nodes"][0]["cpus"], "1-2");
    let begin = running["begin"].as_i64().expect("a time");
    // If the agent listed the directory before it watched it, the job begins with its process.
    assert!(begin >= before - 1 || begin == 1_002_500, "{running}");
    let metrics = agent.get("/metrics").text().to_owned();
    assert!(metrics.contains("pegel_job_info{"), "{metrics}");
    assert!(metrics.contains("jobid=\"17\""), "{metrics}");

    let info = "/api/v1/query?query=pegel_job_info";
    let shown = agent.get(info).json();
    assert_eq!(
        shown["data"]["result"][0]["metric"]["jobid"], "17",
        "{shown}"
    );

    // The last figures are read when the kernel reports that the last process left.
    fs::write(cgroups.group(&slurm("job_17/memory.peak")), "2048\n").expect("written");
    fs::write(
        cgroups.group(&slurm("job_17/memory.events")),
        "oom_kill 1\n",
    )
    .expect("written");
    fs::write(
        cgroups.group(&slurm("job_17/cgroup.events")),
        "populated 0\n",
    )
    .expect("written");
    eventually("the last figures are read", || {
        let job = job_in_state(&agent, "17", "running");
        (job["memory_peak"] == 2048).then_some(()).ok_or(job)
    });
    cgroups.end(&slurm("job_17"));
    let ended = job_in_state(&agent, "17", "oom");
    assert!(ended["end"].as_i64().expect("a time") >= begin);
    let steps = jobs(&agent, "?steps=1");
    let step = steps.iter().find(|job| job["step"] == "0").expect("a step");
    assert_eq!(step["state"], "ended");
    let metrics = agent.get("/metrics").text().to_owned();
    assert!(
        !metrics.contains("pegel_job_info{"),
        "only running jobs: {metrics}"
    );
    let shown = agent.get(info).json();
    assert_eq!(shown["data"]["result"], json!([]), "only running jobs");
}

#[test]
fn jobs_that_are_gone_before_they_are_looked_at_are_listed() {
    let (cgroups, dir) = (JobCgroups::v2(), TempDir::new());
    let agent = agent_on(&cgroups, &dir, "");
    // The directory of the scheduler exists and is watched before its short jobs begin.
    cgroups.begin(&slurm("job_50"), &[]);
    job_in_state(&agent, "50", "running");
    cgroups.end(&slurm("job_50"));
    for job in 0..50 {
        cgroups.begin(&slurm(&format!("job_{job}")), &[]);
        cgroups.end(&slurm(&format!("job_{job}")));
    }
    let found = eventually("all have ended", || {
        let found = jobs(&agent, "");
        let is_done = found.len() == 51 && found.iter().all(|job| job["state"] == "ended");
        is_done.then_some(found.clone()).ok_or(found)
    });
    assert!(
        found
            .iter()
            .all(|job| job["duration"].as_f64().expect("seconds") < 60.0)
    );
    assert_eq!(agent.status()["jobs"]["overflows"], 0);
}

#[test]
fn a_job_named_by_its_sluid_gets_its_number() {
    let (cgroups, dir) = (JobCgroups::v2(), TempDir::new());
    let sluid = "s06JQ5T8XK2M9R";
    let environment = format!("SLURM_JOB_ID=4711\0SLURM_JOB_SLUID={sluid}\0SLURM_JOB_GPUS=0,2\0");
    cgroups.write("proc/18/environ", &environment);
    cgroups.begin(
        &slurm(&format!("{sluid}/step_0/user/task_0")),
        &[("cgroup.procs", "18\n")],
    );
    let agent = agent_on(&cgroups, &dir, "");
    let by_number = job_in_state(&agent, "4711", "running");
    assert_eq!(
        (&by_number["sluid"], &by_number["gpus"]),
        (&json!(sluid), &json!(2))
    );
    let by_sluid = job_in_state(&agent, sluid, "running");
    assert_eq!(by_sluid["job"], "4711");
    cgroups.end(&slurm(sluid));
    job_in_state(&agent, "4711", "ended");
}

#[test]
fn a_job_of_cgroups_v1_ends_when_it_is_gone_from_all_hierarchies() {
    let (cgroups, dir) = (JobCgroups::v1(), TempDir::new());
    let agent = agent_on(&cgroups, &dir, "");
    let group = "slurm_n1/uid_4242/job_7";
    cgroups.begin(
        &format!("memory/{group}"),
        &[
            ("memory.max_usage_in_bytes", "77\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
        ],
    );
    cgroups.begin(&format!("cpuset/{group}"), &[("cpuset.cpus", "3\n")]);
    cgroups.begin(
        &format!("cpuacct/{group}"),
        &[("cpuacct.usage", "2500000000\n")],
    );
    let running = eventually("its figures are read", || {
        let job = job_in_state(&agent, "7", "running");
        let is_complete = job["cpu_seconds"] == 2.5 && job["cpus"] == 1 && job["memory_peak"] == 77;
        is_complete.then_some(job.clone()).ok_or(job)
    });
    assert_eq!(
        (&running["uid"], &running["memory_limit"]),
        (&json!(4242), &Value::Null)
    );
    cgroups.end("memory/slurm_n1/uid_4242");
    cgroups.end("cpuset/slurm_n1/uid_4242");
    assert_eq!(jobs(&agent, "")[0]["state"], "running");
    cgroups.end("cpuacct/slurm_n1/uid_4242");
    job_in_state(&agent, "7", "ended");
    let pbs = "memory/pbs_jobs.service/jobid/12[3].server";
    cgroups.begin(pbs, &[]);
    job_in_state(&agent, "12%5B3%5D.server", "running");
    cgroups.begin("freezer/lsf/alps/job.9.4711.17", &[]);
    job_in_state(&agent, "9", "running");
}

#[test]
fn jobs_survive_a_kill_and_a_damaged_file_costs_one_job() {
    let (cgroups, dir) = (JobCgroups::v2(), TempDir::new());
    let agent = agent_on(&cgroups, &dir, "");
    for job in ["job_1", "job_2", "job_3"] {
        cgroups.begin(&slurm(job), &[("cpu.stat", "usage_usec 1000000\n")]);
        job_in_state(&agent, &job[4..], "running");
    }
    cgroups.end(&slurm("job_1"));
    let before = job_in_state(&agent, "1", "ended");
    let begin = job_in_state(&agent, "2", "running")["begin"].clone();
    agent.kill();
    cgroups.end(&slurm("job_3"));
    let agent = agent_on(&cgroups, &dir, "");
    assert_eq!(job_in_state(&agent, "1", "ended")["end"], before["end"]);
    assert_eq!(job_in_state(&agent, "2", "running")["begin"], begin);
    job_in_state(&agent, "3", "lost");
    agent.kill();

    let path = dir.join("store/jobs.log");
    let text = fs::read_to_string(&path).expect("read");
    // All lines of the first job, and the last line is truncated.
    let spoilt: String = { text.lines() }
        .map(|line| line.replace("\"job\":\"1\"", "\"job\":\"9\"") + "\n")
        .collect();
    fs::write(&path, spoilt + "0123abcd {\"num").expect("written");
    let agent = agent_on(&cgroups, &dir, "");
    job_in_state(&agent, "3", "lost");
    job_in_state(&agent, "2", "running");
    assert_eq!(jobs(&agent, "?job=1"), [] as [Value; 0]);
    assert!(
        dir.join("store/aside/jobs.log.0").exists(),
        "a copy is kept"
    );
    cgroups.end(&slurm("job_2"));
    job_in_state(&agent, "2", "ended");
}

#[test]
fn queries_are_restricted_to_a_job() {
    let (cgroups, dir) = (JobCgroups::v2(), TempDir::new());
    let agent = agent_on(&cgroups, &dir, "");
    let samples = |count: usize| {
        eventually("samples are stored", || {
            let found = StoredSamples::read(&agent, "node_cpu_seconds_total");
            let times: BTreeSet<i64> = found.times().collect();
            (times.len() >= count).then_some(()).ok_or(times.len())
        });
    };
    samples(3);
    cgroups.begin(&slurm("job_7"), &[("cpuset.cpus.effective", "1-2\n")]);
    eventually("its CPUs are known", || {
        let job = job_in_state(&agent, "7", "running");
        (job["cpus"] == 2).then_some(()).ok_or(job)
    });
    // The command evaluates at whole seconds.
    samples(30);
    cgroups.end(&slurm("job_7"));
    let job = job_in_state(&agent, "7", "ended");
    samples(40);
    let (begin, end) = (
        job["begin"].as_i64().expect("a time"),
        job["end"].as_i64().expect("one"),
    );

    let range = "/api/v1/range?match=node_cpu_seconds_total&start=-1h&job=7";
    let found = agent.get(range).json();
    let series = found.as_array().expect("series");
    assert!(!series.is_empty(), "{found}");
    for one in series {
        let cpu = one["labels"]["cpu"].as_str().expect("a CPU");
        assert!(["1", "2"].contains(&cpu), "{one}");
        for point in one["points"].as_array().expect("points") {
            let time = point[0].as_i64().expect("a time");
            assert!((begin..=end).contains(&time), "{time} of {begin}..{end}");
        }
    }
    let values = agent
        .get("/api/v1/values?match=node_cpu_seconds_total&job=7")
        .json();
    let values = values.as_array().expect("values");
    assert!(
        values
            .iter()
            .all(|value| value["ts"].as_f64().expect("a time") * 1e3 <= end as f64)
    );
    assert_eq!(values.len(), series.len());

    let count = "query=count(count%20by%20(cpu)(node_cpu_seconds_total))";
    let instant = agent.get(&format!("/api/v1/query?job=7&{count}")).json();
    assert_eq!(instant["data"]["result"][0]["value"][1], "2", "{instant}");
    let all = agent.get(&format!("/api/v1/query?{count}")).json();
    assert_eq!(all["data"]["result"][0]["value"][1], "4", "{all}");
    let steps = agent
        .get(&format!("/api/v1/query_range?job=7&step=0.1&{count}"))
        .json();
    for value in steps["data"]["result"][0]["values"]
        .as_array()
        .expect("values")
    {
        let time = (value[0].as_f64().expect("a time") * 1e3).round() as i64;
        assert!((begin..=end).contains(&time), "{time} of {begin}..{end}");
        assert_eq!(value[1], "2");
    }
    let opentsdb = "/api/query?start=1h-ago&m=none:node_cpu_seconds_total%7Bmode=idle%7D&job=7";
    let opentsdb = agent.get(opentsdb).json();
    assert_eq!(opentsdb.as_array().expect("series").len(), 2, "{opentsdb}");

    let query = agent.client(&[
        "query",
        "--job",
        "7",
        "--range",
        "job",
        "-f",
        "csv",
        "node_cpu_seconds_total",
    ]);
    assert!(
        query.stdout.contains("cpu=\"\"1\"\"") && !query.stdout.contains("cpu=\"\"3\"\""),
        "{query}"
    );
    for path in [
        "range?match=node_load1&job=8",
        "values?job=8",
        "range?job=7.9",
    ] {
        let refused = get(agent.http(), &format!("/api/v1/{path}")).expect("an answer");
        assert_eq!(refused.status, 404, "{path}: {}", refused.text());
        assert!(refused.text().contains("no job "), "{}", refused.text());
    }
    let refused = get(agent.http(), "/api/v1/query?query=1&job=8").expect("an answer");
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("no job 8"), "{}", refused.text());
}

#[test]
fn the_job_of_a_wrapped_program_has_its_exit_code() {
    let agent = PEGEL.agent().start();
    for (job, script, state) in [
        ("fails", "exit 3", "exit 3"),
        ("killed", "kill -9 $$", "signal 9"),
        ("works", ":", "exit 0"),
    ] {
        let run = agent.client(&["run", "-j", job, "-q", "--", "sh", "-c", script]);
        assert_ne!(run.code(), Some(2), "{run}");
        let found = job_in_state(&agent, job, state);
        assert!(found["memory_peak"].as_u64().expect("bytes") > 0, "{found}");
        assert!(
            found["cpu_seconds"].is_number() && found["user"].is_string(),
            "{found}"
        );
    }
    let listed = agent.client(&["jobs"]);
    assert!(
        listed.stdout.contains("exit 3") && listed.stdout.contains("killed"),
        "{listed}"
    );
    let csv = agent.client(&["jobs", "fails", "-f", "csv"]);
    assert_eq!(csv.stdout.lines().count(), 2, "{csv}");
    let missing = agent.client(&["jobs", "absent"]);
    assert_eq!(missing.code(), Some(4), "{missing}");
    let malformed = agent.client(&["jobs", "--user", "no-such-user-here"]);
    assert!(
        malformed.stderr.contains("no user no-such-user-here"),
        "{malformed}"
    );
}

/// Requires root, to create cgroups.
fn need_root() -> Option<()> {
    let is_root = rustix::process::geteuid().is_root();
    need_hardware(is_root, "root privilege to create cgroups")
}
