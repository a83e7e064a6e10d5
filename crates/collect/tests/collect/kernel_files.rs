//! Faulty kernel files: missing, empty, truncated, garbage, too large, failing reads, counters that
//! go backwards, and devices that come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use crate::support::{TestClock, copy, machine, open, repository};
use pegel_collect::{
    CollectSettings, CollectorEntry, CollectorSet, CollectorSettings, CollectorState,
    CollectorStatus, Execution, REGISTRY,
};
use pegel_metric::{Input, Tick};

/// Long enough for a failed collector to be reopened.
const LATER: Duration = Duration::from_secs(6);

/// A copy of the recorded machine whose files the test changes; removed on drop.
struct ProcFilesNode {
    root: PathBuf,
    clock: Arc<TestClock>,
    set: CollectorSet,
    tick: Tick,
}

impl ProcFilesNode {
    fn new(prepare: impl FnOnce(&Path)) -> ProcFilesNode {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let name = format!("pegel-kernel-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        for part in ["proc", "run"] {
            let recorded = repository().join("tests/fixtures/basic").join(part);
            copy(&recorded, &root.join(part));
        }
        prepare(&root);
        let clock = TestClock::at(1_000_000);
        let set = open(&settings(), machine(&root), 4, &clock);
        let tick = Tick::new(Input::Collect);
        ProcFilesNode {
            root,
            clock,
            set,
            tick,
        }
    }

    fn write(&self, file: &str, text: &[u8]) {
        fs::write(self.root.join(file), text).expect("written");
    }

    fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.root.join(file)).expect("read")
    }

    fn pass(&mut self) {
        self.clock.advance(LATER);
        self.set.sample_all(0, &mut self.tick);
    }

    fn status(&self, name: &str) -> CollectorStatus {
        let all = self.set.status();
        all.into_iter()
            .find(|status| status.name == name)
            .expect("known")
    }

    /// Returns the failed collectors and their errors.
    fn failed(&self) -> BTreeMap<&'static str, String> {
        let all = self.set.status().into_iter();
        let failed = all.filter(|status| status.state == CollectorState::Failed);
        failed
            .map(|status| (status.name, status.error.unwrap_or_default()))
            .collect()
    }

    /// Returns the present series of each group, without the agent's own, which depend on the
    /// others.
    fn series(&self) -> BTreeMap<String, BTreeSet<String>> {
        let rows = self
            .tick
            .rows()
            .iter()
            .filter(|row| &*row.members.group != "agent");
        let series = rows.map(|row| {
            let members = row.members.series.iter().enumerate();
            let present = members.filter(|(index, _)| row.is_present(*index));
            let texts = present.map(|(_, series)| series.text().to_owned());
            (row.members.group.to_string(), texts.collect())
        });
        series
            .filter(|(_, texts): &(_, BTreeSet<String>)| !texts.is_empty())
            .collect()
    }

    fn value(&self, series: &str) -> Option<f64> {
        self.tick.rows().iter().find_map(|row| {
            let mut members = row.members.series.iter().enumerate();
            let (index, _) =
                members.find(|(index, known)| known.text() == series && row.is_present(*index))?;
            Some(row.values[index])
        })
    }
}

/// Disables threaded collectors: their threads do not use the test clock.
fn settings() -> CollectSettings {
    without(|entry| entry.execution == Execution::Threaded)
}

/// Disables all collectors but one.
fn only(name: &str) -> CollectSettings {
    without(|entry| entry.name != name)
}

fn without(is_off: impl Fn(&CollectorEntry) -> bool) -> CollectSettings {
    let off = CollectorSettings {
        enabled: Some(false),
        rate: None,
    };
    let collectors = REGISTRY.iter().filter(|entry| is_off(entry));
    CollectSettings {
        collectors: collectors
            .map(|entry| (entry.name.to_owned(), off.clone()))
            .collect(),
        ..CollectSettings::default()
    }
}

impl Drop for ProcFilesNode {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Files that have lines of several kinds, of which unknown ones are skipped: spoiling them need
/// not be a failure.
const LENIENT: [&str; 4] = [
    "proc/mdstat",
    "proc/net/rpc/nfs",
    "proc/net/rpc/nfsd",
    "proc/self/mountstats",
];

/// Returns each file that inline collectors parse, with the collectors. They keep their files open,
/// so the open descriptors of this process name them.
fn parsed_files() -> BTreeMap<String, Vec<&'static str>> {
    let mut node = ProcFilesNode::new(|_| {});
    let root = node.root.canonicalize().expect("there");
    let mut files: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for entry in REGISTRY {
        if entry.execution == Execution::Threaded {
            continue;
        }
        node.set = open(&only(entry.name), machine(&root), 4, &node.clock);
        for file in open_files_below(&root) {
            files.entry(file).or_default().push(entry.name);
        }
    }
    files.retain(|file, _| !LENIENT.contains(&file.as_str()));
    files
}

