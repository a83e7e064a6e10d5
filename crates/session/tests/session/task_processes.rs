//! Watches real processes of this machine.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use pegel_machine::MachineFiles;
use pegel_session::task::{
    AutopsyCause, PeakSource, TaskExit, TaskLife, TaskPeaks, TaskScope, TaskWatch,
};
use pegel_testkit::{ChildProcess, OtherUser, TempDir, eventually, need_hardware};
use rustix::event::{Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

fn local() -> MachineFiles {
    MachineFiles::at("/")
}

/// A shell whose descendants are killed with it.
pub(crate) struct ShellTree {
    child: Option<ChildProcess>,
    group: Pid,
}

impl ShellTree {
    pub(crate) fn start(script: &str) -> ShellTree {
        let mut command = Command::new("sh");
        let child = ChildProcess::start(command.args(["-c", script]).process_group(0));
        let group = i32::try_from(child.pid()).ok().and_then(Pid::from_raw);
        ShellTree {
            child: Some(child),
            group: group.expect("a process ID"),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.group.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for the shell. Its descendants may go on.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let child = self.child.take().expect("waited for once");
        child.wait(Duration::from_secs(20)).code()
    }

    /// Kills only the shell.
    fn kill_shell(&mut self) {
        self.child.take().expect("not waited for").kill();
    }
}

impl Drop for ShellTree {
    fn drop(&mut self) {
        // The group is empty if all its processes have ended.
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

/// Watches the process tree of a child, without the cgroup that this machine may give it.
fn watch_tree(child: &ShellTree) -> TaskWatch {
    let mut scope = TaskScope::of_process(&local(), child.pid()).expect("a process");
    scope.disown_cgroups();
    TaskWatch::start(local(), scope, 0).expect("a watch")
}

/// Waits until a descriptor of the watch is ready.
pub(crate) fn wait_for_event(watch: &TaskWatch) {
    let mut fds = watch.poll_fds();
    assert!(!fds.is_empty());
    let bound = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    assert!(
        poll(&mut fds, Some(&bound)).expect("polled") > 0,
        "nothing happened"
    );
}

#[test]
fn a_tree_that_allocates_and_forks_is_summed() {
    // Each `dd` fills its buffer and waits for a reader that never reads.
    let dd = "dd if=/dev/zero bs=40M count=1 2>/dev/null";
    let mut child = ShellTree::start(&format!("{dd} | sleep 1000 & {dd} | sleep 1000 & wait"));
    let mut watch = watch_tree(&child);
    let is_large = |peaks: &TaskPeaks| {
        let is_two = peaks.rss_sum_bytes.is_some_and(|bytes| bytes >= 80 << 20);
        // Bytes count when the call that read them has returned.
        let is_read = peaks.rchar.is_some_and(|bytes| bytes >= 80 << 20);
        is_two && is_read && peaks.memory_bytes.is_some_and(|bytes| bytes >= 40 << 20)
    };
    let peaks = eventually("two buffers", || {
        let peaks = watch.sample(1).clone();
        is_large(&peaks)
            .then_some(peaks.clone())
            .ok_or(format!("{peaks:?}"))
    });
    assert_eq!(peaks.memory_source, Some(PeakSource::LargestProcess));
    assert!(peaks.processes >= Some(5), "{peaks:?}");
    assert_eq!(peaks.largest_process.expect("known").name, "dd");
    assert!(peaks.read_bytes.is_some());
    assert_eq!(watch.life(), TaskLife::Running);
    child.kill_shell();
    assert!(watch.has_ended(), "the root has");
    let left = watch.checkpoint();
    drop(watch);
    // Its descendants, now of another parent, are still known after a restart.
    let mut watch = TaskWatch::resume(local(), left).expect("resumed");
    let found = watch.autopsy(AutopsyCause::Signal { signal: 9 });
    let found = found["processes"].as_array().expect("a list").clone();
    let live = found.iter().filter(|process| process["has_ended"] != true);
    assert!(live.count() >= 4, "{found:?}");
    drop(child);
    assert!(watch.sample(2).rss_sum_bytes >= Some(80 << 20));
}

#[test]
fn a_short_task_has_its_cpu_time_and_exit() {
    let count = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let dir = TempDir::new();
    let go = dir.join("go");
    let ready = dir.join("ready").display().to_string();
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", go.display());
    // The work is done by a child that ends before its parent.
    let mut child = ShellTree::start(&format!("echo > {ready}; {wait}; ({count}); exit 7"));
    eventually("the shell runs", || fs::metadata(dir.join("ready")));
    let mut watch = watch_tree(&child);
    assert_eq!(watch.peaks().samples, 1);
    fs::write(go, "").expect("written");
    wait_for_event(&watch);
    assert_eq!(watch.check().life, TaskLife::Ended);
    // It was not waited for: the kernel still has its totals.
    let peaks = watch.sample(50).clone();
    assert!(peaks.cpu_seconds > Some(0.0), "{peaks:?}");
    assert!(peaks.memory_bytes > Some(0) && peaks.samples == 2);
    assert!(
        watch.poll_fds().is_empty(),
        "an ended process would stay ready"
    );
    assert_eq!(child.wait(), Some(7));
    if need_hardware(
        is_kernel(6, 15),
        "kernel that keeps exit statuses (Linux 6.15)",
    )
    .is_some()
    {
        assert_eq!(watch.exit(), Some(TaskExit::Status(7)));
    }
    assert_eq!(
        watch.sample(60).cpu_seconds,
        peaks.cpu_seconds,
        "also when it is gone"
    );
}

#[test]
fn a_process_of_another_user_is_watched_without_its_io() {
    let Some(other) = OtherUser::new() else {
        return;
    };
    let child = ShellTree::start("sleep 1000 & wait");
    let pid = child.pid();
    let peaks = other.run_as(|| {
        let mut scope = TaskScope::of_process(&local(), pid).expect("a process");
        scope.disown_cgroups();
        let mut watch = TaskWatch::start(local(), scope, 0).expect("a watch");
        eventually("a descendant", || {
            let peaks = watch.sample(1).clone();
            (peaks.processes == Some(2))
                .then_some(peaks.clone())
                .ok_or(format!("{peaks:?}"))
        })
    });
    assert!(peaks.memory_bytes.is_some() && peaks.cpu_seconds.is_some());
    assert_eq!((peaks.rchar, peaks.read_bytes), (None, None));
    assert_eq!(TaskScope::of_process(&local(), u32::MAX), None);
    let mut watch = watch_tree(&child);
    assert!(watch.sample(1).rchar.is_some(), "root may read it");
}

fn is_kernel(major: u32, minor: u32) -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}
