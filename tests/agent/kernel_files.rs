//! Kernel files that become malformed while the agent runs: one collector fails with a reason, the
//! others are not affected, and all series return with the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use pegel_testkit::{AgentProcess, ChildProcess, ExporterReadings, TempDir, eventually, fixture};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::PEGEL;

/// A high rate, so that a changed file is noticed at once. The level is the default.
const CONFIG: &str = "rate: 20ms\ncollectors: {vmstat: {rate: 20ms}}\n";

/// An agent on a machine made of files, which the test changes.
struct KernelFilesNode {
    root: TempDir,
    agent: AgentProcess,
}

impl KernelFilesNode {
    fn start() -> KernelFilesNode {
        let root = TempDir::copy_of(fixture("basic"));
        let agent = PEGEL
            .agent()
            .env("PEGEL_ROOT", root.path())
            .config(CONFIG)
            .start();
        KernelFilesNode { root, agent }
    }

    fn write(&self, file: &str, text: &[u8]) {
        fs::write(self.root.join(file), text).expect("written");
    }

    /// Returns the series of the machine, without those about the agent, which change by
    /// themselves.
    fn series(&self) -> BTreeSet<String> {
        let readings = ExporterReadings::parse_prometheus(self.agent.get("/metrics").text());
        let texts = readings.values.into_keys();
        texts.filter(|text| !text.starts_with("pegel_")).collect()
    }

    /// Returns the failed collectors with their errors.
    fn failed(&self) -> BTreeMap<String, String> {
        let status = self.agent.status();
        let collectors = status["collectors"].as_array().expect("a list");
        let failed = collectors
            .iter()
            .filter(|collector| collector["state"] == "failed");
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        failed
            .map(|collector| (text(&collector["name"]), text(&collector["error"])))
            .collect()
    }

    /// Waits until exactly these collectors have failed, with an error that names the file.
    fn wait_for_failure(&self, file: &str, owners: &[&str]) {
        eventually(&format!("{owners:?} fail because of {file}"), || {
            let failed = self.failed();
            let is_so = failed.keys().eq(owners) && failed.values().all(|why| why.contains(file));
            if is_so { Ok(()) } else { Err(failed) }
        });
    }

    /// Waits until every series of `whole` is present and no collector has failed.
    fn wait_until_whole(&self, whole: &BTreeSet<String>) {
        eventually("everything is back", || {
            let (series, failed) = (self.series(), self.failed());
            let missing: Vec<String> = whole.difference(&series).cloned().collect();
            let is_so = missing.is_empty() && failed.is_empty();
            if is_so {
                Ok(())
            } else {
                Err((missing, failed))
            }
        });
    }
}

fn good(file: &str) -> Vec<u8> {
    fs::read(fixture("basic").join(file)).expect("a fixture")
}

/// A file, the collectors that read it, and prefixes of the series that may be lost with it.
type Case = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);
const CASES: &[Case] = &[
    (
        "proc/loadavg",
        &["load"],
        &[
            "node_load",
            "load_average",
            "node_uptime",
            "node_time_seconds",
        ],
    ),
    ("proc/meminfo", &["memory"], &["node_memory_", "used_RAM"]),
    (
        "proc/stat",
        &["cpu", "stat"],
        &[
            "node_cpu_",
            "cpu_percent",
            "node_intr_total",
            "node_context_switches_total",
            "node_forks_total",
            "node_boot_time_seconds",
            "node_procs_",
            "num_running_processes",
        ],
    ),
    ("proc/diskstats", &["disk"], &["node_disk_"]),
    ("proc/net/dev", &["network"], &["node_network_"]),
    ("proc/pressure/io", &["pressure"], &["node_pressure_"]),
    ("proc/vmstat", &["vmstat"], &["node_vmstat_"]),
];

