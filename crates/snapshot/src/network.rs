//! Physical network interfaces and bonds. Other virtual interfaces are left out: those of containers change too
//! often.

use std::fs;

use serde::Serialize;

use crate::machine_files::MachineFiles;

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
    let of = |file: &str| machine.text(format!("{FOLDER}/{name}/{file}"));
    // `bonding_masters` in the same directory is a file and has no `type`.
    let kind = of("type")?;
    let bonded = of("bonding/slaves");
    let is_virtual = fs::canonicalize(machine.resolve(format!("{FOLDER}/{name}")))
        .is_ok_and(|path| path.to_string_lossy().contains("/devices/virtual/net/"));
    // 772 is the loopback interface.
    if kind == "772" || (is_virtual && bonded.is_none()) {
        return None;
    }
    let pci = machine.link_name(format!("{FOLDER}/{name}/device"));
    Some(InterfaceInfo {
        kind: match kind.as_str() {
            _ if bonded.is_some() => "bond".to_owned(),
            "1" => "ethernet".to_owned(),
            "32" => "infiniband".to_owned(),
            other => format!("type {other}"),
        },
        state: of("operstate"),
        // A link that is down reports -1, or the read fails.
        mbit: of("speed").and_then(|text| text.parse().ok()),
        duplex: of("duplex").filter(|duplex| duplex != "unknown"),
        mtu: machine.number(format!("{FOLDER}/{name}/mtu")),
        mac: of("address"),
        driver: machine.link_name(format!("{FOLDER}/{name}/device/driver")),
        pci: pci.filter(|address| address.contains(':')),
        numa_node: of("device/numa_node").and_then(|node| node.parse().ok()),
        made_of: bonded
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        name,
    })
}
