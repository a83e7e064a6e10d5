//! Counting in the kernel: small programs at the start and the end of system calls, loaded only while something is watched.
//!
//! They are assembled here and need neither a compiler nor the kernel's headers. The kernel describes its own types (BTF),
//! by which the tracepoints are found. Every process of the machine pays for the programs while they are loaded, some tens
//! of nanoseconds a call; they go with the last descriptor, however this process ends.

mod assembler;
mod btf;
mod kernel;
mod programs;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::names;
use crate::ptrace::{Ending, Held, Hold};
use crate::tally::{Count, Tally};
use btf::Btf;
use programs::{
    ALIVE, FIRST_TASK, Maps, ROW_COMPAT, ROW_LARGE, ROW_WORDS, ROWS, SHARED_WORDS, STARTED,
    TASK_WORDS,
};

const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// How often counts go from the kernel to the lane.
const READ_EVERY: Duration = Duration::from_millis(200);
const TRACEPOINTS: [&str; 5] = [
    "btf_trace_sched_process_exit",
    "btf_trace_task_newtask",
    "btf_trace_sched_process_exec",
    "btf_trace_sys_exit",
    "btf_trace_sys_enter",
];

/// Why this machine does not allow it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EbpfError {
    #[error("no permission (it needs CAP_BPF and CAP_PERFMON)")]
    Permission,
    #[error("this kernel does not describe its types in {TYPES}")]
    NoTypes,
    #[error("this kernel has no tracepoint {0}")]
    NoTracepoint(&'static str),
    #[error("the kernel refuses {what}: {source}")]
    Refused {
        what: &'static str,
        source: io::Error,
    },
}

fn refused(what: &'static str) -> impl Fn(io::Error) -> EbpfError {
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if what == "maps" => EbpfError::Permission,
        _ => EbpfError::Refused { what, source },
    }
}

/// The programs at work, and what they count.
#[derive(Debug)]
pub(crate) struct Watcher {
    maps: Maps,
    /// The programs run as long as these are open.
    _links: Vec<OwnedFd>,
    process: OwnedFd,
    /// None where the kernel does not allow to hold the process: then its parent learns of its end when we do.
    hold: Option<Hold>,
    processors: usize,
    /// What was in the table at the last reading.
    before: Vec<[u64; ROW_WORDS]>,
}

impl Watcher {
    /// From its exec on, the program that this process becomes is counted.
    pub(crate) fn for_program(wrapper: i32) -> Result<Watcher, EbpfError> {
        let maps = create_maps().map_err(refused("maps"))?;
        let tracepoints = describe()?;
        let process = Pid::from_raw(wrapper)
            .ok_or(io::Error::from_raw_os_error(libc::ESRCH))
            .and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?))
            .map_err(refused("the process"))?;
        let mut shared = [0; SHARED_WORDS];
        shared[ALIVE] = 1;
        kernel::update(&maps.shared, &shared).map_err(refused("a value"))?;
        kernel::update_task(&maps.tasks, process.as_fd(), &FIRST_TASK)
            .map_err(refused("the task"))?;
        let programs = [
            maps.ended(),
            maps.born(),
            maps.started(),
            maps.leave(),
            maps.enter(),
        ];
        let mut links = Vec::new();
        for (code, tracepoint) in programs.iter().zip(tracepoints) {
            let program = kernel::load_program(code, tracepoint).map_err(refused("a program"))?;
            links.push(kernel::attach(&program).map_err(refused("a tracepoint"))?);
        }
        Ok(Watcher {
            maps,
            _links: links,
            process,
            hold: Hold::new(wrapper).ok(),
            processors: possible_processors(),
            before: vec![[0; ROW_WORDS]; ROWS],
        })
    }

    /// Brings counts into the tally until all tasks are gone. `on_end` is called when the first process has ended: with
    /// how it did, and whether it had become the program.
    pub(crate) fn follow(&mut self, tally: &mut Tally, on_end: impl FnOnce(&Tally, Ending, bool)) {
        let ending = loop {
            match self.wait() {
                Some(ending) => break ending,
                None => self.read(tally),
            }
        };
        self.read(tally);
        on_end(tally, ending, self.shared()[STARTED] != 0);
        if let Some(hold) = self.hold.take() {
            hold.release();
        }
        // Children that outlive it are counted as well.
        while self.shared()[ALIVE] as i64 > 0 {
            std::thread::sleep(READ_EVERY);
            self.read(tally);
        }
        self.read(tally);
    }

    /// Waits a moment for the end of the first process.
    fn wait(&mut self) -> Option<Ending> {
        let watched = match &self.hold {
            Some(hold) => hold.as_fd(),
            None => self.process.as_fd(),
        };
        let mut descriptors = [PollFd::from_borrowed_fd(watched, PollFlags::IN)];
        let moment = Timespec::try_from(READ_EVERY).ok();
        let is_news = poll(&mut descriptors, moment.as_ref()).is_ok_and(|count| count > 0);
        match self.hold.as_mut().map(Hold::look) {
            Some(Held::Running) => None,
            Some(Held::Ended(ending)) => Some(ending),
            Some(Held::Lost) => {
                self.hold = None;
                None
            }
            // How it ended is its parent's to know.
            None => is_news.then_some(Ending::Released),
        }
    }

    fn shared(&self) -> [u64; SHARED_WORDS] {
        let mut shared = [0; SHARED_WORDS];
        // A map of our own can be read.
        let _ = kernel::lookup(&self.maps.shared, &mut shared);
        shared
    }

    fn read(&mut self, tally: &mut Tally) {
        let mut table = vec![0; ROWS * ROW_WORDS * self.processors];
        if kernel::lookup(&self.maps.table, &mut table).is_err() {
            return;
        }
        for (row, before) in self.before.iter_mut().enumerate() {
            let mut sum = [0_u64; ROW_WORDS];
            for processor in table.chunks_exact(ROWS * ROW_WORDS) {
                let words = processor.chunks_exact(ROW_WORDS).nth(row);
                for (sum, word) in sum.iter_mut().zip(words.unwrap_or_default()) {
                    *sum = sum.wrapping_add(*word);
                }
            }
            if sum[0] != before[0] {
                add(tally, row, &sum, before);
                *before = sum;
            }
        }
    }
}

