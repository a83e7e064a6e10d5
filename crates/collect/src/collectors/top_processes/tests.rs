//! The scan, the selection and hostile processes, on generated `/proc` trees.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

use pegel_metric::{CommandVisibility, ProcessRow};

use super::top_selection::{SERIES_PROCESSES_MAX, TOP_COUNT};
use super::*;
use crate::collectors::testing::{SettableClock, context_without_files, present_series};
use crate::{Host, OpenOutcome};

/// A generated node; removed on drop.
struct GeneratedNode {
    root: PathBuf,
    clock: Arc<SettableClock>,
    live: Arc<LiveProcesses>,
    proc_stat: Arc<SharedFile>,
    collector: Box<dyn Collector>,
    group: SampleGroup,
}

/// One process of a generated node.
#[derive(Clone, Copy)]
struct Process<'a> {
    pid: u32,
    comm: &'a [u8],
    start: u64,
    ticks: u64,
    pages: u64,
    uid: &'a str,
    child_faults: u64,
    parent: u32,
}

const IDLE: Process<'static> = Process {
    pid: 1,
    comm: b"idle",
    start: 100,
    ticks: 5,
    pages: 1,
    uid: "0\t0\t0\t0",
    child_faults: 0,
    parent: 1,
};

impl Process<'_> {
    fn write(&self, root: &Path) {
        let folder = root.join(format!("proc/{}", self.pid));
        fs::create_dir_all(&folder).expect("create");
        let mut stat = format!("{} (", self.pid).into_bytes();
        stat.extend_from_slice(self.comm);
        let (ticks, start, pages, faults) = (self.ticks, self.start, self.pages, self.child_faults);
        let parent = self.parent;
        let rest = format!(
            ") S {parent} 1 1 0 -1 0 0 {faults} 7 0 {ticks} 0 0 0 20 0 3 0 {start} 4096 {pages} 0\n"
        );
        stat.extend_from_slice(rest.as_bytes());
        fs::write(folder.join("stat"), stat).expect("write");
        let status = format!("Name:\tx\nUid:\t{}\n", self.uid);
        fs::write(folder.join("status"), status).expect("write");
    }
}

impl GeneratedNode {
    fn new(processes: &[Process<'_>]) -> GeneratedNode {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let folder = format!("pegel-processes-{}-{number}", std::process::id());
        // In memory where possible: ten thousand processes are as many directories.
        let memory = Path::new("/dev/shm");
        let base = match memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        };
        let root = base.join(folder);
        fs::create_dir_all(root.join("proc")).expect("create");
        fs::create_dir_all(root.join("etc")).expect("create");
        fs::write(root.join("etc/passwd"), "ada:x:1001:1001::/:\n").expect("write");
        for process in processes {
            process.write(&root);
        }
        let clock = Arc::new(SettableClock(AtomicI64::new(1_000_000)));
        let context = Context {
            host: Host {
                page_bytes: 4096,
                user_hz: 100,
                ..Host::at(&root)
            },
            proc_stat: Arc::new(SharedFile::new(root.join("proc/stat"), clock.clone())),
            ..context_without_files(clock.clone())
        };
        let node = |collector| GeneratedNode {
            root: root.clone(),
            clock,
            live: context.live_processes.clone(),
            proc_stat: context.proc_stat.clone(),
            collector,
            group: SampleGroup::new("top_processes", 3, 1000),
        };
        fs::write(root.join("proc/stat"), "cpu  0 0 0 9\nbtime 0\n").expect("write");
        let OpenOutcome::Active(collector) = open(&context).expect("valid") else {
            panic!("absent");
        };
        let mut node = node(collector);
        node.write("proc/loadavg", "0.1 0.1 0.1 1/200 4711\n");
        node.set_busy(0);
        node
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        fs::write(self.root.join(path), text).expect("write");
    }

    /// Sets the CPU ticks of the node, as the sampler thread reads them.
    fn set_busy(&mut self, ticks: u64) {
        self.write("proc/stat", format!("cpu  {ticks} 0 0 9\nbtime 0\n"));
        assert!(self.proc_stat.open().expect("open"));
        self.proc_stat.begin_pass();
        self.proc_stat.parse_with(|_| Ok(())).expect("read");
    }

    /// Runs a pass five seconds later and returns the table.
    fn pass(&mut self) -> Arc<ProcessTable> {
        self.clock.0.fetch_add(5_000, Relaxed);
        self.group.clear();
        self.collector.collect(&mut self.group).expect("valid");
        self.live.table().expect("a pass")
    }

