//! Own and shared cgroups.

use super::fake_machine::{FakeMachine, FakeProcess};
use crate::task::{PeakSource, TaskLife, TaskScope, TaskWatch};

fn own(machine: &FakeMachine) -> Option<String> {
    machine.scope().own_cgroup().map(str::to_owned)
}

#[test]
fn a_group_of_only_descendants_is_own() {
    let machine = FakeMachine::new();
    machine.add_task_cgroup("50\n60\n");
    let child = FakeProcess {
        parent: 50,
        ..FakeProcess::default()
    };
    machine.process(60, child);
    assert_eq!(own(&machine).as_deref(), Some("/task"));
    // In a subgroup too.
    machine.write("sys/fs/cgroup/task/inner/cgroup.procs", "61\n");
    machine.process(61, FakeProcess::default());
    assert_eq!(own(&machine), None, "61 is no descendant");
    machine.process(61, child);
    assert_eq!(own(&machine).as_deref(), Some("/task"));
    machine.write("proc/50/cgroup", "0::/../other\n");
    assert_eq!(own(&machine), None);
    machine.write("proc/50/cgroup", "0::/absent\n");
    assert_eq!(own(&machine), None);
}

#[test]
fn login_sessions_and_the_root_are_never_own() {
    let machine = FakeMachine::new();
    for path in ["/user.slice/session-3.scope", "/x.slice"] {
        machine.write(&format!("sys/fs/cgroup{path}/cgroup.procs"), "50\n");
        machine.write("proc/50/cgroup", format!("0::{path}\n"));
        assert_eq!(own(&machine), None, "{path}");
    }
    machine.write("sys/fs/cgroup/cgroup.procs", "50\n");
    machine.write("proc/50/cgroup", "0::/\n");
    assert_eq!(own(&machine), None);
    // Only the root of a container's namespace has this file.
    machine.write("sys/fs/cgroup/cgroup.events", "populated 1\n");
    assert_eq!(own(&machine).as_deref(), Some("/"));
}

#[test]
fn the_group_of_a_job_is_used_although_others_are_in_it() {
    let machine = FakeMachine::new();
    let job = "/system.slice/slurmstepd.scope/job_7";
    machine.write(&format!("sys/fs/cgroup{job}/step_0/cgroup.procs"), "50\n");
    machine.write(&format!("sys/fs/cgroup{job}/step_1/cgroup.procs"), "1\n");
    machine.write("proc/50/cgroup", format!("0::{job}/step_0\n"));
    assert_eq!(own(&machine).as_deref(), Some(job));
    let mut scope = machine.scope();
    let text = serde_json::to_string(&scope).expect("JSON");
    assert_eq!(
        serde_json::from_str::<TaskScope>(&text).expect("a scope"),
        scope
    );
    scope.disown_cgroups();
    assert_eq!(scope.own_cgroup(), None);
}

#[test]
fn a_group_counts_from_the_start() {
    let machine = FakeMachine::new();
    machine.add_task_cgroup("50\n");
    let mut watch = machine.watch();
    let first = watch.peaks().clone();
    assert_eq!(first.cpu_seconds, Some(0.0));
    // The peak was before the start; the present usage is known.
    assert_eq!(first.memory_bytes, Some(1000));
    assert_eq!(first.memory_source, Some(PeakSource::CgroupSamples));
    let folder = "sys/fs/cgroup/task";
    machine.write(&format!("{folder}/memory.peak"), "500000\n");
    let cpu = "usage_usec 8000000\nuser_usec 6000000\nsystem_usec 2000000\n";
    machine.write(&format!("{folder}/cpu.stat"), cpu);
    machine.write(
        &format!("{folder}/io.stat"),
        "8:0 rbytes=150 wbytes=10\n8:16 rbytes=1\n",
    );
    let peaks = watch.sample(1).clone();
    assert_eq!(peaks.memory_bytes, Some(500_000));
    assert_eq!(peaks.memory_source, Some(PeakSource::CgroupPeak));
    assert_eq!(peaks.cpu_seconds, Some(3.0));
    assert_eq!(
        (peaks.user_seconds, peaks.system_seconds),
        (Some(2.0), Some(1.0))
    );
    assert_eq!((peaks.read_bytes, peaks.written_bytes), (Some(50), Some(0)));
    // The group is removed: what was known remains.
    machine.remove(folder);
    machine.end(50);
    assert_eq!(watch.life(), TaskLife::Ended);
    let last = watch.sample(2).clone();
    assert_eq!(
        (last.memory_bytes, last.cpu_seconds),
        (Some(500_000), Some(3.0))
    );
}

