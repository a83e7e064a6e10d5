//! Physical network interfaces and bonds. Other virtual interfaces are left out: those of
//! containers change too often.

use std::fs;

use serde::Serialize;

use pegel_machine::MachineFiles;

const FOLDER: &str = "sys/class/net";
const INTERFACES_MAX: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterfaceInfo {
    pub name: String,
    /// `ethernet`, `infiniband`, `bond`, …
    pub kind: String,
    pub state: Option<String>,
    /// Megabits per second; `None` while the link is down.
    pub mbit: Option<u64>,
    pub duplex: Option<String>,
    pub mtu: Option<u64>,
    pub mac: Option<String>,
    pub driver: Option<String>,
    pub pci: Option<String>,
    pub numa_node: Option<i64>,
    /// The interfaces of a bond.
    pub made_of: Vec<String>,
}

pub(crate) fn read(machine: &MachineFiles) -> Vec<InterfaceInfo> {
    let names = machine.names(FOLDER).into_iter();
    let found = names.filter_map(|name| interface(machine, name));
    found.take(INTERFACES_MAX).collect()
}

fn interface(machine: &MachineFiles, name: String) -> Option<InterfaceInfo> {
    let dir = machine.dir(format!("{FOLDER}/{name}"));
    // `bonding_masters` in the same directory is a file and has no `type`.
    let kind = dir.text("type")?;
    let bonded = dir.text("bonding/slaves");
    let is_virtual = fs::canonicalize(machine.resolve(format!("{FOLDER}/{name}")))
        .is_ok_and(|path| path.to_string_lossy().contains("/devices/virtual/net/"));
    // 772 is the loopback interface.
    if kind == "772" || (is_virtual && bonded.is_none()) {
        return None;
    }
    Some(InterfaceInfo {
        kind: match kind.as_str() {
            _ if bonded.is_some() => "bond".to_owned(),
            "1" => "ethernet".to_owned(),
            "32" => "infiniband".to_owned(),
            other => format!("type {other}"),
        },
        state: dir.text("operstate"),
        // A link that is down reports -1, or the read fails.
        mbit: dir.text("speed").and_then(|text| text.parse().ok()),
        duplex: dir.text("duplex").filter(|duplex| duplex != "unknown"),
        mtu: dir.number("mtu"),
        mac: dir.text("address"),
        driver: dir.link_name("device/driver"),
        pci: dir.pci_address(),
        numa_node: dir.numa_node("device/numa_node"),
        made_of: bonded
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        name,
    })
}
