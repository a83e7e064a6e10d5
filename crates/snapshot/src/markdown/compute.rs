//! The sections on processors and memory.

use super::table::{definition_list, join_blocks, table};
use super::units::{bytes, plural, three_digits};
use super::{join_present, or_empty, to_text};
use crate::cpu::CpuInfo;
use crate::dimms::Dimm;
use crate::snapshot::Snapshot;

/// The most requested CPU flags. All others are in the JSON only.
#[rustfmt::skip]
const FLAGS: &[&str] = &[
    "sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
    "amx_bf16", "amx_int8", "sha_ni", "aes", "vaes", "asimd", "sve", "sve2", "bf16", "i8mm", "sme",
    "constant_tsc", "nonstop_tsc", "hypervisor",
];

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
            "{} … {count} in total",
            shown.copied().collect::<Vec<_>>().join(" ")
        ),
    };
    let range = match (cpu.mhz_min, cpu.mhz_max) {
        (Some(min), Some(max)) => format!(
            "{} to {} GHz",
            three_digits(min / 1000.0),
            three_digits(max / 1000.0)
        ),
        _ => String::new(),
    };
    let governor = join_present(&[cpu.driver.as_deref(), cpu.governor.as_deref()]);
    let properties = definition_list(&[
        ("Model", or_empty(&cpu.model)),
        (
            "Identity",
            join_present(&[cpu.vendor.as_deref(), cpu.identity.as_deref()]),
        ),
        ("Microcode", or_empty(&cpu.microcode)),
        ("Topology", topology),
        ("Online", or_empty(&cpu.online)),
        ("SMT", or_empty(&cpu.smt)),
        ("Frequency", range),
        ("Governor", governor),
        ("Flags", flags),
    ]);
    join_blocks(&[properties, caches(cpu), numa_nodes(cpu)])
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
    let properties = definition_list(&[
        ("Total", bytes(memory.total_bytes)),
        ("Swap", swap),
        ("Pages", to_text(memory.page_bytes.map(bytes))),
        ("Huge pages", huge.collect::<Vec<_>>().join(", ")),
        (
            "Transparent huge pages",
            or_empty(&memory.transparent_huge_pages),
        ),
        ("Swappiness", to_text(memory.swappiness)),
        ("Overcommit", to_text(memory.overcommit)),
        ("NUMA balancing", to_text(memory.numa_balancing)),
        ("ECC", or_empty(&memory.ecc)),
        ("Modules", modules),
    ]);
    let head = [
        "count",
        "size",
        "type",
        "speed",
        "manufacturer",
        "part",
        "slots",
    ];
    join_blocks(&[properties, table(&head, modules_by_kind(&memory.dimms))])
}

/// Groups equal modules into one row each.
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
            (Some(configured), Some(rated)) if configured != rated => {
                format!("{configured} of {rated} MT/s")
            }
            (Some(speed), _) | (None, Some(speed)) => format!("{speed} MT/s"),
            _ => String::new(),
        };
        vec![
            locators.len().to_string(),
            bytes(dimm.bytes),
            or_empty(&dimm.kind),
            speed,
            or_empty(&dimm.manufacturer),
            or_empty(&dimm.part),
            locators.join(" "),
        ]
    });
    rows.collect()
}

fn caches(cpu: &CpuInfo) -> String {
    let rows = cpu.caches.iter().map(|cache| {
        vec![
            format!("L{} {}", cache.level, cache.kind),
            bytes(cache.bytes),
            cache.count.to_string(),
            plural(cache.shared_by, "thread"),
            to_text(cache.ways),
            to_text(cache.line_bytes.map(bytes)),
        ]
    });
    let head = ["cache", "size", "count", "shared by", "ways", "line"];
    table(&head, rows)
}

/// Lists the NUMA nodes, if there are several.
fn numa_nodes(cpu: &CpuInfo) -> String {
    if cpu.numa_nodes.len() < 2 {
        return String::new();
    }
    let rows = cpu.numa_nodes.iter().map(|node| {
        let distances = node.distances.iter().map(u32::to_string);
        vec![
            node.node.to_string(),
            node.cpus.clone(),
            to_text(node.memory_bytes.map(bytes)),
            distances.collect::<Vec<_>>().join(" "),
        ]
    });
    let head = ["node", "processors", "memory", "distances"];
    table(&head, rows)
}