    /// The IDs of processes with stored history.
    fn stored(&mut self) -> Vec<String> {
        let series = present_series(&mut self.group).into_iter();
        let cpu = series.filter(|text| text.starts_with("node_process_cpu"));
        cpu.map(|text| text.split("pid=\"").nth(1).expect("a label").to_owned())
            .map(|text| text.split('"').next().unwrap_or_default().to_owned())
            .collect()
    }
}

impl Drop for GeneratedNode {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn row(table: &ProcessTable, pid: u32) -> &ProcessRow {
    let found = table.rows.iter().find(|row| row.pid == pid);
    found.unwrap_or_else(|| panic!("{pid} is not in the table"))
}

#[test]
fn the_top_processes_since_the_last_pass_are_stored() {
    let mut processes: Vec<Process<'_>> = (1..=30).map(|pid| Process { pid, ..IDLE }).collect();
    processes.extend([
        // Busy long ago; large; and about to be busy.
        Process {
            pid: 100,
            ticks: 90,
            pages: 0,
            ..IDLE
        },
        Process {
            pid: 102,
            pages: 900,
            ..IDLE
        },
        Process {
            pid: 103,
            pages: 0,
            ..IDLE
        },
    ]);
    let mut node = GeneratedNode::new(&processes);
    node.pass();
    Process {
        pid: 103,
        ticks: 505,
        pages: 0,
        ..IDLE
    }
    .write(&node.root);
    node.set_busy(500);
    let table = node.pass();
    assert!((row(&table, 103).cpu - 1.0).abs() < 1e-9, "one core");
    assert_eq!(table.rows.len(), 33);
    assert!((table.interval - 5.0).abs() < 1e-9);
    let stored = node.stored();
    assert!(stored.contains(&"102".to_owned()) && stored.contains(&"103".to_owned()));
    assert!(!stored.contains(&"100".to_owned()), "{stored:?}");
    assert_eq!(stored.len(), TOP_COUNT + 1, "ten by memory and one by CPU");
    for _ in 0..6 {
        assert!(
            node.stored().contains(&"103".to_owned()),
            "no holes in charts"
        );
        node.pass();
    }
    node.pass();
    assert!(
        !node.stored().contains(&"103".to_owned()),
        "idle for half a minute"
    );
}

#[test]
fn an_idle_process_that_becomes_busy_is_found_by_the_nodes_cpu_time() {
    let processes: Vec<Process<'_>> = (1..=60)
        .map(|pid| Process {
            pid,
            pages: u64::from(pid),
            ..IDLE
        })
        .collect();
    let mut node = GeneratedNode::new(&processes);
    for _ in 0..3 {
        node.pass();
    }
    // Too little to be worth a scan of all processes: found within six passes.
    Process {
        pid: 7,
        ticks: 25,
        pages: 7,
        ..IDLE
    }
    .write(&node.root);
    node.set_busy(20);
    let found = (0..6).position(|_| row(&node.pass(), 7).cpu > 0.0);
    assert!(found.is_some(), "read in its turn");
    Process {
        pid: 8,
        ticks: 305,
        pages: 8,
        ..IDLE
    }
    .write(&node.root);
    node.set_busy(320);
    assert!(row(&node.pass(), 8).cpu > 0.0, "found at once");
}

#[test]
fn new_processes_are_found_and_ended_ones_dropped() {
    let mut node = GeneratedNode::new(&[Process { pid: 1, ..IDLE }, Process { pid: 2, ..IDLE }]);
    node.pass();
    Process {
        pid: 3,
        uid: "1001\t1001\t1001\t1001",
        ..IDLE
    }
    .write(&node.root);
    node.write("proc/loadavg", "0.1 0.1 0.1 1/201 4712\n");
    let table = node.pass();
    assert_eq!(
        (row(&table, 3).uid, &*row(&table, 3).user),
        (Some(1001), "ada")
    );
    // Its directory is listed, but its files are gone: it ends during the scan.
    fs::remove_file(node.root.join("proc/3/stat")).expect("remove");
    fs::remove_dir_all(node.root.join("proc/2")).expect("remove");
    node.write("proc/loadavg", "0.1 0.1 0.1 1/199 4712\n");
    let pids: Vec<u32> = node.pass().rows.iter().map(|row| row.pid).collect();
    assert_eq!(pids, [1]);
    // A reused ID is a new process.
    Process {
        pid: 1,
        start: 999,
        comm: b"other",
        ..IDLE
    }
    .write(&node.root);
    assert_eq!(&*row(&node.pass(), 1).comm, "other");
}

#[test]
fn hostile_names_and_command_lines_are_bounded_and_printable() {
    let hostile = Process {
        pid: 9,
        comm: b"a\"b\\\n\x1b[31m\xff) R 1",
        uid: "1001\t1001\t1001\t1001",
        ..IDLE
    };
    let mut node = GeneratedNode::new(&[
        hostile,
        Process {
            pid: 10,
            uid: "1001\t0\t0\t1001",
            ..IDLE
        },
    ]);
    let mut command = b"app\0--token=PLANTED\0\x1b[2J\0".to_vec();
    command.resize(1 << 20, b'x');
    node.write("proc/9/cmdline", &command);
    node.write(
        "proc/9/cgroup",
        "0::/system.slice/slurmstepd.scope/job_17/step_0\n",
    );
    node.write("proc/10/cmdline", "sudo\0-s\0");
    let table = node.pass();
    let row_9 = row(&table, 9);
    assert_eq!(&*row_9.comm, "a\"b\\x5c\n\\u{1b}[31m\\xff) R 1");
    assert_eq!(row_9.job.as_deref(), Some("17"));
    let command = row_9.command_for(CommandVisibility::All).expect("shown");
    assert_eq!(command, "app --token=[hidden] \\u{1b}[2J…");
    assert_eq!(
        row_9.command_for(CommandVisibility::OwnedBy(1001)),
        Some(command)
    );
    assert_eq!(row_9.command_for(CommandVisibility::OwnedBy(1002)), None);
    assert_eq!(row_9.command_for(CommandVisibility::None), None);
    let set_user_id = row(&table, 10);
    assert_eq!(set_user_id.uid, Some(0), "the effective user");
    for uid in [0, 1001] {
        let visible = CommandVisibility::OwnedBy(uid);
        assert_eq!(set_user_id.command_for(visible), None, "uid {uid}");
    }
    assert!(!format!("{:?}", present_series(&mut node.group)).contains("app"));
}

#[test]
fn ten_thousand_processes_are_listed_and_few_are_stored() {
    let processes: Vec<Process<'_>> = (1..=10_000)
        .map(|pid| Process {
            pid,
            pages: u64::from(pid),
            ticks: u64::from(pid),
            ..IDLE
        })
        .collect();
    let mut node = GeneratedNode::new(&processes);
    node.pass();
    for process in &processes[..9_000] {
        Process {
            ticks: process.ticks + 50,
            ..*process
        }
        .write(&node.root);
    }
    node.set_busy(450_000);
    let table = node.pass();
    assert_eq!(table.rows.len(), 10_000);
    assert_eq!(
        table.rows.iter().filter(|row| row.cpu > 0.09).count(),
        9_000
    );
    assert!(node.stored().len() <= SERIES_PROCESSES_MAX);
}

#[test]
fn io_and_gpu_memory_select_processes_too() {
    let mut processes: Vec<Process<'_>> = (1..=20)
        .map(|pid| Process {
            pid,
            pages: 1_000,
            ..IDLE
        })
        .collect();
    processes.push(Process {
        pid: 50,
        pages: 0,
        ..IDLE
    });
    processes.push(Process {
        pid: 51,
        pages: 0,
        ..IDLE
    });
    let mut node = GeneratedNode::new(&processes);
    node.pass();
    let io = |written: u64| format!("rchar: 1\nread_bytes: 0\nwrite_bytes: {written}\n");
    node.live.set_gpu("0", [(51, 1 << 30)].into_iter());
    for (ticks, written) in [(10, 1_000_000), (12, 11_000_000)] {
        Process {
            pid: 50,
            ticks,
            pages: 0,
            ..IDLE
        }
        .write(&node.root);
        node.write("proc/50/io", io(written));
        node.set_busy(10_000 * ticks);
        node.pass();
    }
    let table = node.live.table().expect("a pass");
    let rates = row(&table, 50).io.expect("readable");
    assert!((rates.write - 2_000_000.0).abs() < 1.0, "{rates:?}");
    assert_eq!(row(&table, 51).gpu_memory, Some(1 << 30));
    assert_eq!(row(&table, 1).gpu_memory, None);
    let stored = node.stored();
    assert!(
        stored.contains(&"50".to_owned()) && stored.contains(&"51".to_owned()),
        "{stored:?}"
    );
    let series = present_series(&mut node.group);
    let written = "node_process_written_bytes_total{comm=\"idle\",pid=\"50\",user=\"0\"} 11000000";
    assert!(series.iter().any(|text| text == written), "{series:?}");
    let gpu = "node_process_gpu_memory_bytes{comm=\"idle\",pid=\"51\",user=\"0\"} 1073741824";
    assert!(series.iter().any(|text| text == gpu), "{series:?}");
}

/// A shell that starts short programs uses hardly any CPU time itself; the kernel adds what its
/// children wrote to its own counters when they end.
#[test]
fn what_short_children_wrote_is_seen_in_the_pass_in_which_they_ended() {
    let mut processes: Vec<Process<'_>> = (1..=20)
        .map(|pid| Process {
            pid,
            pages: 1_000,
            ..IDLE
        })
        .collect();
    let shell = Process {
        pid: 50,
        pages: 0,
        // Younger than a minute: the clock starts at 1,000 s after boot.
        start: 99_900,
        ..IDLE
    };
    processes.push(shell);
    let mut node = GeneratedNode::new(&processes);
    let io = |written: u64| format!("rchar: 1\nread_bytes: 0\nwrite_bytes: {written}\n");
    node.write("proc/50/io", io(1_000));
    node.pass();
    for pass in 1..=14 {
        Process {
            child_faults: 100 * pass,
            ..shell
        }
        .write(&node.root);
        node.write("proc/50/io", io(1_000 + 50_000_000 * pass));
        let table = node.pass();
        let rates = row(&table, 50).io.expect("readable");
        assert!(
            (rates.write - 10_000_000.0).abs() < 1.0,
            "{pass}: {rates:?}"
        );
    }
    let table = node.pass();
    let rates = row(&table, 50).io.expect("readable");
    assert!(rates.write.abs() < 1.0, "it is idle now: {rates:?}");
}

#[test]
fn io_that_was_shown_with_a_child_is_not_shown_again_with_its_parent() {
    let shell = Process { pid: 50, ..IDLE };
    let child = Process {
        pid: 60,
        parent: 50,
        ticks: 10,
        ..IDLE
    };
    let mut node = GeneratedNode::new(&[IDLE, shell, child]);
    let io = |written: u64| format!("rchar: 1\nread_bytes: 0\nwrite_bytes: {written}\n");
    node.write("proc/50/io", io(1_000));
    node.write("proc/60/io", io(0));
    node.pass();
    for pass in 1..=3 {
        Process {
            ticks: 10 + pass,
            ..child
        }
        .write(&node.root);
        node.write("proc/60/io", io(50_000_000 * pass));
        node.set_busy(pass);
        let rates = row(&node.pass(), 60).io.expect("readable");
        assert!((rates.write - 10_000_000.0).abs() < 1.0, "{rates:?}");
    }
    fs::remove_dir_all(node.root.join("proc/60")).expect("removed");
    node.write("proc/loadavg", "0.1 0.1 0.1 1/199 4711\n");
    Process {
        child_faults: 100,
        ticks: 6,
        ..shell
    }
    .write(&node.root);
    // The rest is what the child wrote after its last reading.
    node.write("proc/50/io", io(1_000 + 150_000_000 + 5_000));
    let rates = row(&node.pass(), 50).io.expect("readable");
    assert!((rates.write - 1_000.0).abs() < 1.0, "{rates:?}");
}

#[test]
fn a_process_that_was_idle_for_long_has_its_io_since_then() {
    let busy = Process {
        pid: 50,
        ticks: 10,
        ..IDLE
    };
    let mut node = GeneratedNode::new(&[IDLE, busy]);
    let io = |written: u64| format!("rchar: 1\nread_bytes: 0\nwrite_bytes: {written}\n");
    node.write("proc/50/io", io(1_000));
    node.pass();
    for _ in 0..60 {
        node.pass();
    }
    Process { ticks: 500, ..busy }.write(&node.root);
    node.write("proc/50/io", io(50_001_000));
    node.set_busy(490);
    let rates = row(&node.pass(), 50).io.expect("readable");
    assert!((rates.write - 10_000_000.0).abs() < 1.0, "{rates:?}");
}

#[test]
fn the_nodes_cpu_time_is_that_of_programs() {
    assert_eq!(busy_ticks(b"cpu  10 20 30 9999 5 6 7\ncpu0 1\n"), Some(60));
    for bad in ["", "cpu0 1 2 3\n", "cpu 1 x 3\n"] {
        assert_eq!(busy_ticks(bad.as_bytes()), None, "{bad}");
    }
}
