//! What the machine is made of.

use super::joined;
use super::table::{pairs, table};
use super::units::{bytes, disk, mbit, plural, short};
use crate::dimms::Dimm;
use crate::snapshot::Snapshot;

/// Flags that people look for; the others are in the JSON.
const FLAGS: &[&str] = &[
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "sha_ni",
    "aes",
    "vaes",
    "asimd",
    "sve",
    "sve2",
    "bf16",
    "i8mm",
    "sme",
    "constant_tsc",
    "nonstop_tsc",
    "hypervisor",
];

fn text(value: &Option<String>) -> String {
    value.clone().unwrap_or_default()
}

fn number<T: ToString>(value: Option<T>) -> String {
    value.map(|number| number.to_string()).unwrap_or_default()
}

/// Maker and model; some models begin with the maker.
fn named(maker: &Option<String>, model: &Option<String>) -> String {
    let is_said = maker
        .as_deref()
        .zip(model.as_deref())
        .is_some_and(|(maker, model)| model.starts_with(maker));
    joined(&[maker.as_deref().filter(|_| !is_said), model.as_deref()])
}

/// The kernel writes -1 where there is only one.
fn node(value: Option<i64>) -> String {
    number(value.filter(|node| *node >= 0))
}

pub(super) fn machine(snapshot: &Snapshot) -> String {
    let firmware = &snapshot.firmware;
    let part = |parts: [&Option<String>; 3]| joined(&parts.map(Option::as_deref));
    let boot = if firmware.efi { "UEFI" } else { "" };
    let is_virtual = match (&firmware.hypervisor, firmware.is_virtual) {
        (Some(name), _) => format!("yes, {name}"),
        (None, true) => "yes".to_owned(),
        (None, false) => String::new(),
    };
    pairs(&[
        ("Model", named(&firmware.vendor, &firmware.product)),
        ("Version", text(&firmware.version)),
        ("Board", named(&firmware.board_vendor, &firmware.board)),
        (
            "Firmware",
            part([
                &firmware.bios_vendor,
                &firmware.bios_version,
                &firmware.bios_date,
            ]),
        ),
        ("Booted by", boot.to_owned()),
        ("Virtual", is_virtual),
    ])
}

pub(super) fn processors(snapshot: &Snapshot) -> String {
    let cpu = &snapshot.cpu;
    if cpu.threads == 0 && cpu.model.is_none() {
        return String::new();
    }
    let topology = match cpu.cores {
        0 => plural(cpu.threads, "thread"),
        cores => format!(
            "{}, {}, {} ({} per core), {}",
            plural(cpu.sockets, "socket"),
            plural(cores, "core"),
            plural(cpu.threads, "thread"),
            cpu.threads_per_core,
            plural(cpu.numa_nodes.len(), "NUMA node"),
        ),
    };
    let shown = FLAGS
        .iter()
        .filter(|flag| cpu.flags.iter().any(|known| known == *flag));
    let flags = match cpu.flags.len() {
        0 => String::new(),
        count => format!(
            "{} … {count} in all",
            shown.copied().collect::<Vec<_>>().join(" ")
        ),
    };
    let range = match (cpu.mhz_min, cpu.mhz_max) {
        (Some(min), Some(max)) => format!("{} to {} GHz", short(min / 1000.0), short(max / 1000.0)),
        _ => String::new(),
    };
    let governor = joined(&[cpu.driver.as_deref(), cpu.governor.as_deref()]);
    let mut out = pairs(&[
        ("Model", text(&cpu.model)),
        (
            "Identity",
            joined(&[cpu.vendor.as_deref(), cpu.identity.as_deref()]),
        ),
        ("Microcode", text(&cpu.microcode)),
        ("Topology", topology),
        ("Online", text(&cpu.online)),
        ("SMT", text(&cpu.smt)),
        ("Frequency", range),
        ("Governor", governor),
        ("Flags", flags),
    ]);
    let caches: Vec<Vec<String>> = cpu
        .caches
        .iter()
        .map(|cache| {
            vec![
                format!("L{} {}", cache.level, cache.kind),
                bytes(cache.bytes),
                cache.count.to_string(),
                plural(cache.shared_by, "thread"),
                number(cache.ways),
                number(cache.line_bytes.map(bytes)),
            ]
        })
        .collect();
    if !caches.is_empty() {
        out.push('\n');
        out.push_str(&table(
            &["cache", "size", "count", "shared by", "ways", "line"],
            &caches,
        ));
    }
    // One node is no topology.
    if cpu.numa_nodes.len() > 1 {
        let rows: Vec<Vec<String>> = cpu
            .numa_nodes
            .iter()
            .map(|node| {
                let distances = node.distances.iter().map(u32::to_string);
                let distances = distances.collect::<Vec<_>>().join(" ");
                vec![
                    node.node.to_string(),
                    node.cpus.clone(),
                    number(node.memory_bytes.map(bytes)),
                    distances,
                ]
            })
            .collect();
        out.push('\n');
        out.push_str(&table(
            &["node", "processors", "memory", "distances"],
            &rows,
        ));
    }
    out
}

