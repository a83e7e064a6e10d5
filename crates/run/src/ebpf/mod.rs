//! Counting in the kernel: small programs at the start and the end of system calls, loaded only while something is watched.
//!
//! They are assembled here and need neither a compiler nor the kernel's headers. The kernel describes its own types (BTF),
//! by which the tracepoints are found. Every process of the machine pays for the programs while they are loaded, some tens
//! of nanoseconds a call; they go with the last descriptor, however this process ends.

mod assembler;
mod btf;
mod kernel;
mod programs;
mod share;

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
    ALIVE, Maps, ROW_COMPAT, ROW_LARGE, ROW_WORDS, ROWS, SLOT_WORDS, SLOTS, STARTED, TASK_WORDS,
    first_task,
};
use share::{Found, Server, Set};

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
    set: Set,
    slot: u32,
    table: OwnedFd,
    /// Gives the set to others, if it was loaded here.
    server: Option<Server>,
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
        let table = create_table().map_err(refused("maps"))?;
        let (set, slot, server) = match share::find() {
            Found::Set(set, slot) => {
                let placed = kernel::update_map(&set.maps.tables, slot, &table);
                placed.map_err(refused("a table"))?;
                (set, slot, None)
            }
            Found::Nobody(listener) => (load(&table)?, 0, Some(Server::new(listener))),
            Found::NoUse => (load(&table)?, 0, None),
        };
        let process = Pid::from_raw(wrapper)
            .ok_or(io::Error::from_raw_os_error(libc::ESRCH))
            .and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?))
            .map_err(refused("the process"))?;
        let mut words = [0; SLOT_WORDS];
        words[ALIVE] = 1;
        let maps = &set.maps;
        kernel::update(&maps.slots, slot, &words).map_err(refused("a value"))?;
        kernel::update_task(&maps.tasks, process.as_fd(), &first_task(slot))
            .map_err(refused("the task"))?;
        let mut watcher = Watcher {
            set,
            slot,
            table,
            server,
            process,
            hold: Hold::new(wrapper).ok(),
            processors: possible_processors(),
            before: vec![[0; ROW_WORDS]; ROWS],
        };
        watcher.serve();
        Ok(watcher)
    }

    fn serve(&mut self) {
        if let Some(server) = &mut self.server {
            server.serve(&self.set);
        }
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
        on_end(tally, ending, self.words()[STARTED] != 0);
        if let Some(hold) = self.hold.take() {
            hold.release();
        }
        // Children that outlive it are counted as well.
        while self.words()[ALIVE].cast_signed() > 0 {
            std::thread::sleep(READ_EVERY);
            self.serve();
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
        let mut descriptors = vec![PollFd::from_borrowed_fd(watched, PollFlags::IN)];
        let server = self.server.as_ref().map(AsFd::as_fd);
        descriptors.extend(server.map(|server| PollFd::from_borrowed_fd(server, PollFlags::IN)));
        let moment = Timespec::try_from(READ_EVERY).ok();
        // A signal is no news.
        let _ = poll(&mut descriptors, moment.as_ref());
        let is_news = !descriptors[0].revents().is_empty();
        drop(descriptors);
        self.serve();
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

    fn words(&self) -> [u64; SLOT_WORDS] {
        let mut words = [0; SLOT_WORDS];
        // A map of our own can be read.
        let _ = kernel::lookup(&self.set.maps.slots, self.slot, &mut words);
        words
    }

    fn read(&mut self, tally: &mut Tally) {
        let mut table = vec![0; ROWS * ROW_WORDS * self.processors];
        if kernel::lookup(&self.table, 0, &mut table).is_err() {
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

fn create_table() -> io::Result<OwnedFd> {
    kernel::create_table(ROWS * ROW_WORDS * 8)
}

fn create_maps(table: &OwnedFd) -> io::Result<Maps> {
    let types = kernel::load_btf(&btf::own(TASK_WORDS as u32))?;
    Ok(Maps {
        tasks: kernel::create_task_storage(&types, TASK_WORDS * 8)?,
        tables: kernel::create_array_of(table, SLOTS)?,
        slots: kernel::create_array(SLOT_WORDS * 8, SLOTS)?,
    })
}

/// Loads the programs, which run from now on; the table is that of the first slot.
fn load(table: &OwnedFd) -> Result<Set, EbpfError> {
    let maps = create_maps(table).map_err(refused("maps"))?;
    let (links, placed) = std::thread::scope(|scope| {
        // The kernel waits until nobody uses what was there before, some milliseconds in which we go on.
        let placing = scope.spawn(|| kernel::update_map(&maps.tables, 0, table));
        let links = attach_all(&maps);
        (links, placing.join())
    });
    match placed {
        Ok(Ok(())) => Ok(Set {
            links: links?,
            maps,
        }),
        Ok(Err(error)) => Err(refused("a table")(error)),
        Err(_) => Err(refused("a table")(io::Error::other("a thread panicked"))),
    }
}

fn attach_all(maps: &Maps) -> Result<Vec<OwnedFd>, EbpfError> {
    let tracepoints = describe()?;
    let mut links = Vec::new();
    for (code, tracepoint) in programs(maps).iter().zip(tracepoints) {
        let program = kernel::load_program(code, tracepoint).map_err(refused("a program"))?;
        links.push(kernel::attach(&program).map_err(refused("a tracepoint"))?);
    }
    Ok(links)
}

/// One for each tracepoint.
fn programs(maps: &Maps) -> [Vec<u64>; TRACEPOINTS.len()] {
    [
        maps.ended(),
        maps.born(),
        maps.started(),
        maps.leave(),
        maps.enter(),
    ]
}

/// Where the kernel has what the programs need.
fn describe() -> Result<[u32; TRACEPOINTS.len()], EbpfError> {
    let file = btf::File::open(TYPES).map_err(|_| EbpfError::NoTypes)?;
    let types = Btf::parse(file.bytes()).ok_or(EbpfError::NoTypes)?;
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
        let tracepoints = describe().expect("a kernel with BTF");
        let programs = programs(&maps);
        for ((code, tracepoint), name) in programs.iter().zip(tracepoints).zip(TRACEPOINTS) {
            if let Err(error) = kernel::load_program(code, tracepoint) {
                let why = kernel::explain_program(code, tracepoint);
                panic!("{name}: {error}\n{why}");
            }
        }
    }
}
