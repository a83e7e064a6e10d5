//! Devices, CPUs, processes and mounts that appear, disappear and change between passes.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{TestClock, copy, machine, open, repository};
use pegel_collect::{CollectSettings, CollectorSet, CollectorState};
use pegel_metric::{Input, Tick};

/// A copy of the recorded machine that the test changes; removed on drop.
struct SysfsNode {
    root: PathBuf,
    clock: Arc<TestClock>,
    set: CollectorSet,
    tick: Tick,
}

impl SysfsNode {
    fn new(name: &str) -> SysfsNode {
        let folder = format!("pegel-sysfs-{}-{name}", std::process::id());
        let root = std::env::temp_dir().join(folder);
        copy(&repository().join("tests/fixtures/basic"), &root);
        let clock = TestClock::at(1_000_000);
        let set = open(&CollectSettings::default(), machine(&root), 4, &clock);
        SysfsNode {
            root,
            clock,
            set,
            tick: Tick::new(Input::Collect),
        }
    }

    /// Takes two samples: the first may have started before the last change of the test, the second
    /// did not.
    fn pass(&mut self) {
        for _ in 0..2 {
            self.clock.advance(Duration::from_secs(1));
            self.set.wait_for_threaded(Duration::from_secs(60));
            self.set.sample_all(0, &mut self.tick);
        }
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.root.join(path), text).expect("write");
    }

    fn remove(&self, path: &str) {
        let path = self.root.join(path);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).expect("remove");
        } else {
            fs::remove_file(path).expect("remove");
        }
    }

    /// Returns the present series of a collector that contain `part`.
    fn find(&self, group: &str, part: &str) -> Vec<(String, f64)> {
        let row = self
            .tick
            .rows()
            .iter()
            .find(|row| *row.members.group == *group);
        let row = row.expect("a row");
        let series = row.members.series.iter().enumerate();
        series
            .filter(|(index, series)| row.is_present(*index) && series.text().contains(part))
            .map(|(index, series)| (series.text().to_owned(), row.values[index]))
            .collect()
    }

    fn count(&self, group: &str, part: &str) -> usize {
        self.find(group, part).len()
    }

    fn state(&self, name: &str) -> CollectorState {
        let status = self.set.status();
        let status = status.iter().find(|status| status.name == name);
        status.expect("known").state
    }
}

