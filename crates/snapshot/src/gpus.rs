//! GPUs and accelerators of NVIDIA, AMD and Intel, read from the PCI bus and the files of their
//! drivers.

use std::collections::BTreeSet;

use serde::Serialize;

use pegel_machine::MachineFiles;

const PCI: &str = "sys/bus/pci/devices";
const DRM: &str = "sys/class/drm";
const NVIDIA: &str = "proc/driver/nvidia";
const GPUS_MAX: usize = 256;

/// Names of devices in compute nodes, for drivers that do not report them.
const NAMES: &[(&str, &str)] = &[
    ("1002:738c", "AMD Instinct MI100"),
    ("1002:7408", "AMD Instinct MI250X"),
    ("1002:740c", "AMD Instinct MI250X / MI250"),
    ("1002:740f", "AMD Instinct MI210"),
    ("1002:74a0", "AMD Instinct MI300A"),
    ("1002:74a1", "AMD Instinct MI300X"),
    ("10de:1db1", "Tesla V100-SXM2-16GB"),
    ("10de:1db5", "Tesla V100-SXM2-32GB"),
    ("10de:1eb8", "Tesla T4"),
    ("10de:20b0", "NVIDIA A100-SXM4-40GB"),
    ("10de:20b2", "NVIDIA A100-SXM4-80GB"),
    ("10de:2330", "NVIDIA H100 80GB HBM3"),
    ("10de:2335", "NVIDIA H200"),
    ("10de:26b9", "NVIDIA L40S"),
    ("10de:27b8", "NVIDIA L4"),
    ("8086:0bd5", "Intel Data Center GPU Max 1550"),
    ("8086:0bda", "Intel Data Center GPU Max 1100"),
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuInfo {
    pub vendor: &'static str,
    pub name: Option<String>,
    pub pci: Option<String>,
    /// Vendor and device id in the format of `lspci -n`.
    pub pci_id: Option<String>,
    pub uuid: Option<String>,
    pub memory_bytes: Option<u64>,
    pub driver: Option<String>,
    pub driver_version: Option<String>,
    pub firmware: Option<String>,
    pub numa_node: Option<i64>,
    /// Maximum link speed and width: `32.0 GT/s PCIe x16`.
    pub link: Option<String>,
}

pub(crate) fn read(machine: &MachineFiles) -> Vec<GpuInfo> {
    let mut seen = BTreeSet::new();
    let mut gpus = Vec::new();
    for address in machine.names(PCI) {
        let folder = format!("{PCI}/{address}");
        if is_gpu(machine, &folder) {
            gpus.extend(gpu(machine, &folder, Some(address.clone())));
            seen.insert(address);
        }
    }
    // Devices that are not on the PCI bus: integrated graphics, and fixture trees.
    for card in machine.names(DRM) {
        let digits = card.strip_prefix("card").unwrap_or("x");
        let folder = format!("{DRM}/{card}/device");
        let address = machine.link_name(&folder);
        let is_new = address.is_none_or(|address| !seen.contains(&address));
        if is_new && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            gpus.extend(gpu(machine, &folder, None));
        }
    }
    // In a container, a passed-through GPU is visible only in the driver's files.
    for address in machine.names(format!("{NVIDIA}/gpus")) {
        if !seen.contains(&address.to_ascii_lowercase()) {
            gpus.push(nvidia_without_pci(machine, address));
        }
    }
    gpus.truncate(GPUS_MAX);
    gpus
}

/// Whether a PCI device is a display controller or a processing accelerator, by its class.
fn is_gpu(machine: &MachineFiles, folder: &str) -> bool {
    let class = machine.text(format!("{folder}/class")).unwrap_or_default();
    ["0x0300", "0x0302", "0x0380", "0x1200"]
        .iter()
        .any(|prefix| class.starts_with(prefix))
}

fn gpu(machine: &MachineFiles, folder: &str, pci: Option<String>) -> Option<GpuInfo> {
    let dir = machine.dir(folder);
    let of = |file: &str| dir.text(file);
    let vendor = vendor(&of("vendor")?)?;
    let hexadecimal = |file: &str| of(file).map(|text| text.trim_start_matches("0x").to_owned());
    let pci_id = hexadecimal("vendor")
        .zip(hexadecimal("device"))
        .map(|(vendor, device)| format!("{vendor}:{device}"));
    let known = NAMES.iter().find(|(id, _)| Some(*id) == pci_id.as_deref());
    let link = of("max_link_speed").zip(of("max_link_width"));
    let driver = dir.link_name("driver");
    let mut gpu = GpuInfo {
        vendor,
        name: of("product_name").or_else(|| known.map(|(_, name)| (*name).to_owned())),
        uuid: of("unique_id"),
        memory_bytes: dir.number("mem_info_vram_total"),
        driver_version: driver
            .as_deref()
            .and_then(|driver| machine.text(format!("sys/module/{driver}/version"))),
        driver,
        firmware: of("vbios_version"),
        numa_node: dir.numa_node("numa_node"),
        link: link.map(|(speed, width)| format!("{speed} x{width}")),
        pci,
        pci_id,
    };
    if let Some(address) = gpu.pci.clone().filter(|_| vendor == "NVIDIA") {
        add_nvidia_driver_info(machine, &address, &mut gpu);
    }
    Some(gpu)
}

fn nvidia_without_pci(machine: &MachineFiles, address: String) -> GpuInfo {
    let mut gpu = GpuInfo {
        vendor: "NVIDIA",
        name: None,
        pci: Some(address.to_ascii_lowercase()),
        pci_id: None,
        uuid: None,
        memory_bytes: None,
        driver: Some("nvidia".to_owned()),
        driver_version: None,
        firmware: None,
        numa_node: None,
        link: None,
    };
    add_nvidia_driver_info(machine, &address, &mut gpu);
    gpu
}

fn vendor(id: &str) -> Option<&'static str> {
    match id {
        "0x10de" => Some("NVIDIA"),
        "0x1002" => Some("AMD"),
        "0x8086" => Some("Intel"),
        // Other vendors' devices only drive the console of a server.
        _ => None,
    }
}

/// Adds the information in the files of NVIDIA's driver.
fn add_nvidia_driver_info(machine: &MachineFiles, address: &str, gpu: &mut GpuInfo) {
    let text = machine.text(format!("{NVIDIA}/gpus/{address}/information"));
    let text = text.unwrap_or_default();
    let value = |key: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = pairs.find(|(name, _)| name.trim() == key)?;
        let value = value.trim();
        // The driver reports question marks for a suspended GPU.
        (!value.is_empty() && !value.contains('?')).then(|| value.to_owned())
    };
    gpu.name = value("Model").or_else(|| gpu.name.take());
    gpu.uuid = value("GPU UUID");
    gpu.firmware = value("Video BIOS");
    let version = machine.text(format!("{NVIDIA}/version"));
    gpu.driver_version = gpu
        .driver_version
        .take()
        .or_else(|| version.as_deref().and_then(nvidia_version));
}

/// Parses the version from `NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu …`.
fn nvidia_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.contains('.')
            && word
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let first = text.lines().next()?;
    first.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_version_is_parsed() {
        for text in [
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23\nGCC version: 12.3.0",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build",
        ] {
            assert_eq!(nvidia_version(text).as_deref(), Some("570.86.15"));
        }
        assert_eq!(nvidia_version("nothing"), None);
    }
}
