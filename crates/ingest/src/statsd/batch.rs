//! A few datagrams, taken into the table under one lock.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pegel_metric::Reason;
use pegel_wire::statsd::{Fault, Lines, Message};

use super::net::SocketErrors;
use super::table::{Origin, Table};
use super::tally::Tally;
use super::timed::{Timed, has_own_time};
use crate::gate::Gate;
use crate::senders::Sender;

/// What the threads that read and the pulse share.
#[derive(Debug)]
pub(crate) struct Shared {
    table: Mutex<Table>,
    pub gate: Arc<Gate>,
    pub timed: Timed,
    pub errors: SocketErrors,
    /// The number of helper threads that read UDP sockets now.
    pub helping: AtomicUsize,
}

impl Shared {
    pub fn new(table: Table, gate: Arc<Gate>) -> Shared {
        gate.owners().watch();
        Shared {
            table: Mutex::new(table),
            gate,
            timed: Timed::default(),
            errors: SocketErrors::default(),
            helping: AtomicUsize::new(0),
        }
    }

    pub fn table(&self) -> MutexGuard<'_, Table> {
        // The table is whole between any two lines, so that a panic elsewhere does not spoil it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn batch(&self) -> Batch<'_> {
        Batch {
            shared: self,
            table: self.table(),
            tally: Tally::default(),
            sender: None,
        }
    }
}

/// Holds the table. What was taken is entered into the books at the end, or when another sender's turn comes.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    shared: &'a Shared,
    table: MutexGuard<'a, Table>,
    tally: Tally,
    sender: Option<Arc<Sender>>,
}

impl Batch<'_> {
    /// Takes whole lines.
    pub fn take(&mut self, bytes: &[u8], origin: &Origin) {
        self.turn_to(origin);
        for line in Lines::new(bytes) {
            match line {
                Ok(Message::Metric(metric)) if has_own_time(&metric) => {
                    self.shared.timed.add(&metric, origin, &mut self.tally);
                }
                Ok(Message::Metric(metric)) => {
                    self.table
                        .record(&metric, origin, &self.shared.gate, &mut self.tally);
                }
                Ok(Message::Event(_) | Message::Check(_)) => {
                    self.tally.dropped(Reason::Unsupported, 1);
                }
                Err(error) => self.tally.dropped(reason(error.fault), 1),
            }
        }
    }

    /// Something came that cannot be taken.
    pub fn drop(&mut self, reason: Reason, count: u64, origin: &Origin) {
        self.turn_to(origin);
        self.tally.dropped(reason, count);
    }

    /// Why something of what was taken since the last turn was dropped.
    pub fn dropped_for(&self) -> Option<Reason> {
        self.tally.reason()
    }

    fn turn_to(&mut self, origin: &Origin) {
        let is_same = |sender: &Arc<Sender>| Arc::ptr_eq(sender, &origin.sender);
        if !self.sender.as_ref().is_some_and(is_same) {
            self.settle();
            self.table.set_sender(&origin.sender);
            self.sender = Some(origin.sender.clone());
        }
    }

    fn settle(&mut self) {
        if let Some(sender) = &self.sender {
            self.tally.settle(&self.shared.gate, sender);
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}

fn reason(fault: Fault) -> Reason {
    match fault {
        Fault::NameEmpty | Fault::NameLong | Fault::NameCharacter | Fault::Tag => Reason::BadName,
        Fault::Value(_) | Fault::MemberEmpty => Reason::BadValue,
        _ => Reason::Malformed,
    }
}
