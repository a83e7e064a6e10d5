//! The processes that use a GPU, and how much of its memory.

use std::cmp::Reverse;

use pegel_metric::{Group, Slot};

use crate::roster::Roster;
use crate::scan::Fault;

use super::abi::{Device, Process};
use super::answers::{Trouble, declare};
use super::beat::{Beat, Due, Pass};
use super::families::{PROCESS_MEMORY, PROCESSES};
use super::functions::Functions;

/// More processes than this are counted, not listed.
const LIST_MAX: usize = 1024;
/// Only the largest get a series.
const SERIES_MAX: usize = 64;
/// What the driver says when it does not know.
const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Processes {
    due: Due,
    room: Vec<Process>,
    users: Vec<User>,
    count_slot: Option<Slot>,
    slots: Roster<Slot>,
    /// As of the last answer.
    count: Option<f64>,
    current: Vec<(Slot, f64)>,
}

#[derive(Debug, Clone, Copy)]
struct User {
    pid: u32,
    kind: &'static str,
    memory: u64,
}

impl Processes {
    pub(super) fn new() -> Processes {
        Processes {
            due: Due::default(),
            room: vec![Process::default(); SERIES_MAX],
            users: Vec::new(),
            count_slot: None,
            slots: Roster::new(),
            count: None,
            current: Vec::new(),
        }
    }

    pub(super) fn forget(&mut self, out: &mut Group) {
        self.slots.begin();
        self.slots.sweep(|slot| out.retire(slot));
        if let Some(slot) = self.count_slot {
            out.retire(slot);
        }
        *self = Processes::new();
    }

    pub(super) fn collect(
        &mut self,
        nvml: &Functions,
        device: Device,
        gpu: &str,
        pass: &Pass,
        out: &mut Group,
    ) -> Result<(), Trouble> {
        if self.due.is_due(pass.now) {
            self.ask(nvml, device, pass)?;
            if out.keeps(PROCESS_MEMORY.level) {
                self.declare_users(gpu, out)?;
            }
        }
        let Some(count) = self.count else {
            return Ok(());
        };
        let slot = match self.count_slot {
            Some(slot) => slot,
            None => *self.count_slot.insert(declare(out, &PROCESSES, gpu, &[])?),
        };
        out.set(slot, count);
        for &(slot, memory) in &self.current {
            out.set(slot, memory);
        }
        Ok(())
    }

    fn ask(&mut self, nvml: &Functions, device: Device, pass: &Pass) -> Result<(), Trouble> {
        self.users.clear();
        let mut counts = [None; 2];
        let kinds = [
            ("compute", nvml.compute_processes),
            ("graphics", nvml.graphics_processes),
        ];
        for (count, (kind, function)) in counts.iter_mut().zip(kinds) {
            let mut answer = function.ask(device, &mut self.room);
            if let Ok(needed @ 0..=LIST_MAX) = answer
                && needed > self.room.len()
            {
                // Some more may have started since.
                self.room.resize(2 * needed, Process::default());
                answer = function.ask(device, &mut self.room);
            }
            match answer {
                Ok(found) => {
                    *count = Some(found);
                    let listed = self.room.get(..found).unwrap_or(&[]);
                    self.users.extend(listed.iter().map(|process| User {
                        pid: process.pid,
                        kind,
                        memory: process.memory,
                    }));
                }
                Err(refusal) => {
                    if let Some(trouble) = Trouble::of(refusal) {
                        return Err(trouble);
                    }
                }
            }
        }
        self.count = match counts {
            [None, None] => None,
            counts => Some(counts.into_iter().flatten().sum::<usize>() as f64),
        };
        match self.count {
            Some(_) => self.due.answered(Beat::Slow, pass.now),
            None => self.due.refused(pass.now),
        }
        self.users.retain(|user| user.memory != UNKNOWN);
        self.users
            .sort_unstable_by_key(|user| (Reverse(user.memory), user.pid));
        self.users.truncate(SERIES_MAX);
        // In an order that lasts, so that each finds its slot at once.
        self.users
            .sort_unstable_by_key(|user| (user.kind, user.pid));
        Ok(())
    }

    fn declare_users(&mut self, gpu: &str, out: &mut Group) -> Result<(), Trouble> {
        self.current.clear();
        self.slots.begin();
        for user in &self.users {
            let key = format!("{} {}", user.kind, user.pid);
            let slot = self.slots.entry(key.as_bytes(), || {
                let pid = user.pid.to_string();
                let labels = [("pid", &*pid), ("type", user.kind)];
                Ok(declare(out, &PROCESS_MEMORY, gpu, &labels)?)
            });
            match slot {
                Ok(slot) => self.current.push((*slot, user.memory as f64)),
                Err(Fault::Series(error)) => return Err(Trouble::Series(error)),
                // Far fewer names than a roster holds, and no text that could be wrong.
                Err(_) => {}
            }
        }
        self.slots.sweep(|slot| out.retire(slot));
        Ok(())
    }
}
