//! Memory: total size, page sizes, kernel settings, and the installed modules.

use serde::Serialize;

use crate::dimms::{self, Dimm};
use pegel_machine::{MachineFiles, meminfo_bytes};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MemoryInfo {
    pub total_bytes: u64,
    pub swap_bytes: u64,
    /// Page size of the local machine; unknown for a fixture tree.
    pub page_bytes: Option<u64>,
    pub huge_pages: Vec<HugePages>,
    /// `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    pub swappiness: Option<u64>,
    pub overcommit: Option<u64>,
    pub numa_balancing: Option<u64>,
    /// Source of the modules: `smbios`, `udev` or `edac`; `None` if they are unknown.
    pub dimms_from: Option<&'static str>,
    pub ecc: Option<String>,
    pub slots: Option<u64>,
    pub dimms: Vec<Dimm>,
}

/// Reserved huge pages of one size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HugePages {
    pub page_bytes: u64,
    pub count: u64,
}

pub(crate) fn read(machine: &MachineFiles) -> MemoryInfo {
    let meminfo = machine.text("proc/meminfo").unwrap_or_default();
    let bytes = |key: &str| meminfo_bytes(&meminfo, key).unwrap_or(0);
    let modules = dimms::read(machine);
    let setting = |file: &str| machine.number(format!("proc/sys/{file}"));
    MemoryInfo {
        total_bytes: bytes("MemTotal"),
        swap_bytes: bytes("SwapTotal"),
        page_bytes: machine
            .is_local()
            .then(|| rustix::param::page_size() as u64),
        huge_pages: huge_pages(machine),
        transparent_huge_pages: machine
            .text("sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|text| bracketed_choice(&text)),
        swappiness: setting("vm/swappiness"),
        overcommit: setting("vm/overcommit_memory"),
        numa_balancing: setting("kernel/numa_balancing"),
        dimms_from: modules.from,
        ecc: modules.ecc,
        slots: modules.slots,
        dimms: modules.dimms,
    }
}

/// Returns the selected word, which the kernel puts in brackets: `always [madvise] never`.
pub(crate) fn bracketed_choice(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word.to_owned())
}

fn huge_pages(machine: &MachineFiles) -> Vec<HugePages> {
    const FOLDER: &str = "sys/kernel/mm/hugepages";
    let read = |name: String| {
        let kib: u64 = name
            .strip_prefix("hugepages-")?
            .strip_suffix("kB")?
            .parse()
            .ok()?;
        let count = machine.number(format!("{FOLDER}/{name}/nr_hugepages"))?;
        let page_bytes = kib.checked_mul(1024)?;
        (count > 0).then_some(HugePages { page_bytes, count })
    };
    machine.names(FOLDER).into_iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_is_the_selected_one() {
        let word = bracketed_choice("always [madvise] never");
        assert_eq!(word.as_deref(), Some("madvise"));
        assert_eq!(bracketed_choice("none"), None);
    }
}
