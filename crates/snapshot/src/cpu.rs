//! Processors: model, topology, caches, flags. The identity of the first processor is read from
//! `/proc/cpuinfo`, everything else from `/sys`: on large nodes all of `/proc/cpuinfo` is slow,
//! because the kernel queries the frequency of each processor.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use pegel_machine::{MachineFiles, cpu_list_count, meminfo_bytes};

const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";
/// Bytes read of `/proc/cpuinfo`; enough for the first processor.
const CPUINFO_BYTES: u64 = 16 << 10;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CpuInfo {
    pub model: Option<String>,
    pub vendor: Option<String>,
    /// Family, model and stepping on x86; implementer, part and revision on Arm.
    pub identity: Option<String>,
    pub microcode: Option<String>,
    pub architecture: Option<String>,
    pub sockets: usize,
    pub cores: usize,
    /// Number of online logical processors.
    pub threads: usize,
    pub threads_per_core: usize,
    /// Their numbers in the kernel's list format: `0-15,32`.
    pub online: Option<String>,
    pub numa_nodes: Vec<NumaNode>,
    pub caches: Vec<CpuCache>,
    pub mhz_min: Option<f64>,
    pub mhz_max: Option<f64>,
    pub governor: Option<String>,
    pub driver: Option<String>,
    /// `smt/control`: on, off, forceoff, notsupported.
    pub smt: Option<String>,
    pub flags: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    pub node: u32,
    pub cpus: String,
    pub memory_bytes: Option<u64>,
    pub distances: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CpuCache {
    pub level: u64,
    pub kind: String,
    pub bytes: u64,
    /// Number of caches of this kind.
    pub count: usize,
    pub ways: Option<u64>,
    pub line_bytes: Option<u64>,
    /// Number of threads that share one.
    pub shared_by: usize,
}

pub(crate) fn read(machine: &MachineFiles) -> CpuInfo {
    let info = machine.bytes("proc/cpuinfo", CPUINFO_BYTES);
    let info = info.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let mut cpu = parse_cpuinfo(info.as_deref().unwrap_or_default());
    let cpufreq = PathBuf::from(CPUS).join("cpu0/cpufreq");
    let mhz = |file: &str| {
        machine
            .number(cpufreq.join(file))
            .map(|khz| khz as f64 / 1e3)
    };
    cpu.architecture = machine.text("proc/sys/kernel/arch");
    if cpu.architecture.is_none() && machine.is_local() {
        cpu.architecture = rustix::system::uname()
            .machine()
            .to_str()
            .ok()
            .map(str::to_owned);
    }
    cpu.online = machine.text(Path::new(CPUS).join("online"));
    cpu.numa_nodes = read_numa_nodes(machine);
    cpu.mhz_min = mhz("cpuinfo_min_freq");
    cpu.mhz_max = mhz("cpuinfo_max_freq");
    cpu.governor = machine.text(cpufreq.join("scaling_governor"));
    cpu.driver = machine.text(cpufreq.join("scaling_driver"));
    cpu.smt = machine.text(Path::new(CPUS).join("smt/control"));
    let folders = folders(machine);
    cpu.caches = caches(machine, &folders);
    count_topology(machine, &folders, &mut cpu);
    cpu
}

/// Parses the entry of the first processor in `/proc/cpuinfo`.
fn parse_cpuinfo(info: &str) -> CpuInfo {
    let first = info.split("\n\n").next().unwrap_or_default();
    let value = |key: &str| {
        let lines = first.lines().filter_map(|line| line.split_once(':'));
        let mut lines = lines.filter(|(name, _)| name.trim() == key);
        let value = lines.next()?.1.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    let joined = |keys: [&str; 3]| {
        let parts: Vec<String> = keys.iter().filter_map(|key| value(key)).collect();
        (parts.len() == 3).then(|| parts.join("/"))
    };
    let flags = value("flags").or_else(|| value("Features"));
    CpuInfo {
        // Arm reports no model name, only implementer and part.
        model: value("model name").or_else(|| value("cpu")),
        vendor: value("vendor_id").or_else(|| value("CPU implementer").map(implementer)),
        identity: joined(["cpu family", "model", "stepping"])
            .or_else(|| joined(["CPU implementer", "CPU part", "CPU revision"])),
        microcode: value("microcode"),
        flags: flags
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        ..CpuInfo::default()
    }
}

/// Returns the name of an Arm implementer code, for vendors found in compute nodes.
fn implementer(code: String) -> String {
    let name = match code.as_str() {
        "0x41" => "ARM",
        "0x43" => "Cavium",
        "0x46" => "Fujitsu",
        "0x48" => "HiSilicon",
        "0x4e" => "NVIDIA",
        "0x6d" => "Microsoft",
        "0xc0" => "Ampere",
        _ => return code,
    };
    name.to_owned()
}

fn folders(machine: &MachineFiles) -> Vec<PathBuf> {
    let is_cpu = |name: &String| {
        let digits = name.strip_prefix("cpu").unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let names = machine.names(CPUS).into_iter().filter(is_cpu);
    names.map(|name| Path::new(CPUS).join(name)).collect()
}

/// Counts sockets, cores and threads. Offline processors have no topology.
fn count_topology(machine: &MachineFiles, folders: &[PathBuf], cpu: &mut CpuInfo) {
    let (mut sockets, mut cores, mut threads) = (BTreeSet::new(), BTreeSet::new(), 0);
    for folder in folders {
        let topology = folder.join("topology");
        let Some(socket) = machine.text(topology.join("physical_package_id")) else {
            continue;
        };
        let die = machine.text(topology.join("die_id")).unwrap_or_default();
        let Some(core) = machine.text(topology.join("core_id")) else {
            continue;
        };
        sockets.insert(socket.clone());
        cores.insert((socket, die, core));
        threads += 1;
    }
    let online = cpu.online.as_deref().and_then(cpu_list_count);
    (cpu.sockets, cpu.cores) = (sockets.len(), cores.len());
    cpu.threads = online.unwrap_or(threads);
    cpu.threads_per_core = threads.checked_div(cores.len()).unwrap_or(0);
}

fn read_numa_nodes(machine: &MachineFiles) -> Vec<NumaNode> {
    let mut nodes = Vec::new();
    for name in machine.names(NODES) {
        let Some(node) = name.strip_prefix("node").and_then(|n| n.parse().ok()) else {
            continue;
        };
        let folder = Path::new(NODES).join(&name);
        let memory = machine.text(folder.join("meminfo")).unwrap_or_default();
        // Each line begins with `Node 0 `.
        let mut lines = memory.lines().filter_map(|line| line.splitn(3, ' ').nth(2));
        let distances = machine.text(folder.join("distance")).unwrap_or_default();
        nodes.push(NumaNode {
            node,
            cpus: machine.text(folder.join("cpulist")).unwrap_or_default(),
            memory_bytes: lines.find_map(|line| meminfo_bytes(line, "MemTotal")),
            distances: distances
                .split_whitespace()
                .filter_map(|distance| distance.parse().ok())
                .collect(),
        });
    }
    nodes
}

/// Returns each kind of cache once, with its count.
fn caches(machine: &MachineFiles, folders: &[PathBuf]) -> Vec<CpuCache> {
    let mut caches: Vec<CpuCache> = Vec::new();
    let mut seen = BTreeSet::new();
    for folder in folders {
        for index in machine.names(folder.join("cache")) {
            let folder = folder.join("cache").join(&index);
            let Some(cache) = cache(machine, &folder) else {
                continue;
            };
            let shared = machine.text(folder.join("shared_cpu_list"));
            if !seen.insert((cache.level, cache.kind.clone(), shared)) {
                continue;
            }
            let same = |known: &&mut CpuCache| {
                CpuCache {
                    count: 1,
                    ..(**known).clone()
                } == cache
            };
            match caches.iter_mut().find(same) {
                Some(known) => known.count += 1,
                None => caches.push(cache),
            }
        }
    }
    caches.sort_by(|a, b| (a.level, &a.kind).cmp(&(b.level, &b.kind)));
    caches
}

fn cache(machine: &MachineFiles, folder: &Path) -> Option<CpuCache> {
    let size = machine.text(folder.join("size"))?;
    let kib: u64 = size.strip_suffix('K')?.parse().ok()?;
    let shared = machine.text(folder.join("shared_cpu_list"));
    Some(CpuCache {
        level: machine.number(folder.join("level"))?,
        kind: machine.text(folder.join("type"))?.to_ascii_lowercase(),
        bytes: kib << 10,
        count: 1,
        ways: machine.number(folder.join("ways_of_associativity")),
        line_bytes: machine.number(folder.join("coherency_line_size")),
        shared_by: shared.as_deref().and_then(cpu_list_count).unwrap_or(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm_implementer_codes_become_names() {
        let text = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\n\
                    CPU part\t: 0xd4f\nCPU revision\t: 0\n\nprocessor\t: 1\nFeatures\t: none\n";
        let cpu = parse_cpuinfo(text);
        assert_eq!(cpu.vendor.as_deref(), Some("ARM"));
        assert_eq!(cpu.identity.as_deref(), Some("0x41/0xd4f/0"));
        assert_eq!(cpu.flags, ["fp", "asimd", "sve"]);
        assert_eq!(parse_cpuinfo(""), CpuInfo::default());
    }
}
