//! The set of maps and programs loaded into the kernel. The programs run as long as any process
//! holds the links.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::Builder;

use super::btf::{self, Btf};
use super::programs::{BpfMaps, SLOT_WORDS, SLOTS_MAX, SecureBit, TABLE_WORDS, TASK_WORDS};
use super::{CallTiming, EbpfError, bpf_syscall, kernel_refused};

pub(super) const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// The tracepoints, in the order of the programs.
const TRACEPOINTS: [&str; 5] = [
    "btf_trace_sched_process_exit",
    "btf_trace_task_newtask",
    "btf_trace_sched_process_exec",
    "btf_trace_sys_exit",
    "btf_trace_sys_enter",
];

/// Returns the number of programs of a set.
pub(super) const fn program_count(time: CallTiming) -> usize {
    match time {
        CallTiming::Measured => TRACEPOINTS.len(),
        // No program at the start of a call.
        CallTiming::Ignored => TRACEPOINTS.len() - 1,
    }
}

#[derive(Debug)]
pub(super) struct ProgramSet {
    pub maps: BpfMaps,
    pub links: Vec<OwnedFd>,
    /// The next free slot; assigned by the process that loaded the set.
    next: AtomicU32,
}

impl ProgramSet {
    pub(super) fn new(maps: BpfMaps, links: Vec<OwnedFd>) -> ProgramSet {
        // Slot 0 belongs to the loader.
        let next = AtomicU32::new(1);
        ProgramSet { maps, links, next }
    }

    /// Returns an unused slot number. Inserting into the maps fails if they are full.
    pub(super) fn take_slot(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Loads and attaches the programs; `table` becomes the table of slot 0.
    pub(super) fn load(table: &OwnedFd, time: CallTiming) -> Result<ProgramSet, EbpfError> {
        let maps = create_maps(table).map_err(kernel_refused("maps"))?;
        let (links, installed) = std::thread::scope(|scope| {
            // The update waits for a grace period of some milliseconds: load the programs
            // meanwhile.
            let install = || bpf_syscall::update_map(&maps.tables, 0, table);
            let installer = Builder::new().spawn_scoped(scope, install);
            let links = load_and_attach(&maps, time);
            let installed = installer.and_then(|installer| {
                let panicked = |_| io::Error::other("internal error: a thread panicked");
                installer.join().map_err(panicked)?
            });
            (links, installed)
        });
        installed.map_err(kernel_refused("a table"))?;
        Ok(ProgramSet::new(maps, links?))
    }
}

pub(super) fn create_table() -> io::Result<OwnedFd> {
    bpf_syscall::create_table(TABLE_WORDS * 8)
}

fn create_maps(table: &OwnedFd) -> io::Result<BpfMaps> {
    let types = bpf_syscall::load_btf(&btf::task_value_btf(TASK_WORDS as u32))?;
    Ok(BpfMaps {
        tasks: bpf_syscall::create_task_storage(&types, TASK_WORDS * 8)?,
        tables: bpf_syscall::create_hash_of(table, SLOTS_MAX)?,
        slots: bpf_syscall::create_hash(SLOT_WORDS * 8, SLOTS_MAX)?,
    })
}

fn load_and_attach(maps: &BpfMaps, time: CallTiming) -> Result<Vec<OwnedFd>, EbpfError> {
    let kernel_types = KernelTypes::read()?;
    let mut links = Vec::new();
    for (code, tracepoint) in programs(maps, time, &kernel_types) {
        let program =
            bpf_syscall::load_program(&code, tracepoint).map_err(kernel_refused("a program"))?;
        links.push(bpf_syscall::attach(&program).map_err(kernel_refused("a tracepoint"))?);
    }
    Ok(links)
}

/// Returns each program with its tracepoint.
fn programs(maps: &BpfMaps, time: CallTiming, types: &KernelTypes) -> Vec<(Vec<u64>, u32)> {
    let leave = match time {
        CallTiming::Measured => maps.on_syscall_exit(),
        CallTiming::Ignored => maps.on_syscall_exit_untimed(),
    };
    let all = [
        maps.on_exit(time),
        maps.on_new_task(),
        maps.on_exec(types.secure, time),
        leave,
        maps.on_syscall_enter(),
    ];
    let with_tracepoints = all.into_iter().zip(types.tracepoints);
    with_tracepoints.take(program_count(time)).collect()
}

/// The type IDs and offsets of this kernel that the programs need.
#[derive(Debug)]
struct KernelTypes {
    tracepoints: [u32; TRACEPOINTS.len()],
    secure: SecureBit,
}

impl KernelTypes {
    fn read() -> Result<KernelTypes, EbpfError> {
        let file = btf::BtfFile::open(TYPES).map_err(|_| EbpfError::NoTypes)?;
        let types = Btf::parse(file.bytes()).ok_or(EbpfError::NoTypes)?;
        let mut tracepoints = [0; TRACEPOINTS.len()];
        let found = types.typedefs(&TRACEPOINTS);
        for ((slot, found), name) in tracepoints.iter_mut().zip(found).zip(TRACEPOINTS) {
            *slot = found.ok_or(EbpfError::Missing(name))?;
        }
        let bit = types.member_bit_offset("linux_binprm", "secureexec");
        let missing = EbpfError::Missing("linux_binprm.secureexec");
        let bit = bit.ok_or(missing)?;
        let secure = SecureBit {
            byte: (bit / 8) as i16,
            mask: 1 << (bit % 8),
        };
        Ok(KernelTypes {
            tracepoints,
            secure,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_the_programs() {
        let table = match create_table() {
            Ok(table) => table,
            Err(error) => {
                let is_there = false;
                let what = format!("permission for eBPF ({error})");
                pegel_testkit::need_hardware(is_there, &what);
                return;
            }
        };
        let maps = create_maps(&table).expect("permission for one is for all");
        let types = KernelTypes::read().expect("a kernel with BTF");
        for time in [CallTiming::Measured, CallTiming::Ignored] {
            let programs = programs(&maps, time, &types);
            for ((code, tracepoint), name) in programs.iter().zip(TRACEPOINTS) {
                if let Err(error) = bpf_syscall::load_program(code, *tracepoint) {
                    let why = bpf_syscall::explain_program(code, *tracepoint);
                    panic!("{name}, {time:?}: {error}\n{why}");
                }
            }
        }
    }
}
