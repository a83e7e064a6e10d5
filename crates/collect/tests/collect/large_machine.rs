//! A large generated machine: 256 CPUs, 8 NUMA nodes, 8 GPUs, 2 InfiniBand ports, 30
//! mounts, 200 processes, 16 jobs. Its golden text is a summary of each collector.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{TestClock, machine, open, repository};
use pegel_collect::{CollectSettings, CollectorState};
use pegel_metric::{GroupRow, Input, Tick, format_value};

const CPUS: usize = 256;

/// The files of the machine; removed on drop.
pub(crate) struct BigMachine {
    pub root: PathBuf,
}

impl BigMachine {
    pub(crate) fn make(name: &str) -> BigMachine {
        let folder = format!("pegel-big-{}-{name}", std::process::id());
        let root = std::env::temp_dir().join(folder);
        let machine = BigMachine { root };
        machine.make_cpus();
        machine.make_memory();
        machine.make_sensors();
        machine.make_adapters();
        machine.make_mounts();
        machine.make_jobs();
        machine
    }

    fn write(&self, path: &str, text: impl ToString) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("create");
        fs::write(path, text.to_string() + "\n").expect("write");
    }

    fn make_cpus(&self) {
        let mut stat = String::from("cpu  1 2 3 4 5 6 7 8 9 10\n");
        for cpu in 0..CPUS {
            let _ = writeln!(stat, "cpu{cpu} {cpu} 2 3 4 5 6 7 8 0 0");
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            self.write(&format!("{folder}/topology/physical_package_id"), cpu / 128);
            self.write(&format!("{folder}/topology/core_id"), cpu % 128 / 2);
            for (file, value) in [
                ("cpufreq/cpuinfo_min_freq", 1_500_000),
                ("cpufreq/cpuinfo_max_freq", 3_700_000),
                ("cpufreq/scaling_min_freq", 1_500_000),
                ("cpufreq/scaling_max_freq", 3_700_000),
                ("cpufreq/scaling_cur_freq", 2_000_000 + cpu),
                ("thermal_throttle/core_throttle_count", cpu % 3),
                ("thermal_throttle/package_throttle_count", 7),
                ("thermal_throttle/core_throttle_total_time_ms", 40),
                ("thermal_throttle/package_throttle_total_time_ms", 80),
            ] {
                self.write(&format!("{folder}/{file}"), value);
            }
        }
        stat += "intr 9 1\nctxt 5\nbtime 1700000000\nprocesses 6\nprocs_running 2\nprocs_blocked 0\nsoftirq 3 1 2";
        self.write("proc/stat", stat);
    }

    fn make_memory(&self) {
        for node in 0..8 {
            let folder = format!("sys/devices/system/node/node{node}");
            let mut text = String::new();
            let keys = "MemTotal MemFree MemUsed Active Inactive Dirty FilePages Mapped AnonPages Shmem Slab";
            for (index, key) in keys.split(' ').enumerate() {
                let _ = writeln!(text, "Node {node} {key}: {} kB", 1_000 * (index + node));
            }
            self.write(&format!("{folder}/meminfo"), text.trim_end());
            let events = "numa_hit 1\nnuma_miss 2\nnuma_foreign 3\ninterleave_hit 4\nlocal_node 5\nother_node 6";
            self.write(&format!("{folder}/numastat"), events);
            let controller = format!("sys/devices/system/edac/mc/mc{node}");
            self.write(&format!("{controller}/ce_count"), node);
            self.write(&format!("{controller}/ue_count"), 0);
            for dimm in 0..2 {
                let dimm = format!("{controller}/dimm{dimm}");
                self.write(&format!("{dimm}/dimm_ce_count"), node);
                self.write(&format!("{dimm}/dimm_ue_count"), 0);
                self.write(&format!("{dimm}/dimm_label"), "DIMM");
            }
        }
    }

    fn make_sensors(&self) {
        for chip in 0..2 {
            let folder = format!("sys/class/hwmon/hwmon{chip}");
            self.write(&format!("{folder}/name"), format!("coretemp{chip}"));
            for sensor in 1..=65 {
                let sensor_file = format!("{folder}/temp{sensor}");
                self.write(&format!("{sensor_file}_input"), 40_000 + sensor);
                self.write(&format!("{sensor_file}_label"), format!("Core {sensor}"));
            }
            let zone = format!("sys/class/powercap/intel-rapl:{chip}");
            self.write(&format!("{zone}/name"), format!("package-{chip}"));
            self.write(&format!("{zone}/energy_uj"), 1_000_000 * (chip + 1));
            self.write(&format!("{zone}/max_energy_range_uj"), 262_143_328_850_u64);
        }
        for card in 0..8 {
            let folder = format!("sys/class/drm/card{card}/device");
            for (file, value) in [
                ("vendor", "0x1002"),
                ("gpu_busy_percent", "50"),
                ("mem_info_vram_total", "68702699520"),
                ("mem_info_vram_used", "34351349760"),
                ("hwmon/hwmon9/power1_average", "300000000"),
                ("hwmon/hwmon9/temp1_input", "60000"),
            ] {
                self.write(&format!("{folder}/{file}"), value);
            }
        }
    }

    fn make_adapters(&self) {
        for device in 0..2 {
            let folder = format!("sys/class/infiniband/mlx5_{device}");
            self.write(&format!("{folder}/fw_ver"), "20.37.1700");
            let port = format!("{folder}/ports/1");
            self.write(&format!("{port}/state"), "4: ACTIVE");
            self.write(&format!("{port}/phys_state"), "5: LinkUp");
            self.write(&format!("{port}/rate"), "400 Gb/sec (4X NDR)");
            for (index, name) in "port_rcv_data port_xmit_data port_rcv_packets port_xmit_packets \
                port_xmit_wait symbol_error link_downed port_rcv_errors"
                .split_whitespace()
                .enumerate()
            {
                self.write(&format!("{port}/counters/{name}"), 1_000 * (index + device));
            }
            for name in ["out_of_sequence", "np_cnp_sent", "rnr_nak_retry_err"] {
                self.write(&format!("{port}/hw_counters/{name}"), device);
            }
            let nvme = format!("sys/class/nvme/nvme{device}");
            self.write(&format!("{nvme}/model"), "A disk");
            self.write(&format!("{nvme}/state"), "live");
        }
    }

    fn make_mounts(&self) {
        let mut text = String::new();
        for mount in 0..30 {
            let _ = writeln!(
                text,
                "{mount} 1 0:{mount} / /mnt/{mount} rw - nfs4 filer:/{mount} rw"
            );
            let volume = format!("4096 {} 500 400 1000 900", 1_000 + mount);
            self.write(&format!("mnt/{mount}/statvfs"), volume);
        }
        self.write("proc/self/mountinfo", text.trim_end());
    }

    fn make_jobs(&self) {
        self.write("proc/self/cgroup", "0::/system.slice/pegel.service");
        self.write("sys/fs/cgroup/cgroup.controllers", "cpu memory");
        for job in 100..116 {
            let folder = format!("sys/fs/cgroup/system.slice/slurmstepd.scope/job_{job}");
            self.write(
                &format!("{folder}/cpu.stat"),
                format!("usage_usec {job}000000"),
            );
            self.write(&format!("{folder}/memory.current"), job * 1_000_000);
            self.write(&format!("{folder}/memory.peak"), job * 2_000_000);
            self.write(&format!("{folder}/pids.current"), 128);
        }
        for pid in 1..=200 {
            let text = format!(
                "{pid} (p{pid}) S 1 1 1 0 -1 0 0 0 0 0 {pid} 0 0 0 20 0 1 0 {pid} 4096 {} 0",
                pid * 10
            );
            self.write(&format!("proc/{pid}/stat"), text);
        }
    }
}