pub(super) fn memory(snapshot: &Snapshot) -> String {
    let memory = &snapshot.memory;
    if memory.total_bytes == 0 {
        return String::new();
    }
    let huge = memory
        .huge_pages
        .iter()
        .map(|pages| format!("{} × {}", pages.count, bytes(pages.page_bytes)));
    let swap = match memory.swap_bytes {
        0 => "none".to_owned(),
        count => bytes(count),
    };
    let modules = match (memory.dimms.len(), memory.slots) {
        (0, _) => String::new(),
        (count, Some(slots)) => format!("{count} in {slots} slots"),
        (count, None) => count.to_string(),
    };
    let mut out = pairs(&[
        ("Total", bytes(memory.total_bytes)),
        ("Swap", swap),
        ("Pages", number(memory.page_bytes.map(bytes))),
        ("Huge pages", huge.collect::<Vec<_>>().join(", ")),
        (
            "Transparent huge pages",
            text(&memory.transparent_huge_pages),
        ),
        ("Swappiness", number(memory.swappiness)),
        ("Overcommit", number(memory.overcommit)),
        ("NUMA balancing", number(memory.numa_balancing)),
        ("ECC", text(&memory.ecc)),
        ("Modules", modules),
    ]);
    let rows = modules_by_kind(&memory.dimms);
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&table(
            &["count", "size", "type", "speed", "maker", "part", "slots"],
            &rows,
        ));
    }
    out
}

/// Modules that are the same, once.
fn modules_by_kind(dimms: &[Dimm]) -> Vec<Vec<String>> {
    let mut kinds: Vec<(&Dimm, Vec<&str>)> = Vec::new();
    let kind = |dimm: &Dimm| Dimm {
        locator: None,
        bank: None,
        ..dimm.clone()
    };
    for dimm in dimms {
        let locator = dimm.locator.as_deref().unwrap_or("?");
        match kinds
            .iter_mut()
            .find(|(known, _)| kind(known) == kind(dimm))
        {
            Some((_, locators)) => locators.push(locator),
            None => kinds.push((dimm, vec![locator])),
        }
    }
    let rows = kinds.iter().map(|(dimm, locators)| {
        let speed = match (dimm.configured_mts, dimm.speed_mts) {
            (Some(now), Some(most)) if now != most => format!("{now} of {most} MT/s"),
            (Some(speed), _) | (None, Some(speed)) => format!("{speed} MT/s"),
            _ => String::new(),
        };
        vec![
            locators.len().to_string(),
            bytes(dimm.bytes),
            text(&dimm.kind),
            speed,
            text(&dimm.manufacturer),
            text(&dimm.part),
            locators.join(" "),
        ]
    });
    rows.collect()
}