fn open_files_below(root: &Path) -> BTreeSet<String> {
    let descriptors = fs::read_dir("/proc/self/fd").expect("listed").flatten();
    let files = descriptors.filter_map(|entry| {
        let file = fs::read_link(entry.path()).ok()?;
        let is_file = fs::metadata(&file).is_ok_and(|metadata| metadata.is_file());
        let file = file.strip_prefix(root).ok()?.to_str()?.to_owned();
        is_file.then_some(file)
    });
    files.collect()
}

#[test]
fn files_are_known_by_their_open_descriptors() {
    let files = parsed_files();
    assert_eq!(files["proc/stat"], ["cpu", "stat"]);
    assert_eq!(files["proc/loadavg"], ["load", "processes"]);
    assert_eq!(files["proc/net/softnet_stat"], ["softnet"]);
    assert!(files.len() > 20, "{files:?}");
}

#[test]
fn a_malformed_file_fails_only_its_collectors() {
    let mut node = ProcFilesNode::new(|_| {});
    node.pass();
    assert_eq!(node.failed(), BTreeMap::new());
    let whole = node.series();
    for (file, owners) in &parsed_files() {
        let good = node.read(file);
        let cut = &good[..good.len() - 2];
        let garbage = [
            &b""[..],
            cut,
            b"\xff\xfe\0\x01 \n\xf0\x28\n",
            b"-1 -1 -1 -1 -1 -1 -1 -1\n",
            b"cpu pgfault: some oom_kill total= 8 0\n",
        ];
        for text in garbage {
            // A node without disks has an empty file.
            if (file.as_str(), text) == ("proc/diskstats", b"") {
                continue;
            }
            node.write(file, text);
            node.pass();
            let failed = node.failed();
            let names: Vec<&str> = failed.keys().copied().collect();
            assert_eq!(names, *owners, "{file} with {text:?}: {failed:?}");
            for reason in failed.values() {
                assert!(reason.contains(file), "{reason}");
            }
            let mut others = whole.clone();
            others.retain(|group, _| !owners.contains(&group.as_str()));
            assert_eq!(node.series(), others, "{file} with {text:?}");

            node.write(file, &good);
            node.pass();
            assert_eq!(node.failed(), BTreeMap::new(), "{file} after {text:?}");
            assert_eq!(node.series(), whole, "{file} after {text:?}");
        }
    }
}

#[test]
fn a_missing_file_is_absent_until_it_appears() {
    for (file, owners) in &parsed_files() {
        let mut node =
            ProcFilesNode::new(|root| fs::remove_file(root.join(file)).expect("removed"));
        node.pass();
        assert_eq!(node.failed(), BTreeMap::new(), "{file}");
        let good = fs::read(repository().join("tests/fixtures/basic").join(file)).expect("read");
        node.write(file, &good);
        // Retried once a minute.
        for _ in 0..11 {
            node.pass();
        }
        for owner in owners {
            assert_eq!(node.status(owner).state, CollectorState::Active, "{file}");
        }
    }
}

#[test]
fn a_file_that_fails_when_it_is_read_is_named_with_the_cause() {
    // Reading the memory of a process at offset 0 fails.
    let mut node = ProcFilesNode::new(|root| {
        let path = root.join("proc/meminfo");
        fs::remove_file(&path).expect("removed");
        symlink("/proc/self/mem", path).expect("linked");
    });
    node.pass();
    let failed = node.failed();
    assert_eq!(failed.keys().collect::<Vec<_>>(), [&"memory"]);
    assert!(
        failed["memory"].starts_with("cannot read ") && failed["memory"].contains("os error 5"),
        "{failed:?}"
    );
    assert_eq!(node.status("load").state, CollectorState::Active);
}

/// A process that only waits; killed on drop.
struct SleepingProcess(Child);

impl SleepingProcess {
    fn start() -> SleepingProcess {
        let mut command = Command::new("sleep");
        SleepingProcess(
            command
                .arg("1000")
                .stdin(Stdio::null())
                .spawn()
                .expect("started"),
        )
    }
}

impl Drop for SleepingProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_file_that_disappears_after_it_was_opened_is_a_failure_until_it_is_back() {
    let sleeper = SleepingProcess::start();
    let mut node = ProcFilesNode::new(|root| {
        let path = root.join("proc/self/stat");
        fs::remove_file(&path).expect("removed");
        symlink(format!("/proc/{}/stat", sleeper.0.id()), path).expect("linked");
    });
    node.pass();
    assert_eq!(node.failed(), BTreeMap::new());
    assert_eq!(node.value("pegel_threads"), Some(1.0));
    let whole = node.series();

    // The file stays open in the collector, but its process is gone: ESRCH.
    drop(sleeper);
    node.clock.advance(Duration::from_millis(500));
    node.set.sample_all(0, &mut node.tick);
    let failed = node.failed();
    assert_eq!(failed.keys().collect::<Vec<_>>(), [&"agent"]);
    assert!(failed["agent"].contains("os error 3"), "{failed:?}");
    assert_eq!(node.series(), whole, "the others go on");