impl Drop for SysfsNode {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn series_of_a_removed_cpu_disappear() {
    let mut node = SysfsNode::new("cpu");
    node.pass();
    let before = node.count("cpufreq", "cpu=\"1\"");
    assert_eq!(before, 5);
    node.remove("sys/devices/system/cpu/cpu1");
    node.pass();
    assert_eq!(node.count("cpufreq", "cpu=\"1\""), 0);
    assert_eq!(node.count("cpufreq", "cpu=\"2\""), 5, "the others stay");
    assert_eq!(node.state("cpufreq"), CollectorState::Active);
    copy(
        &repository().join("tests/fixtures/basic/sys/devices/system/cpu/cpu1"),
        &node.root.join("sys/devices/system/cpu/cpu1"),
    );
    node.pass();
    assert_eq!(node.count("cpufreq", "cpu=\"1\""), 5);
}

#[test]
fn devices_that_go_away_are_quiet() {
    let mut node = SysfsNode::new("devices");
    node.pass();
    for (group, part, path) in [
        ("hwmon", "platform_coretemp_0", "sys/class/hwmon/hwmon0"),
        ("infiniband", "hfi1_0", "sys/class/infiniband/hfi1_0"),
        ("gpu", "card0", "sys/class/drm/card0"),
        ("numa", "node=\"1\"", "sys/devices/system/node/node1"),
        ("edac", "controller=\"0\"", "sys/devices/system/edac/mc/mc0"),
        ("nvme", "nvme0", "sys/class/nvme/nvme0"),
        ("rapl", "psys", "sys/class/powercap/intel-rapl:2"),
        ("slingshot", "cxi0", "sys/class/cxi/cxi0"),
        ("cray", "accel0", "sys/cray/pm_counters/accel0_power"),
        ("thermal_zone", "acpitz", "sys/class/thermal/thermal_zone1"),
        (
            "cgroup",
            "job_17",
            "sys/fs/cgroup/system.slice/slurmstepd.scope/job_17",
        ),
        ("top_processes", "4242", "proc/4242"),
    ] {
        let before = node.count(group, part);
        assert!(before > 0, "{group}");
        node.remove(path);
        node.pass();
        let after = node.count(group, part);
        let expected = if group == "cray" { before - 1 } else { 0 };
        assert_eq!(after, expected, "{group}");
        assert_eq!(node.state(group), CollectorState::Active, "{group}");
    }
}

#[test]
fn a_file_of_another_shape_has_no_value_and_harms_no_other() {
    let mut node = SysfsNode::new("shape");
    node.pass();
    for (group, gone, path) in [
        ("hwmon", 1, "sys/class/hwmon/hwmon0/temp1_input"),
        (
            "infiniband",
            1,
            "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data",
        ),
        // With Dragon's name for the metric.
        ("gpu", 2, "sys/class/drm/card0/device/gpu_busy_percent"),
        ("rapl", 1, "sys/class/powercap/intel-rapl:2/energy_uj"),
        ("edac", 1, "sys/devices/system/edac/mc/mc0/ce_count"),
        ("top_processes", 10, "proc/4242/stat"),
        ("numa", 24, "sys/devices/system/node/node1/meminfo"),
        ("thermal_zone", 1, "sys/class/thermal/thermal_zone1/temp"),
        ("cray", 1, "sys/cray/pm_counters/power"),
    ] {
        let all = node.count(group, "");
        for text in ["\u{1}rubbish -- 12x\n", ""] {
            node.write(path, text);
            node.pass();
            assert_eq!(node.count(group, ""), all - gone, "{group}: {text:?}");
            assert_eq!(node.state(group), CollectorState::Active, "{group}");
        }
    }
}

#[test]
fn energy_does_not_go_back_when_the_hardware_wraps() {
    let mut node = SysfsNode::new("rapl");
    node.pass();
    let path = "sys/class/powercap/intel-rapl:0/energy_uj";
    let mut last = 0.0;
    // The range is 262143328850 microjoules.
    for (raw, joules) in [
        ("262143000000", 262_143.0),
        ("1000000", 262_144.328_85),
        ("3000000", 262_146.328_85),
        ("0", 524_286.657_7),
    ] {
        node.write(path, &format!("{raw}\n"));
        node.pass();
        let found = node.find("rapl", "node_rapl_package_joules_total{index=\"0\"");
        assert_eq!(found.len(), 1);
        let value = found[0].1;
        assert!(value >= last, "{value} after {last}");
        assert!((value - joules).abs() < 1e-6, "{value} for {raw}");
        last = value;
    }
}

#[test]
fn a_job_that_begins_is_found() {
    let mut node = SysfsNode::new("job");
    node.pass();
    assert_eq!(node.count("cgroup", "job_18"), 0);
    let scope = "sys/fs/cgroup/system.slice/slurmstepd.scope";
    fs::create_dir(node.root.join(scope).join("job_18")).expect("create");
    node.write(&format!("{scope}/job_18/memory.current"), "4096\n");
    node.pass();
    assert_eq!(
        node.find("cgroup", "job_18"),
        [
            (
                "node_cgroup_memory_usage_bytes{cgroup=\"/system.slice/slurmstepd.scope/job_18\"}"
                    .to_owned(),
                4096.0
            ),
            (
                "node_cgroup_job_info{cgroup=\"/system.slice/slurmstepd.scope/job_18\",jobid=\"18\"}"
                    .to_owned(),
                1.0
            )
        ]
    );
}

#[test]
fn the_first_version_of_cgroups_is_read_where_it_is_in_use() {
    let mut node = SysfsNode::new("v1");
    node.pass();
    node.remove("sys/fs/cgroup");
    node.write(
        "proc/self/cgroup",
        "4:memory:/slurm/uid_7/job_5/step_0\n1:cpu:/\n0::/\n",
    );
    for (path, text) in [
        ("memory/memory.usage_in_bytes", "1"),
        ("memory/slurm/uid_7/job_5/memory.usage_in_bytes", "1000"),
        ("memory/slurm/uid_7/job_5/memory.max_usage_in_bytes", "2000"),
        (
            "memory/slurm/uid_7/job_5/memory.limit_in_bytes",
            "9223372036854771712",
        ),
        (
            "memory/slurm/uid_7/job_5/memory.stat",
            "cache 1\ntotal_rss 600\ntotal_pgfault 9",
        ),
        (
            "memory/slurm/uid_7/job_5/memory.oom_control",
            "under_oom 0\noom_kill 2",
        ),
        ("cpuacct/slurm/uid_7/job_5/cpuacct.usage", "2500000000"),
        (
            "cpuacct/slurm/uid_7/job_5/cpuacct.stat",
            "user 200\nsystem 50",
        ),
        (
            "blkio/slurm/uid_7/job_5/blkio.throttle.io_service_bytes",
            "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\nTotal 30",
        ),
        ("pids/slurm/uid_7/job_5/pids.current", "3"),
        ("pids/slurm/uid_7/job_5/pids.max", "max"),
    ] {
        let path = node.root.join("sys/fs/cgroup").join(path);
        fs::create_dir_all(path.parent().expect("below")).expect("create");
        fs::write(path, format!("{text}\n")).expect("write");
    }
    node.pass();
    let found: Vec<String> = node
        .find("cgroup", "cgroup=\"/slurm/uid_7/job_5\"")
        .into_iter()
        .map(|(series, value)| {
            let name = series.replace("cgroup=\"/slurm/uid_7/job_5\"", "");
            format!("{} {value}", name.replace("node_cgroup_", ""))
        })
        .collect();
    assert_eq!(
        found,
        [
            "cpu_usage_seconds_total{} 2.5",
            "cpu_user_seconds_total{} 2",
            "cpu_system_seconds_total{} 0.5",
            "memory_usage_bytes{} 1000",
            "memory_peak_bytes{} 2000",
            "memory_anon_bytes{} 600",
            "memory_page_faults_total{} 9",
            "memory_oom_kills_total{} 2",
            "io_read_bytes_total{,device=\"8:0\"} 10",
            "io_written_bytes_total{,device=\"8:0\"} 20",
            "pids{} 3",
        ]
    );
}