fn add(tally: &mut Tally, row: usize, now: &[u64; ROW_WORDS], before: &[u64; ROW_WORDS]) {
    let more = |word: usize| now[word].wrapping_sub(before[word]);
    let count = Count {
        hits: more(0),
        bytes: more(1),
        nanos: more(2),
        errors: more(3),
    };
    match row {
        ROW_COMPAT => tally.add(names::ARCH_I386, u64::MAX, count),
        ROW_LARGE => tally.add(names::ARCH_NATIVE, u64::MAX, count),
        row => tally.add(names::ARCH_NATIVE, row as u64, count),
    }
}

fn create_maps() -> io::Result<Maps> {
    let table = kernel::create_array(kernel::ARRAY_PER_PROCESSOR, ROWS * ROW_WORDS * 8)?;
    let shared = kernel::create_array(kernel::ARRAY, SHARED_WORDS * 8)?;
    let types = kernel::load_btf(&btf::own(TASK_WORDS as u32))?;
    let tasks = kernel::create_task_storage(&types, TASK_WORDS * 8)?;
    Ok(Maps {
        tasks,
        table,
        shared,
    })
}

/// Where the kernel has what the programs need.
fn describe() -> Result<[u32; TRACEPOINTS.len()], EbpfError> {
    let bytes = std::fs::read(TYPES).map_err(|_| EbpfError::NoTypes)?;
    let types = Btf::parse(&bytes).ok_or(EbpfError::NoTypes)?;
    let mut tracepoints = [0; TRACEPOINTS.len()];
    let found = types.typedefs(&TRACEPOINTS);
    for ((slot, found), name) in tracepoints.iter_mut().zip(found).zip(TRACEPOINTS) {
        *slot = found.ok_or(EbpfError::NoTracepoint(name))?;
    }
    Ok(tracepoints)
}

/// How many processors there can be: the kernel keeps a table for each.
fn possible_processors() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next();
    last.and_then(|number| number.parse::<usize>().ok())
        .map_or(4096, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_the_programs() {
        let maps = match create_maps() {
            Ok(maps) => maps,
            Err(error) => {
                let is_there = false;
                let what = format!("permission for eBPF ({error})");
                pegel_testkit::need_hardware(is_there, &what);
                return;
            }
        };
        let tracepoints = describe().expect("a kernel with BTF");
        let programs = [
            maps.ended(),
            maps.born(),
            maps.started(),
            maps.leave(),
            maps.enter(),
        ];
        for ((code, tracepoint), name) in programs.iter().zip(tracepoints).zip(TRACEPOINTS) {
            if let Err(error) = kernel::load_program(code, tracepoint) {
                let why = kernel::explain_program(code, tracepoint);
                panic!("{name}: {error}\n{why}");
            }
        }
    }
}
