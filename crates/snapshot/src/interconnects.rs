//! Adapters of high-speed networks: InfiniBand, RoCE and Omni-Path (`/sys/class/infiniband`), Slingshot
//! (`/sys/class/cxi`).

use serde::Serialize;

use crate::machine_files::MachineFiles;

const INFINIBAND: &str = "sys/class/infiniband";
const SLINGSHOT: &str = "sys/class/cxi";
const ADAPTERS_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterconnectAdapter {
    pub name: String,
    /// `infiniband`, `roce`, `omni-path` or `slingshot`.
    pub kind: &'static str,
    pub model: Option<String>,
    pub board: Option<String>,
    pub firmware: Option<String>,
    pub pci: Option<String>,
    pub numa_node: Option<i64>,
    pub ports: Vec<InterconnectPort>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterconnectPort {
    pub port: String,
    pub state: Option<String>,
    pub physical_state: Option<String>,
    /// In the kernel's format: `200 Gb/sec (4X HDR)`.
    pub rate: Option<String>,
    pub link_layer: Option<String>,
    pub lid: Option<String>,
}

pub(crate) fn read(machine: &MachineFiles) -> Vec<InterconnectAdapter> {
    let infiniband = machine.names(INFINIBAND).into_iter();
    let slingshot = machine.names(SLINGSHOT).into_iter();
    let adapters = infiniband.map(|name| adapter(machine, name));
    let adapters = adapters.chain(slingshot.map(|name| slingshot_adapter(machine, name)));
    adapters.take(ADAPTERS_MAX).collect()
}

fn adapter(machine: &MachineFiles, name: String) -> InterconnectAdapter {
    let folder = format!("{INFINIBAND}/{name}");
    let of = |file: &str| machine.text(format!("{folder}/{file}"));
    let ports: Vec<InterconnectPort> = machine
        .names(format!("{folder}/ports"))
        .into_iter()
        .map(|number| port(machine, &folder, number))
        .collect();
    let is_ethernet = |port: &InterconnectPort| port.link_layer.as_deref() == Some("Ethernet");
    let pci = machine.link_name(format!("{folder}/device"));
    InterconnectAdapter {
        kind: if name.starts_with("hfi1") {
            "omni-path"
        } else if !ports.is_empty() && ports.iter().all(is_ethernet) {
            "roce"
        } else {
            "infiniband"
        },
        model: of("hca_type"),
        board: of("board_id"),
        firmware: of("fw_ver"),
        pci: pci.filter(|address| address.contains(':')),
        numa_node: of("device/numa_node").and_then(|node| node.parse().ok()),
        ports,
        name,
    }
}

fn port(machine: &MachineFiles, adapter: &str, port: String) -> InterconnectPort {
    let of = |file: &str| machine.text(format!("{adapter}/ports/{port}/{file}"));
    // Drops the number from `4: ACTIVE`.
    let word = |text: String| match text.split_once(": ") {
        Some((_, word)) => word.to_owned(),
        None => text,
    };
    InterconnectPort {
        state: of("state").map(word),
        physical_state: of("phys_state").map(word),
        rate: of("rate"),
        link_layer: of("link_layer"),
        lid: of("lid"),
        port,
    }
}

fn slingshot_adapter(machine: &MachineFiles, name: String) -> InterconnectAdapter {
    let of = |file: &str| machine.text(format!("{SLINGSHOT}/{name}/device/{file}"));
    let pci = machine.link_name(format!("{SLINGSHOT}/{name}/device"));
    InterconnectAdapter {
        kind: "slingshot",
        model: of("fru/description"),
        board: of("fru/part_number"),
        firmware: of("uc/qspi_blob_version"),
        pci: pci.filter(|address| address.contains(':')),
        numa_node: of("numa_node").and_then(|node| node.parse().ok()),
        ports: Vec::new(),
        name,
    }
}