    let path = node.root.join("proc/self/stat");
    fs::remove_file(&path).expect("removed");
    fs::copy(
        repository().join("tests/fixtures/basic/proc/self/stat"),
        path,
    )
    .expect("copied");
    node.pass();
    assert_eq!(node.failed(), BTreeMap::new());
}

#[test]
fn a_file_may_grow_beyond_the_buffer_but_not_without_end() {
    let mut node = ProcFilesNode::new(|_| {});
    node.pass();
    let good = node.read("proc/meminfo");
    let mut large = good.clone();
    for number in 0..10_000 {
        large.extend_from_slice(format!("Large{number}:   {number} kB\n").as_bytes());
    }
    node.write("proc/meminfo", &large);
    node.pass();
    assert_eq!(
        node.value("node_memory_Large9999_bytes"),
        Some(9999.0 * 1024.0)
    );
    assert_eq!(node.failed(), BTreeMap::new());

    for number in 10_000..17_000 {
        large.extend_from_slice(format!("Large{number}: 1 kB\n").as_bytes());
    }
    node.write("proc/meminfo", &large);
    node.pass();
    let failed = node.failed();
    assert!(
        failed["memory"].ends_with("meminfo has more than 16384 names"),
        "{failed:?}"
    );

    let file = fs::OpenOptions::new()
        .write(true)
        .open(node.root.join("proc/meminfo"));
    file.and_then(|file| file.set_len(17 << 20)).expect("grown");
    node.pass();
    let failed = node.failed();
    assert!(
        failed["memory"].ends_with("is larger than 16777216 bytes"),
        "{failed:?}"
    );
    assert_eq!(failed.len(), 1);

    node.write("proc/meminfo", &good);
    node.pass();
    assert_eq!(node.failed(), BTreeMap::new());
    assert_eq!(
        node.value("node_memory_Large9999_bytes"),
        None,
        "and its series are gone"
    );
}

#[test]
fn maximal_and_decreasing_counters_are_shown_unchanged() {
    let mut node = ProcFilesNode::new(|_| {});
    let bytes = "node_network_receive_bytes_total{device=\"eth9\"}";
    let reads = "node_disk_reads_completed_total{device=\"sdz\"}";
    let heading = "Inter-|   Receive\n face |bytes\n";
    for (counter, expected) in [
        ("18446744073709551615", 1.844_674_407_370_955_2e19),
        ("3", 3.0),
        ("0", 0.0),
    ] {
        let columns = format!("{counter} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0");
        node.write(
            "proc/net/dev",
            format!("{heading} eth9: {columns}\n").as_bytes(),
        );
        node.write("proc/diskstats", format!("8 0 sdz {columns}\n").as_bytes());
        node.write("proc/vmstat", format!("pgfault {counter}\n").as_bytes());
        node.pass();
        assert_eq!(node.failed(), BTreeMap::new());
        for series in [bytes, reads, "node_vmstat_pgfault"] {
            assert_eq!(node.value(series), Some(expected), "{series}");
        }
    }
    node.write("proc/vmstat", b"pgfault 18446744073709551616\n");
    node.pass();
    assert_eq!(
        node.failed().into_keys().collect::<Vec<_>>(),
        ["vmstat"],
        "more than a counter holds"
    );
}

#[test]
fn a_cpu_a_disk_and_an_interface_come_and_go() {
    let mut node = ProcFilesNode::new(|_| {});
    let sources = ["proc/stat", "proc/diskstats", "proc/net/dev"];
    let good = sources.map(|file| String::from_utf8(node.read(file)).expect("text"));
    let devices = ["cpu1 ", " sda ", "eth0:"];
    node.pass();
    node.pass();
    let whole = node.series();
    for round in 0..5 {
        for ((file, text), device) in sources.iter().zip(&good).zip(devices) {
            let less: String = text
                .split_inclusive('\n')
                .filter(|line| !line.contains(device))
                .collect();
            assert!(less.len() < text.len(), "{device} is in {file}");
            node.write(file, less.as_bytes());
        }
        node.pass();
        assert_eq!(node.failed(), BTreeMap::new(), "round {round}");
        let mut groups = node.series();
        groups.retain(|group, _| ["cpu", "disk", "network"].contains(&group.as_str()));
        let texts: BTreeSet<String> = groups.into_values().flatten().collect();
        for gone in [
            "cpu=\"1\",mode=\"user\"",
            "device=\"sda\"",
            "device=\"eth0\"",
        ] {
            assert!(
                !texts
                    .iter()
                    .any(|text| text.contains(gone) && !text.contains("speed")),
                "{gone} in round {round}"
            );
        }
        for (file, text) in sources.iter().zip(&good) {
            node.write(file, text.as_bytes());
        }
        node.pass();
        assert_eq!(node.series(), whole, "round {round}");
    }
    // Returning series reuse their old slots: no group contains a series twice.
    for row in node.tick.rows() {
        let texts: BTreeSet<&str> = row
            .members
            .series
            .iter()
            .map(|series| series.text())
            .collect();
        assert_eq!(
            texts.len(),
            row.members.series.len(),
            "{}",
            row.members.group
        );
    }
}