#[test]
fn controllers_of_version_1_are_decided_one_by_one() {
    let machine = FakeMachine::new();
    machine.remove("sys");
    machine.write(
        "proc/50/cgroup",
        "4:memory:/task\n2:cpu,cpuacct:/\n1:blkio:/task\n0::/\n",
    );
    let memory = "sys/fs/cgroup/memory/task";
    for (path, text) in [
        ("sys/fs/cgroup/memory/release_agent", ""),
        ("sys/fs/cgroup/cpuacct/release_agent", ""),
        ("sys/fs/cgroup/cpuacct/cpuacct.usage", "99000000000\n"),
        ("sys/fs/cgroup/blkio/task/cgroup.procs", "50\n"),
        ("sys/fs/cgroup/memory/task/cgroup.procs", "50\n"),
        ("sys/fs/cgroup/memory/task/memory.usage_in_bytes", "100\n"),
        (
            "sys/fs/cgroup/memory/task/memory.max_usage_in_bytes",
            "100\n",
        ),
        (
            "sys/fs/cgroup/memory/task/memory.oom_control",
            "under_oom 0\noom_kill 1\n",
        ),
        (
            "sys/fs/cgroup/memory/task/inner/memory.oom_control",
            "oom_kill 1\n",
        ),
    ] {
        machine.write(path, text);
    }
    let io = "sys/fs/cgroup/blkio/task/blkio.throttle.io_service_bytes";
    machine.write(io, "8:0 Read 5\n8:0 Write 6\nTotal 11\n");
    let mut watch = machine.watch();
    assert_eq!(watch.check().new_oom_kills, 0, "before the start");
    machine.write(io, "8:0 Read 15\n8:0 Write 6\nTotal 21\n");
    machine.write(&format!("{memory}/memory.max_usage_in_bytes"), "900\n");
    machine.write(
        &format!("{memory}/inner/memory.oom_control"),
        "oom_kill 3\n",
    );
    let busy = FakeProcess {
        user: super::fake_machine::ticks(2),
        ..FakeProcess::default()
    };
    machine.process(50, busy);
    assert_eq!(watch.check().new_oom_kills, 2);
    assert_eq!(watch.check().new_oom_kills, 0);
    let peaks = watch.sample(1).clone();
    assert_eq!(peaks.memory_bytes, Some(900));
    assert_eq!(peaks.memory_source, Some(PeakSource::CgroupPeakV1));
    assert_eq!((peaks.read_bytes, peaks.written_bytes), (Some(10), Some(0)));
    assert_eq!(
        peaks.cpu_seconds,
        Some(2.0),
        "of the processes: the root group is not the task's"
    );
    assert_eq!(peaks.oom_kills, Some(2));
}

#[test]
fn oom_kills_are_reported_once_also_after_a_restart() {
    let machine = FakeMachine::new();
    machine.add_task_cgroup("50\n");
    let events = "sys/fs/cgroup/task/memory.events";
    machine.write(events, "oom 1\noom_kill 1\n");
    let mut watch = machine.watch();
    assert_eq!(watch.check().new_oom_kills, 0);
    machine.write(events, "oom 3\noom_kill 3\n");
    assert_eq!(watch.check().new_oom_kills, 2);
    assert_eq!(watch.check().new_oom_kills, 0);
    let checkpoint = watch.checkpoint();
    machine.write(events, "oom 4\noom_kill 4\n");
    let mut watch = TaskWatch::resume(machine.files(), checkpoint).expect("resumed");
    assert_eq!(watch.check().new_oom_kills, 1);
    assert_eq!(watch.sample(1).oom_kills, Some(3));
}

#[test]
fn a_task_has_ended_when_its_root_has_and_its_group_is_empty() {
    let machine = FakeMachine::new();
    machine.add_task_cgroup("50\n");
    let mut watch = machine.watch();
    assert_eq!(watch.life(), TaskLife::Running);
    machine.end(50);
    machine.process(70, FakeProcess::default());
    machine.write("sys/fs/cgroup/task/cgroup.procs", "70\n");
    assert_eq!(watch.life(), TaskLife::RootEnded);
    // Its parent was not a member, but it is in the task's group.
    assert_eq!(watch.sample(1).processes, Some(1));
    assert_eq!(watch.tree.members().count(), 1);
    machine.write("sys/fs/cgroup/task/cgroup.procs", "");
    assert_eq!(watch.life(), TaskLife::Ended);
}
