//! Tasks that the kernel kills, machines that the cloud evicts, nodes that are lost.

use std::fs;
use std::process::Command;

use pegel_testkit::{
    ChildProcess, FakeReply, FakeService, eventually, fixture, isolate, need_hardware, now_millis,
};

use super::{TaskHome, kill_cgroup, shell_line, task_cgroup};
use crate::PEGEL;

#[test]
fn a_task_that_runs_out_of_memory_leaves_an_autopsy() {
    let group = task_cgroup("oom");
    let limited = group.as_ref().filter(|group| {
        let limits = ["memory.max", "memory.limit_in_bytes"];
        limits
            .iter()
            .any(|file| fs::write(group.join(file), "60000000").is_ok())
    });
    if need_hardware(
        limited.is_some(),
        "permission to limit the memory of a cgroup",
    )
    .is_none()
    {
        group.inspect(|group| drop(fs::remove_dir(group)));
        return;
    }
    let group = group.expect("a cgroup");
    let task = TaskHome::new();
    let agent = PEGEL.agent().args(&["--rate", "100ms"]).start();
    let place = task.place();
    let args = ["start", "--task", "big", "--workflow", "wf", "--to", &place];
    let pegel = shell_line(&task.command(Some(&agent.socket), &args));
    // A descendant of the task exceeds the limit; the task goes on.
    let work = "python3 -c 'b = bytearray(200 << 20)'; sleep 600";
    let line = format!("echo 0 > {}/cgroup.procs; {pegel}; {work}", group.display());
    let mut shell = Command::new("sh");
    isolate(&mut shell, &task.home);
    let process = ChildProcess::start(shell.arg("-c").arg(line));
    // The block is written at once, long before the next flush.
    eventually("the autopsy is stored", || {
        let record = task.record("big");
        let is_there = !record.autopsies.is_empty();
        is_there.then_some(()).ok_or_else(|| process.output())
    });
    let record = task.record("big");
    let autopsy = &record.autopsies[0];
    assert_eq!(autopsy["cause"]["kind"], "oom-kill", "{autopsy:#}");
    assert!(
        autopsy["peaks"]["memory_bytes"].as_u64() > Some(30_000_000),
        "{autopsy:#}"
    );
    assert!(autopsy["processes"].is_array(), "{autopsy:#}");
    task.stop(&agent, &["--exit-status", "137"]);
    let record = task.record("big");
    record.check_whole();
    let end = record.end.as_ref().expect("an end");
    assert!(end["peaks"]["oom_kills"].as_u64() >= Some(1), "{end:#}");
    kill_cgroup(&group);
    drop(process);
    eventually("the cgroup can be removed", || {
        fs::remove_dir(&group).map_err(|error| error.to_string())
    });
}

#[test]
fn an_eviction_notice_is_recorded_with_everything_before_it() {
    let service = FakeService::start();
    let document =
        |name: &str| fs::read_to_string(fixture("metadata").join(name)).expect("a document");
    let set = |path: &str, text: String| {
        service.set(&format!("GET /metadata/{path}"), None, FakeReply::ok(text))
    };
    set(
        "instance?api-version=2021-12-13",
        document("azure-instance.json"),
    );
    let task = TaskHome::new();
    let agent = PEGEL
        .agent()
        .env("PEGEL_ROOT", fixture("azure"))
        .env("PEGEL_IMDS_URL", &service.url)
        .config("rate: 100ms\nsession: {flush: 600s}\n")
        .start();
    task.start(&agent, "spot", &["--wait"]);
    let samples = task.record("spot").samples.len();
    set(
        "scheduledevents?api-version=2020-07-01",
        document("azure-events.json"),
    );
    eventually("the event and the samples before it are stored", || {
        let record = task.record("spot");
        let events = record
            .documents
            .iter()
            .filter(|one| one["event"] == "scheduled");
        let is_there = events.count() > 0 && record.samples.len() > samples;
        is_there
            .then_some(())
            .ok_or_else(|| format!("{:?}", record.documents))
    });
}

/// All processes are killed, and the disk of the node is lost.
#[test]
fn the_record_of_a_lost_node_is_readable_up_to_its_last_block() {
    let task = TaskHome::new();
    let dir = task.home.join("store");
    let config = "session: {flush: 2s, names: [node_load1]}\nrate: 100ms\n";
    let agent = PEGEL.agent().dir(&dir).config(config).start();
    task.start(&agent, "lost", &[]);
    eventually("some flushes are stored", || {
        let count = task.record("lost").sequences.len();
        (count > 4).then_some(()).ok_or(count)
    });
    let lost = now_millis();
    agent.kill();
    fs::remove_dir_all(&dir).expect("removed");
    let record = task.record("lost");
    assert_eq!(record.problems, Vec::<String>::new());
    assert_eq!(record.end, None);
    record.check_no_sample_twice();
    let times = record.times_of("node_load1");
    let last = times.last().expect("samples");
    // One flush interval, and what a busy machine adds.
    assert!(lost - last < 2_000 + 3_000, "{} ms", lost - last);
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(gaps < Some(5_000), "{gaps:?}");
}