impl Drop for BigMachine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Returns the number of series, their sum, the first and the last.
fn summary(row: &GroupRow) -> String {
    let present = || (0..row.members.series.len()).filter(|&index| row.is_present(index));
    let line = |index: Option<usize>| {
        index.map_or_else(String::new, |index| {
            let mut text = format!("{} ", row.members.series[index]);
            format_value(&mut text, row.values[index]);
            text
        })
    };
    let mut sum = String::new();
    format_value(&mut sum, present().map(|index| row.values[index]).sum());
    format!(
        "{} series={} sum={sum} first={} last={}\n",
        row.members.group,
        present().count(),
        line(present().next()),
        line(present().next_back())
    )
}

fn golden() -> PathBuf {
    Path::new(&repository()).join("tests/golden/collect/big/summary.txt")
}

#[test]
fn a_large_machine_gives_the_golden_summary() {
    let big = BigMachine::make("golden");
    let clock = TestClock::at(1_794_775_476_520);
    let mut set = open(&CollectSettings::default(), machine(&big.root), 4, &clock);
    let mut tick = Tick::new(Input::Collect);
    set.wait_for_threaded(Duration::from_secs(60));
    set.sample_all(0, &mut tick);
    for status in set.status() {
        assert_ne!(status.state, CollectorState::Failed, "{status:?}");
    }
    let found: String = tick
        .rows()
        .iter()
        .filter(|row| row.present_count() > 0 && *row.members.group != *"agent")
        .map(summary)
        .collect();
    if std::env::var_os("PEGEL_BLESS").is_some() {
        fs::create_dir_all(golden().parent().expect("a folder")).expect("create");
        fs::write(golden(), found).expect("write");
        return;
    }
    let expected = fs::read_to_string(golden()).expect("read");
    assert_eq!(found, expected, "PEGEL_BLESS=1 accepts what was found");
}
