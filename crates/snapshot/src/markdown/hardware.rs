//! The sections on the machine, GPUs, networks and disks.

use super::table::{definition_list, join_blocks, table};
use super::units::{bytes, disk_bytes, mbit};
use super::{join_present, or_empty, to_text};
use crate::snapshot::Snapshot;

/// Joins vendor and model, unless the model already begins with the vendor.
fn vendor_and_model(vendor: &Option<String>, model: &Option<String>) -> String {
    let is_included = vendor
        .as_deref()
        .zip(model.as_deref())
        .is_some_and(|(vendor, model)| model.starts_with(vendor));
    join_present(&[vendor.as_deref().filter(|_| !is_included), model.as_deref()])
}

/// Formats a NUMA node. The kernel reports -1 if there is only one.
fn numa_node(value: Option<i64>) -> String {
    to_text(value.filter(|node| *node >= 0))
}

pub(super) fn machine(snapshot: &Snapshot) -> String {
    let firmware = &snapshot.firmware;
    let part = |parts: [&Option<String>; 3]| join_present(&parts.map(Option::as_deref));
    let boot = if firmware.efi { "UEFI" } else { "" };
    let is_virtual = match (&firmware.hypervisor, firmware.is_virtual) {
        (Some(name), _) => format!("yes, {name}"),
        (None, true) => "yes".to_owned(),
        (None, false) => String::new(),
    };
    definition_list(&[
        (
            "Model",
            vendor_and_model(&firmware.vendor, &firmware.product),
        ),
        ("Version", or_empty(&firmware.version)),
        (
            "Board",
            vendor_and_model(&firmware.board_vendor, &firmware.board),
        ),
        (
            "Firmware",
            part([
                &firmware.bios_vendor,
                &firmware.bios_version,
                &firmware.bios_date,
            ]),
        ),
        ("Boot mode", boot.to_owned()),
        ("Virtual", is_virtual),
    ])
}

pub(super) fn gpus(snapshot: &Snapshot) -> String {
    let rows = snapshot.gpus.iter().map(|gpu| {
        let name = gpu.name.clone().unwrap_or_else(|| {
            let id = gpu.pci_id.as_deref().unwrap_or_default();
            format!("{} {id}", gpu.vendor)
        });
        vec![
            name,
            to_text(gpu.memory_bytes.map(bytes)),
            or_empty(&gpu.pci),
            numa_node(gpu.numa_node),
            or_empty(&gpu.link),
            join_present(&[gpu.driver.as_deref(), gpu.driver_version.as_deref()]),
            or_empty(&gpu.firmware),
            or_empty(&gpu.uuid),
        ]
    });
    let head = [
        "name", "memory", "pci", "node", "link", "driver", "firmware", "uuid",
    ];
    table(&head, rows)
}

pub(super) fn network(snapshot: &Snapshot) -> String {
    join_blocks(&[interfaces(snapshot), interconnects(snapshot)])
}

fn interfaces(snapshot: &Snapshot) -> String {
    let rows = snapshot.network.iter().map(|interface| {
        let kind = match interface.made_of.as_slice() {
            [] => interface.kind.clone(),
            parts => format!("{} of {}", interface.kind, parts.join(" ")),
        };
        vec![
            interface.name.clone(),
            kind,
            or_empty(&interface.state),
            to_text(interface.mbit.map(mbit)),
            to_text(interface.mtu),
            or_empty(&interface.mac),
            or_empty(&interface.driver),
            or_empty(&interface.pci),
            numa_node(interface.numa_node),
        ]
    });
    let head = [
        "name", "kind", "state", "speed", "mtu", "mac", "driver", "pci", "node",
    ];
    table(&head, rows)
}

fn interconnects(snapshot: &Snapshot) -> String {
    let mut rows = Vec::new();
    for adapter in &snapshot.interconnects {
        let row = |port: String, state: String, rate: String| {
            vec![
                adapter.name.clone(),
                port,
                adapter.kind.to_owned(),
                state,
                rate,
                join_present(&[adapter.model.as_deref(), adapter.board.as_deref()]),
                or_empty(&adapter.firmware),
                numa_node(adapter.numa_node),
            ]
        };
        if adapter.ports.is_empty() {
            rows.push(row(String::new(), String::new(), String::new()));
        }
        for port in &adapter.ports {
            let state = join_present(&[port.state.as_deref(), port.physical_state.as_deref()]);
            rows.push(row(port.port.clone(), state, or_empty(&port.rate)));
        }
    }
    let head = [
        "adapter", "port", "kind", "state", "rate", "model", "firmware", "node",
    ];
    table(&head, rows)
}

pub(super) fn disks(snapshot: &Snapshot) -> String {
    join_blocks(&[block_devices(snapshot), nvme_controllers(snapshot)])
}

fn block_devices(snapshot: &Snapshot) -> String {
    let rows = snapshot.disks.iter().map(|found| {
        let kind = match (found.made_of.as_slice(), found.is_rotational) {
            ([], Some(true)) => "rotational".to_owned(),
            ([], Some(false)) => "solid state".to_owned(),
            ([], None) => String::new(),
            (parts, _) => format!("of {}", parts.join(" ")),
        };
        let read_only = found.is_read_only.then_some("read-only");
        let removable = found.is_removable.then_some("removable");
        vec![
            found.name.clone(),
            disk_bytes(found.bytes),
            join_present(&[found.vendor.as_deref(), found.model.as_deref()]),
            kind,
            or_empty(&found.scheduler),
            to_text(found.physical_block_bytes.map(bytes)),
            join_present(&[read_only, removable]),
        ]
    });
    let head = [
        "disk",
        "size",
        "model",
        "kind",
        "scheduler",
        "block",
        "notes",
    ];
    table(&head, rows)
}

fn nvme_controllers(snapshot: &Snapshot) -> String {
    let rows = snapshot.nvme.iter().map(|found| {
        vec![
            found.name.clone(),
            or_empty(&found.model),
            or_empty(&found.firmware),
            or_empty(&found.transport),
            or_empty(&found.pci),
            numa_node(found.numa_node),
            found.namespaces.join(" "),
        ]
    });
    let head = [
        "NVMe",
        "model",
        "firmware",
        "transport",
        "pci",
        "node",
        "namespaces",
    ];
    table(&head, rows)
}