#[test]
fn a_malformed_file_affects_only_its_own_series() {
    let node = KernelFilesNode::start();
    let whole = node.series();
    assert_eq!(node.failed(), BTreeMap::new());
    let garbage = [
        &b"\xff\xfe\0 garbage\n"[..],
        b"cut off",
        b"total= -1 some: x\n",
    ];
    for (number, (file, owners, names)) in CASES.iter().enumerate() {
        node.write(file, garbage[number % garbage.len()]);
        node.wait_for_failure(file, owners);
        let lost = eventually("its series are gone", || {
            let series = node.series();
            let is_its = |text: &String| names.iter().any(|name| text.starts_with(name));
            // Series of other collectors may share a prefix; they must have been present before.
            let lost: BTreeSet<String> = whole.difference(&series).cloned().collect();
            if lost.iter().any(is_its) {
                Ok(lost)
            } else {
                Err(series.len())
            }
        });
        let foreign: Vec<&String> = lost
            .iter()
            .filter(|text| !names.iter().any(|name| text.starts_with(name)))
            .collect();
        assert!(foreign.is_empty(), "{file} cost {foreign:?}");
        node.write(file, &good(file));
        node.wait_until_whole(&whole);
    }
    let status = node.agent.status();
    let collectors = status["collectors"].as_array().expect("a list");
    for collector in collectors {
        let name = collector["name"].as_str().expect("a name");
        let failures = CASES
            .iter()
            .filter(|(_, owners, _)| owners.contains(&name))
            .count();
        assert_eq!(collector["failures"], failures, "{collector}");
    }
    node.agent.assert_conserved();
    assert_eq!(node.agent.stop().code(), Some(0));
}

#[test]
fn devices_come_and_go_under_any_name() {
    let node = KernelFilesNode::start();
    let whole = node.series();
    for (file, line, gone) in [
        ("proc/stat", "cpu1 ", "node_cpu_seconds_total{cpu=\"1\""),
        ("proc/diskstats", " sda ", "node_disk_io_now{device=\"sda\""),
        (
            "proc/net/dev",
            "eth0:",
            "node_network_receive_bytes_total{device=\"eth0\"",
        ),
    ] {
        let text = String::from_utf8(good(file)).expect("text");
        let less: String = text
            .split_inclusive('\n')
            .filter(|known| !known.contains(line))
            .collect();
        assert!(less.len() < text.len(), "{line} is in {file}");
        node.write(file, less.as_bytes());
        // A pass may read the file while it is written; the next one does not.
        eventually(&format!("{gone} is gone, which is no failure"), || {
            let left: Vec<String> = node
                .series()
                .into_iter()
                .filter(|text| text.starts_with(gone))
                .collect();
            let failed = node.failed();
            let is_so = left.is_empty() && failed.is_empty();
            if is_so { Ok(()) } else { Err((left, failed)) }
        });
        node.write(file, text.as_bytes());
        node.wait_until_whole(&whole);
    }

    // The kernel permits any bytes in the name of an interface except white space, slashes and
    // colons.
    let mut text = good("proc/net/dev");
    text.extend_from_slice(
        b" e\xff\"\\: 18446744073709551615 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18\n",
    );
    node.write("proc/net/dev", &text);
    let series = r#"node_network_receive_bytes_total{device="e\\xff\"\\x5c"}"#;
    eventually("the new interface", || {
        let readings = ExporterReadings::parse_prometheus(node.agent.get("/metrics").text());
        let value = readings.values.get(series).copied();
        if value == Some(18_446_744_073_709_551_615.0) {
            Ok(())
        } else {
            Err(value)
        }
    });
    node.agent.assert_conserved();
    assert_eq!(node.agent.stop().code(), Some(0));
}

/// Replaces every file by a pipe without a writer.
fn make_pipes(dir: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            count += make_pipes(&entry.path());
        } else if kind.is_file() {
            fs::remove_file(entry.path()).expect("removed");
            let rights = Mode::RUSR | Mode::WUSR;
            mknodat(CWD, entry.path(), FileType::Fifo, rights, 0).expect("a pipe");
            count += 1;
        }
    }
    count
}

#[test]
fn pipes_in_place_of_kernel_files_block_nothing() {
    for machine in ["basic", "cray", "azure"] {
        let root = TempDir::copy_of(fixture(machine));
        assert!(make_pipes(root.path()) > 10);
        let home = TempDir::new();
        for args in [
            &["snapshot"][..],
            &["doctor"],
            &["agent", "--once", "--level", "4", "--dir", "store"],
        ] {
            let mut command = PEGEL.command(&home);
            command
                .args(args)
                .env("PEGEL_SOCKET", home.join("nobody.sock"))
                .env("PEGEL_ROOT", root.path());
            // `wait` panics after a minute.
            let finished = ChildProcess::start(&mut command).wait(Duration::from_secs(60));
            assert!(finished.code().is_some(), "{machine}, {args:?}: {finished}");
            assert!(!finished.stderr.contains("panicked"), "{finished}");
        }
    }
}
