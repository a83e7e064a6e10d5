//! Block devices and NVMe controllers. Serial numbers are left out.

use serde::Serialize;

use crate::memory::bracketed_choice;
use pegel_machine::MachineFiles;

/// Maximum number of devices of each kind.
const DISKS_MAX: usize = 1024;
/// Unit of `/sys/block/*/size`, independent of the device's block size.
const SECTOR_BYTES: u64 = 512;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskInfo {
    pub name: String,
    pub bytes: u64,
    pub model: Option<String>,
    pub vendor: Option<String>,
    pub is_rotational: Option<bool>,
    pub is_removable: bool,
    pub is_read_only: bool,
    pub logical_block_bytes: Option<u64>,
    pub physical_block_bytes: Option<u64>,
    pub scheduler: Option<String>,
    pub queue_requests: Option<u64>,
    /// Underlying devices, for RAID and LVM.
    pub made_of: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NvmeController {
    pub name: String,
    pub model: Option<String>,
    pub firmware: Option<String>,
    /// `pcie`, `rdma`, `tcp`, `fc`.
    pub transport: Option<String>,
    pub pci: Option<String>,
    pub numa_node: Option<i64>,
    pub namespaces: Vec<String>,
}

pub(crate) fn read(machine: &MachineFiles) -> Vec<DiskInfo> {
    let is_real = |name: &String| {
        let excluded = ["loop", "ram", "zram", "sr", "fd", "nbd"];
        let is_excluded = excluded.iter().any(|prefix| {
            let digits = name.strip_prefix(prefix).unwrap_or("x");
            digits.bytes().all(|byte| byte.is_ascii_digit())
        });
        !is_excluded
    };
    let names = machine.names("sys/block").into_iter().filter(is_real);
    let disks = names.filter_map(|name| disk(machine, name));
    disks.take(DISKS_MAX).collect()
}

fn disk(machine: &MachineFiles, name: String) -> Option<DiskInfo> {
    let dir = machine.dir(format!("sys/block/{name}"));
    let sectors = dir.number("size").filter(|sectors| *sectors > 0)?;
    let is = |file: &str| dir.number(file).map(|number| number == 1);
    let scheduler = dir.text("queue/scheduler");
    Some(DiskInfo {
        bytes: sectors.saturating_mul(SECTOR_BYTES),
        model: dir.text("device/model").or_else(|| dir.text("dm/name")),
        vendor: dir.text("device/vendor").and_then(vendor),
        is_rotational: is("queue/rotational"),
        is_removable: is("removable").unwrap_or(false),
        is_read_only: is("ro").unwrap_or(false),
        logical_block_bytes: dir.number("queue/logical_block_size"),
        physical_block_bytes: dir.number("queue/physical_block_size"),
        scheduler: scheduler.map(|text| bracketed_choice(&text).unwrap_or(text)),
        queue_requests: dir.number("queue/nr_requests"),
        made_of: dir.names("slaves"),
        name,
    })
}

/// Returns the vendor's name. SCSI devices report a name; virtio and PCI devices report a number.
fn vendor(text: String) -> Option<String> {
    Some(match text.as_str() {
        "0x1af4" => "virtio".to_owned(),
        text if text.starts_with("0x") => return None,
        _ => text,
    })
}

pub(crate) fn read_nvme(machine: &MachineFiles) -> Vec<NvmeController> {
    const FOLDER: &str = "sys/class/nvme";
    let blocks = machine.names("sys/block");
    let controller = |name: String| {
        let dir = machine.dir(format!("{FOLDER}/{name}"));
        // nvme1 owns nvme1n1, but not nvme10n1.
        let is_namespace = |block: &&String| {
            let rest = block.strip_prefix(name.as_str()).unwrap_or_default();
            rest.starts_with('n')
        };
        NvmeController {
            model: dir.text("model"),
            firmware: dir.text("firmware_rev"),
            transport: dir.text("transport"),
            pci: dir.text("address").filter(|address| is_pci(address)),
            numa_node: dir.numa_node("numa_node"),
            namespaces: blocks.iter().filter(is_namespace).cloned().collect(),
            name,
        }
    };
    let names = machine.names(FOLDER).into_iter();
    names.take(DISKS_MAX).map(controller).collect()
}

/// Whether an address is a PCI address. Controllers over fabrics have transport addresses in
/// another format.
fn is_pci(address: &str) -> bool {
    address.len() == 12
        && address
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte))
}
