//! The files of a task's processes and cgroups, each with any content.

use std::fs;
use std::path::Path;

use pegel_machine::MachineFiles;
use pegel_session::task::{AutopsyCause, TaskScope, TaskWatch};
use pegel_testkit::TempDir;

use super::Target;
use crate::memory::bounded;

pub(super) const TASK: Target = Target {
    name: "task",
    run: task,
    dictionary: &[
        b"\n",
        b" kB\n",
        b"max\n",
        b"oom_kill ",
        b"populated 0\n",
        b"0::/",
        b"/..",
        b"rbytes=",
        b"8:0 Read ",
        b"total=",
        b"VmHWM:\t",
        b") Z ",
        b"18446744073709551615",
    ],
    seeds: || {
        let seed = |(file, text): &(&str, &str)| format!("{file}\n{text}").into_bytes();
        FILES.iter().map(seed).collect()
    },
};

/// A shell with a child, in a cgroup of version 2 and one of version 1.
const FILES: &[(&str, &str)] = &[
    (
        "proc/50/stat",
        "50 (sh) S 1 0 0 0 -1 0 9 2 0 0 3 4 5 6 20 0 1 0 100 4096 10 0\n",
    ),
    (
        "proc/51/stat",
        "51 (x y) R 50 0 0 0 -1 0 7 0 0 0 8 1 0 0 20 0 2 0 110 4096 20 0\n",
    ),
    (
        "proc/50/cgroup",
        "4:memory:/task\n3:blkio:/task\n0::/task\n",
    ),
    (
        "proc/51/status",
        "Name:\tx y\nVmHWM:\t   80 kB\nVmSwap:\t   4 kB\n",
    ),
    (
        "proc/51/io",
        "rchar: 1\nwchar: 2\nread_bytes: 3\nwrite_bytes: 4\n",
    ),
    ("proc/51/cmdline", "x\0--password\0secret\0"),
    ("proc/51/oom_score_adj", "-17\n"),
    ("proc/loadavg", "0.00 0.01 0.05 1/100 51\n"),
    ("proc/meminfo", "MemTotal:  1000 kB\nMemAvailable: 10 kB\n"),
    (
        "proc/pressure/io",
        "some avg10=1.50 avg60=0.00 avg300=0.00 total=2000000\n",
    ),
    ("sys/fs/cgroup/unified/cgroup.controllers", "io\n"),
    ("sys/fs/cgroup/unified/task/cgroup.procs", "50\n51\n"),
    (
        "sys/fs/cgroup/unified/task/cgroup.events",
        "populated 1\nfrozen 0\n",
    ),
    (
        "sys/fs/cgroup/unified/task/cpu.stat",
        "usage_usec 50\nuser_usec 40\nsystem_usec 10\n",
    ),
    (
        "sys/fs/cgroup/unified/task/io.stat",
        "8:0 rbytes=100 wbytes=10 rios=1 wios=2\n",
    ),
    (
        "sys/fs/cgroup/unified/task/memory.events",
        "oom 1\noom_kill 1\n",
    ),
    ("sys/fs/cgroup/memory/task/cgroup.procs", "50\n51\n"),
    ("sys/fs/cgroup/memory/task/memory.usage_in_bytes", "100\n"),
    (
        "sys/fs/cgroup/memory/task/memory.max_usage_in_bytes",
        "200\n",
    ),
    ("sys/fs/cgroup/memory/task/memory.limit_in_bytes", "300\n"),
    ("sys/fs/cgroup/memory/task/memory.stat", "cache 1\nrss 2\n"),
    (
        "sys/fs/cgroup/memory/task/memory.oom_control",
        "under_oom 0\noom_kill 1\n",
    ),
    (
        "sys/fs/cgroup/blkio/task/blkio.throttle.io_service_bytes",
        "8:0 Read 5\nTotal 5\n",
    ),
];

thread_local! {
    /// A machine made of files, private to this thread.
    static ROOT: TempDir = {
        let root = TempDir::new();
        for (file, text) in FILES {
            let path = root.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        root
    };
}

/// The first line names a file, the rest is its content. A watch that runs and one that starts now
/// survive it, totals do not fall, and an autopsy stays bounded.
fn task(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n');
    let (name, text) = input.split_at(end.unwrap_or(input.len()));
    let common = |(file, _): &&(&str, &str)| {
        let bytes = file.bytes().zip(name);
        bytes.take_while(|(a, b)| a == *b).count()
    };
    let (file, good) = FILES.iter().max_by_key(common).expect("there are files");
    ROOT.with(|root| {
        let path = root.join(file);
        bounded(64 << 20, || {
            let mut watch = start(root.path()).expect("a valid machine");
            fs::write(&path, text.get(1..).unwrap_or_default()).expect("written");
            let before = watch.peaks().cpu_seconds;
            let after = watch.sample(1).cpu_seconds;
            assert!(after >= before, "{before:?} fell to {after:?}");
            watch.check();
            describe(&watch);
            if let Some(fresh) = start(root.path()) {
                describe(&fresh);
                let text = serde_json::to_string(&fresh.checkpoint()).expect("JSON");
                let saved = serde_json::from_str(&text).expect("a checkpoint");
                let files = MachineFiles::at(root.path());
                TaskWatch::resume(files, saved).expect("a watch");
            }
            fs::write(&path, good).expect("written");
        });
    });
}

fn start(root: &Path) -> Option<TaskWatch> {
    let scope = TaskScope::of_process(&MachineFiles::at(root), 50)?;
    Some(TaskWatch::start(MachineFiles::at(root), scope, 0).expect("/proc is there"))
}

fn describe(watch: &TaskWatch) {
    let text = watch
        .autopsy(AutopsyCause::OomKill { kills: 1 })
        .to_string();
    assert!(text.len() <= 256 << 10, "{} bytes", text.len());
}
