//! The connections of peers that have not attached as a child yet. They are limited, whatever peers
//! do; if there are too many, those that take long make room for new ones, first those of the
//! address with the most. Children that are connected are not affected.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A connection that is older makes room for another one. Mostly a child attaches within
/// milliseconds.
const KEPT_FOR: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct UnprovenConnections {
    /// The most connections without a child.
    max: usize,
    table: Mutex<UnprovenTable>,
}

#[derive(Debug, Default)]
struct UnprovenTable {
    next_id: u64,
    /// Older ones have lower ids.
    entries: BTreeMap<u64, UnprovenConnection>,
}

#[derive(Debug)]
struct UnprovenConnection {
    address: IpAddr,
    accepted: Instant,
    closing: Arc<Notify>,
}

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct UnprovenPlace {
    table: Arc<UnprovenConnections>,
    id: u64,
    closing: Arc<Notify>,
}

impl UnprovenPlace {
    /// Waits until the connection must make room.
    pub(super) async fn displaced(&self) {
        self.closing.notified().await;
    }

    /// Frees the place: the connection belongs to a child.
    pub(super) fn free(&self) {
        self.table.table.lock().entries.remove(&self.id);
    }
}

impl Drop for UnprovenPlace {
    fn drop(&mut self) {
        self.free();
    }
}

impl UnprovenConnections {
    pub(super) fn new(max: usize) -> Arc<UnprovenConnections> {
        let table = Mutex::default();
        Arc::new(UnprovenConnections { max, table })
    }

    /// Returns a place for a connection; `None` if there is none now.
    pub(super) fn add(self: &Arc<Self>, address: IpAddr, now: Instant) -> Option<UnprovenPlace> {
        let mut table = self.table.lock();
        if table.entries.len() >= self.max && !table.displace(now) {
            return None;
        }
        let id = table.next_id;
        table.next_id += 1;
        let closing = Arc::new(Notify::new());
        let entry = UnprovenConnection {
            address,
            accepted: now,
            closing: closing.clone(),
        };
        table.entries.insert(id, entry);
        drop(table);
        Some(UnprovenPlace {
            table: self.clone(),
            id,
            closing,
        })
    }
}

impl UnprovenTable {
    /// Ends the oldest connection of the address with the most, if any of them is old enough.
    fn displace(&mut self, now: Instant) -> bool {
        let is_old = |entry: &UnprovenConnection| now.duration_since(entry.accepted) >= KEPT_FOR;
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for entry in self.entries.values() {
            *counts.entry(entry.address).or_default() += 1;
        }
        let old = self.entries.iter().filter(|(_, entry)| is_old(entry));
        let chosen =
            old.max_by_key(|(id, entry)| (counts[&entry.address], std::cmp::Reverse(**id)));
        let Some(id) = chosen.map(|(id, _)| *id) else {
            return false;
        };
        if let Some(entry) = self.entries.remove(&id) {
            entry.closing.notify_one();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn old_connections_of_the_address_with_the_most_make_room() {
        let table = UnprovenConnections::new(16);
        let (few, many) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let start = Instant::now();
        let first = table.add(few, start).expect("a place");
        let mut held: Vec<UnprovenPlace> = (1..16)
            .map(|_| table.add(many, start).expect("a place"))
            .collect();
        assert!(table.add(few, start).is_none(), "all are new");
        let later = start + KEPT_FOR;
        held.push(
            table
                .add(few, later)
                .expect("the oldest of many makes room"),
        );
        held[0].displaced().await;
        first.free();
        held.push(table.add(many, later).expect("a place is free"));
        held.clear();
        assert!(table.table.lock().entries.is_empty());
    }
}