pub(super) fn gpus(snapshot: &Snapshot) -> String {
    if snapshot.gpus.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = snapshot
        .gpus
        .iter()
        .map(|gpu| {
            let name = gpu.name.clone().unwrap_or_else(|| {
                format!(
                    "{} {}",
                    gpu.vendor,
                    gpu.pci_id.as_deref().unwrap_or_default()
                )
            });
            vec![
                name,
                number(gpu.memory_bytes.map(bytes)),
                text(&gpu.pci),
                node(gpu.numa_node),
                text(&gpu.link),
                joined(&[gpu.driver.as_deref(), gpu.driver_version.as_deref()]),
                text(&gpu.firmware),
                text(&gpu.uuid),
            ]
        })
        .collect();
    table(
        &[
            "name", "memory", "pci", "node", "link", "driver", "firmware", "uuid",
        ],
        &rows,
    )
}

pub(super) fn network(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    let rows: Vec<Vec<String>> = snapshot
        .network
        .iter()
        .map(|interface| {
            let kind = match interface.made_of.as_slice() {
                [] => interface.kind.clone(),
                parts => format!("{} of {}", interface.kind, parts.join(" ")),
            };
            vec![
                interface.name.clone(),
                kind,
                text(&interface.state),
                number(interface.mbit.map(mbit)),
                number(interface.mtu),
                text(&interface.mac),
                text(&interface.driver),
                text(&interface.pci),
                node(interface.numa_node),
            ]
        })
        .collect();
    if !rows.is_empty() {
        out = table(
            &[
                "name", "kind", "state", "speed", "mtu", "mac", "driver", "pci", "node",
            ],
            &rows,
        );
    }
    let mut rows = Vec::new();
    for adapter in &snapshot.interconnects {
        let row = |port: String, state: String, rate: String| {
            vec![
                adapter.name.clone(),
                port,
                adapter.kind.to_owned(),
                state,
                rate,
                joined(&[adapter.model.as_deref(), adapter.board.as_deref()]),
                text(&adapter.firmware),
                node(adapter.numa_node),
            ]
        };
        if adapter.ports.is_empty() {
            rows.push(row(String::new(), String::new(), String::new()));
        }
        for port in &adapter.ports {
            let state = joined(&[port.state.as_deref(), port.physical_state.as_deref()]);
            rows.push(row(port.port.clone(), state, text(&port.rate)));
        }
    }
    if !rows.is_empty() {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&table(
            &[
                "adapter", "port", "kind", "state", "rate", "model", "firmware", "node",
            ],
            &rows,
        ));
    }
    out
}

pub(super) fn disks(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    let rows: Vec<Vec<String>> = snapshot
        .disks
        .iter()
        .map(|found| {
            let kind = match (found.made_of.as_slice(), found.is_rotational) {
                ([], Some(true)) => "rotating".to_owned(),
                ([], Some(false)) => "solid".to_owned(),
                ([], None) => String::new(),
                (parts, _) => format!("of {}", parts.join(" ")),
            };
            let notes = [
                (found.is_read_only, "read-only"),
                (found.is_removable, "removable"),
            ];
            let notes = notes.iter().filter(|(is, _)| *is).map(|(_, note)| *note);
            vec![
                found.name.clone(),
                disk(found.bytes),
                joined(&[found.vendor.as_deref(), found.model.as_deref()]),
                kind,
                text(&found.scheduler),
                number(found.physical_block_bytes.map(bytes)),
                notes.collect::<Vec<_>>().join(" "),
            ]
        })
        .collect();
    if !rows.is_empty() {
        out = table(
            &[
                "disk",
                "size",
                "model",
                "kind",
                "scheduler",
                "block",
                "notes",
            ],
            &rows,
        );
    }
    let rows: Vec<Vec<String>> = snapshot
        .nvme
        .iter()
        .map(|found| {
            vec![
                found.name.clone(),
                text(&found.model),
                text(&found.firmware),
                text(&found.transport),
                text(&found.pci),
                node(found.numa_node),
                found.namespaces.join(" "),
            ]
        })
        .collect();
    if !rows.is_empty() {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&table(
            &[
                "NVMe",
                "model",
                "firmware",
                "transport",
                "pci",
                "node",
                "namespaces",
            ],
            &rows,
        ));
    }
    out
}
