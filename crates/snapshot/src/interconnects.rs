//! Adapters of high-speed networks: InfiniBand, RoCE and Omni-Path (`/sys/class/infiniband`),
//! Slingshot (`/sys/class/cxi`).

use serde::Serialize;

use pegel_machine::{MachineDir, MachineFiles};

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
    let dir = machine.dir(format!("{INFINIBAND}/{name}"));
    let ports = dir.names("ports").into_iter();
    let ports: Vec<InterconnectPort> = ports.map(|number| port(&dir, number)).collect();
    let is_ethernet = |port: &InterconnectPort| port.link_layer.as_deref() == Some("Ethernet");
    InterconnectAdapter {
        kind: if name.starts_with("hfi1") {
            "omni-path"
        } else if !ports.is_empty() && ports.iter().all(is_ethernet) {
            "roce"
        } else {
            "infiniband"
        },
        model: dir.text("hca_type"),
        board: dir.text("board_id"),
        firmware: dir.text("fw_ver"),
        pci: dir.pci_address(),
        numa_node: dir.numa_node("device/numa_node"),
        ports,
        name,
    }
}

fn port(adapter: &MachineDir<'_>, port: String) -> InterconnectPort {
    let of = |file: &str| adapter.text(&format!("ports/{port}/{file}"));
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
    let dir = machine.dir(format!("{SLINGSHOT}/{name}"));
    InterconnectAdapter {
        kind: "slingshot",
        model: dir.text("device/fru/description"),
        board: dir.text("device/fru/part_number"),
        firmware: dir.text("device/uc/qspi_blob_version"),
        pci: dir.pci_address(),
        numa_node: dir.numa_node("device/numa_node"),
        ports: Vec::new(),
        name,
    }
}
