//! Follows a watched process to its end, and brings its counts into the tally.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::by_agent::{Agents, Remote};
use super::place::{Place, Progress, Row, possible_processors};
use super::programs::{ROW_COMPAT, ROW_LARGE, ROW_WORDS, ROWS};
use super::reading::{From, Reading};
use super::set::{self, Set};
use super::share::{self, Found, Server};
use super::watched::Watched;
use super::{EbpfError, Time, refused, task};
use crate::names;
use crate::ptrace::Ending;
use crate::tally::{Count, Tally};

/// The one who counts a process, and what was learned so far.
#[derive(Debug)]
pub(crate) struct Follower {
    source: Source,
    process: OwnedFd,
    /// At the last reading.
    progress: Progress,
    /// How often counts go from the kernel to the lane.
    pause: Duration,
    before: Vec<Row>,
}

#[derive(Debug)]
enum Source {
    /// This process. It gives the set to others, if it was loaded here.
    Own(Box<Watched>, Option<Server>),
    Agent(Remote),
    /// The agent is gone, and with it the counts since the last reading.
    Gone,
}

impl Follower {
    /// From its exec on, the program that this process becomes is counted.
    pub(crate) fn for_program(
        wrapper: i32,
        time: Time,
        agents: &Agents,
    ) -> Result<Follower, EbpfError> {
        let process = task::open(wrapper).map_err(refused("the process"))?;
        let source = match own_place(time) {
            Ok((place, server)) => {
                let handle = process.try_clone().map_err(refused("the process"))?;
                let watched = Watched::from_exec(place, wrapper, handle);
                let watched = watched.map_err(refused("the process"))?;
                Source::Own(Box::new(watched), server)
            }
            Err(EbpfError::Permission) => Source::Agent(agents.ask(wrapper, From::Exec, time)?),
            Err(error) => return Err(error),
        };
        let follower = Follower::new(source, process);
        follower.serve();
        Ok(follower)
    }

    fn new(source: Source, process: OwnedFd) -> Follower {
        // On a large machine each reading takes longer, because each processor has a table.
        let factor = (possible_processors() / 32).clamp(1, 5) as u32;
        Follower {
            source,
            process,
            progress: Progress::default(),
            pause: Duration::from_millis(200) * factor,
            before: vec![[0; ROW_WORDS]; ROWS],
        }
    }

    /// Who counts.
    pub(crate) fn is_by_agent(&self) -> bool {
        matches!(self.source, Source::Agent(_))
    }

    /// Brings counts into the tally until all tasks are gone. `on_end` is called when the first process has ended: with
    /// how it did, whether it had become the program, and whether all was counted.
    pub(crate) fn follow(
        &mut self,
        tally: &mut Tally,
        on_end: impl FnOnce(&Tally, Ending, bool, bool),
    ) {
        let (ending, mut progress) = loop {
            self.wait();
            let reading = self.read(tally);
            if let Some(ending) = reading.ending {
                break (ending, reading.progress);
            }
        };
        let is_complete = !matches!(self.source, Source::Gone);
        on_end(tally, ending, progress.has_started, is_complete);
        match &mut self.source {
            Source::Own(watched, _) => watched.release(),
            Source::Agent(remote) => remote.release(),
            Source::Gone => {}
        }
        // Children that outlive it are counted as well. A process that ended as it was taken, before it became the program,
        // has none, but the kernel may have missed its end.
        while progress.has_started && progress.is_alive {
            std::thread::sleep(self.pause);
            self.serve();
            progress = self.read(tally).progress;
        }
    }

    fn serve(&self) {
        if let Source::Own(watched, Some(server)) = &self.source {
            server.serve(watched.place.set());
        }
    }

    /// Waits a moment for the end of the process, or for whoever wants a place in the set.
    fn wait(&self) {
        let (news, server) = match &self.source {
            Source::Own(watched, server) => (watched.news(), server.as_ref()),
            Source::Agent(_) | Source::Gone => (self.process.as_fd(), None),
        };
        let mut descriptors = vec![PollFd::from_borrowed_fd(news, PollFlags::IN)];
        descriptors
            .extend(server.map(|server| PollFd::from_borrowed_fd(server.as_fd(), PollFlags::IN)));
        let moment = Timespec::try_from(self.pause).ok();
        // A signal is no news.
        let _ = poll(&mut descriptors, moment.as_ref());
        drop(descriptors);
        self.serve();
    }

    fn read(&mut self, tally: &mut Tally) -> Reading {
        let reading = match &mut self.source {
            Source::Own(watched, _) => Some(watched.read()),
            Source::Agent(remote) => remote.read().ok(),
            Source::Gone => None,
        };
        let Some(reading) = reading else {
            self.source = Source::Gone;
            let ending = super::watched::has_ended(&self.process).then_some(Ending::Released);
            // Nobody knows about children any more.
            self.progress.is_alive = false;
            return Reading {
                progress: self.progress,
                ending,
                rows: Vec::new(),
            };
        };
        self.progress = reading.progress;
        for (row, now) in &reading.rows {
            let before = &mut self.before[*row];
            add(tally, *row, now, before);
            *before = *now;
        }
        reading
    }
}

/// Counts a process that runs already, until it ends or `is_over` is set. `ready` is told how many threads it has.
pub(crate) fn attach(
    pid: i32,
    time: Time,
    agents: &Agents,
    tally: &mut Tally,
    ready: impl FnOnce(usize),
    is_over: &AtomicBool,
) -> Result<Ending, EbpfError> {
    let process = task::open(pid).map_err(refused("the process"))?;
    let (source, threads) = match own_place(time) {
        Ok((place, server)) => {
            let handle = process.try_clone().map_err(refused("the process"))?;
            let taken = Watched::from_now(place, pid, handle).map_err(refused("the threads"))?;
            if taken.0.is_gone() {
                let gone = std::io::Error::from_raw_os_error(libc::ESRCH);
                return Err(refused("the process")(gone));
            }
            (Source::Own(Box::new(taken.0), server), taken.1)
        }
        Err(EbpfError::Permission) => {
            let remote = agents.ask(pid, From::Now, time)?;
            (Source::Agent(remote), crate::ptrace::threads(pid).len())
        }
        Err(error) => return Err(error),
    };
    let mut follower = Follower::new(source, process);
    ready(threads);
    loop {
        follower.wait();
        let is_last = is_over.load(Ordering::Relaxed);
        let reading = follower.read(tally);
        match reading.ending {
            // Its children are not waited for: somebody sits before this command.
            Some(ending) => return Ok(ending),
            None if is_last => return Ok(Ending::Released),
            None => {}
        }
    }
}

/// A place of our own in the kernel.
fn own_place(time: Time) -> Result<(Place, Option<Server>), EbpfError> {
    // Whether it is allowed at all.
    let table = set::create_table().map_err(refused("maps"))?;
    let load = |table: OwnedFd| {
        let set = Set::load(&table, time)?;
        Place::first(Arc::new(set), table)
    };
    Ok(match share::find(time) {
        Found::Set(set, slot) => (Place::another(Arc::new(set), slot)?, None),
        Found::Nobody(listener) => (load(table)?, Some(Server::new(listener))),
        Found::NoUse => (load(table)?, None),
    })
}

fn add(tally: &mut Tally, row: usize, now: &Row, before: &Row) {
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
