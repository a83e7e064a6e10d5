//! Finds entries by their key: an open-addressing hash table of entry numbers. The keys themselves
//! are stored elsewhere.

/// Linear probing; at most seven eighths full. A slot holds 32 bits of the hash and the entry's
/// number plus one, so that probing and growing seldom read keys.
#[derive(Debug)]
pub(crate) struct KeyIndex {
    slots: Vec<u64>,
    len: usize,
}

const FIRST_SLOTS: usize = 64;

impl KeyIndex {
    pub(super) fn new() -> KeyIndex {
        KeyIndex {
            slots: vec![0; FIRST_SLOTS],
            len: 0,
        }
    }

    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// Returns the entry with this hash for which `is_same` holds.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_same: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = hash as u32;
        let mut at = tag as usize & self.mask();
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 == tag && is_same(slot as u32 - 1) {
                return Some(slot as u32 - 1);
            }
            at = (at + 1) & self.mask();
        }
    }

    /// Inserts an entry that is not present.
    pub(super) fn insert(&mut self, hash: u64, entry: u32) {
        if (self.len + 1) * 8 > self.slots.len() * 7 {
            self.grow();
        }
        self.len += 1;
        self.insert_slot(u64::from(hash as u32) << 32 | u64::from(entry + 1));
    }

    fn insert_slot(&mut self, slot: u64) {
        let mut at = (slot >> 32) as usize & self.mask();
        while self.slots[at] != 0 {
            at = (at + 1) & self.mask();
        }
        self.slots[at] = slot;
    }

    fn grow(&mut self) {
        let larger = vec![0; self.slots.len() * 2];
        for slot in std::mem::replace(&mut self.slots, larger) {
            if slot != 0 {
                self.insert_slot(slot);
            }
        }
    }

    /// Removes an entry that is present. Entries behind it move up, so that no gap ends a search
    /// early.
    pub(super) fn remove(&mut self, hash: u64, entry: u32) {
        let wanted = u64::from(hash as u32) << 32 | u64::from(entry + 1);
        let mask = self.mask();
        let mut hole = hash as u32 as usize & mask;
        while self.slots[hole] != wanted {
            if self.slots[hole] == 0 {
                return;
            }
            hole = (hole + 1) & mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            let home = (slot >> 32) as usize & mask;
            // It may move into the hole unless the hole lies before its home slot.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = 0;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn behaves_as_a_map_does() {
        // Few distinct hashes, so that chains are long and removals cross them.
        let (mut index, mut model) = (KeyIndex::new(), HashMap::new());
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        for step in 0..20_000_u32 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let entry = (state % 300) as u32;
            let hash = u64::from(entry % 40) * 3;
            if model.remove(&entry).is_some() {
                index.remove(hash, entry);
            } else {
                index.insert(hash, entry);
                model.insert(entry, hash);
            }
            if step % 64 == 0 {
                for entry in 0..300_u32 {
                    let hash = u64::from(entry % 40) * 3;
                    let found = index.find(hash, |candidate| candidate == entry);
                    assert_eq!(
                        found.is_some(),
                        model.contains_key(&entry),
                        "{entry} at {step}"
                    );
                }
            }
        }
    }
}
