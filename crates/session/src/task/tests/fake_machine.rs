//! A machine made of files, whose processes and cgroups a test changes.

use std::fs;
use std::path::Path;

use pegel_machine::MachineFiles;
use pegel_testkit::TempDir;

use crate::task::{TaskScope, TaskWatch};

/// One process. Times are in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct FakeProcess {
    pub parent: u32,
    pub start: u64,
    pub state: char,
    pub user: u64,
    pub child_user: u64,
    pub faults: u64,
    pub child_faults: u64,
    pub resident_pages: u64,
    pub peak_kib: u64,
    pub read_bytes: u64,
}

impl Default for FakeProcess {
    fn default() -> FakeProcess {
        FakeProcess {
            parent: 1,
            start: 100,
            state: 'S',
            user: 0,
            child_user: 0,
            faults: 1,
            child_faults: 0,
            resident_pages: 10,
            peak_kib: 40,
            read_bytes: 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct FakeMachine {
    pub dir: TempDir,
}

impl FakeMachine {
    /// A machine with cgroups v2 and the processes 1 (init) and 50, a shell in `/task`.
    pub(super) fn new() -> FakeMachine {
        let machine = FakeMachine {
            dir: TempDir::new(),
        };
        machine.process(1, FakeProcess::default());
        machine.process(50, FakeProcess::default());
        machine.write("proc/50/cgroup", "0::/task\n");
        machine.write("sys/fs/cgroup/cgroup.controllers", "cpu memory io pids\n");
        machine
    }

    /// Adds the files of the cgroup `/task`, which contains `pids`.
    pub(super) fn add_task_cgroup(&self, pids: &str) {
        let folder = "sys/fs/cgroup/task";
        for (file, text) in [
            ("cgroup.procs", pids),
            ("cgroup.events", "populated 1\nfrozen 0\n"),
            ("memory.current", "1000\n"),
            ("memory.peak", "2000\n"),
            ("memory.max", "1000000\n"),
            ("memory.events", "low 0\noom 0\noom_kill 0\n"),
            ("memory.stat", "anon 900\nfile 100\n"),
            (
                "cpu.stat",
                "usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\n",
            ),
            (
                "io.stat",
                "8:0 rbytes=100 wbytes=10\n8:16 rbytes=1 wbytes=2\n",
            ),
            ("pids.current", "2\n"),
        ] {
            self.write(&format!("{folder}/{file}"), text);
        }
    }

    pub(super) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    pub(super) fn process(&self, pid: u32, process: FakeProcess) {
        let FakeProcess {
            parent,
            start,
            state,
            user,
            child_user,
            faults,
            child_faults,
            resident_pages,
            peak_kib,
            read_bytes,
        } = process;
        let stat = format!(
            "{pid} (p{pid}) {state} {parent} 0 0 0 -1 0 {faults} {child_faults} 0 0 {user} 0 \
             {child_user} 0 20 0 1 0 {start} 4096 {resident_pages} 0\n"
        );
        self.write(&format!("proc/{pid}/stat"), stat);
        let status = format!("Name:\tp\nVmHWM:\t  {peak_kib} kB\nVmSwap:\t 3 kB\nThreads:\t1\n");
        self.write(&format!("proc/{pid}/status"), status);
        let io = format!("rchar: 7\nwchar: 8\nread_bytes: {read_bytes}\nwrite_bytes: 0\n");
        self.write(&format!("proc/{pid}/io"), io);
        self.write(
            &format!("proc/{pid}/cmdline"),
            format!("p{pid}\0--token\0PLANTED\0"),
        );
    }

    pub(super) fn remove(&self, path: impl AsRef<Path>) {
        let path = self.dir.join(path);
        fs::remove_dir_all(&path).expect("removed");
    }

    pub(super) fn end(&self, pid: u32) {
        self.remove(format!("proc/{pid}"));
    }

    pub(super) fn files(&self) -> MachineFiles {
        MachineFiles::at(self.dir.path())
    }

    pub(super) fn scope(&self) -> TaskScope {
        TaskScope::of_process(&self.files(), 50).expect("process 50")
    }

    /// Starts to watch the task of process 50.
    pub(super) fn watch(&self) -> TaskWatch {
        TaskWatch::start(self.files(), self.scope(), 0).expect("a watch")
    }
}

/// Returns seconds as ticks.
pub(super) fn ticks(seconds: u64) -> u64 {
    seconds * rustix::param::clock_ticks_per_second()
}
