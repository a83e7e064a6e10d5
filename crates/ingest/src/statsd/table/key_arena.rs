//! The bytes of all keys, in large chunks: a hundred thousand small allocations would take twice
//! the memory.

use std::num::NonZeroU16;

/// The position of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyRef {
    start: u32,
    name_len: NonZeroU16,
    tags_len: u16,
}

impl KeyRef {
    fn name_len(self) -> usize {
        usize::from(self.name_len.get())
    }

    pub(super) fn len(self) -> usize {
        self.name_len() + usize::from(self.tags_len)
    }
}

/// Removed keys are compacted away when they exceed this size and half of all bytes.
const WASTE_MIN: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(crate) struct KeyArena {
    /// Append-only; chunks, so that growing copies nothing.
    chunks: Vec<Vec<u8>>,
    wasted: usize,
    used: usize,
}

const CHUNK_BITS: u32 = 16;
const CHUNK: usize = 1 << CHUNK_BITS;
/// The longest key: a longer series is refused anyway.
pub(crate) const KEY_BYTES_MAX: usize = pegel_metric::TEXT_BYTES_MAX + pegel_metric::NAME_BYTES_MAX;

impl KeyArena {
    /// Returns `None` if the name is empty, the key too long, or the arena full.
    pub(super) fn add(&mut self, name: &[u8], tags: &[u8]) -> Option<KeyRef> {
        let length = name.len() + tags.len();
        if length > KEY_BYTES_MAX {
            return None;
        }
        let name_len = NonZeroU16::new(u16::try_from(name.len()).ok()?)?;
        let has_room = self
            .chunks
            .last()
            .is_some_and(|chunk| chunk.len() + length <= CHUNK);
        if !has_room {
            if self.chunks.len() == CHUNK {
                return None;
            }
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let start = number << CHUNK_BITS | chunk.len();
        chunk.extend_from_slice(name);
        chunk.extend_from_slice(tags);
        self.used += length;
        Some(KeyRef {
            start: u32::try_from(start).ok()?,
            name_len,
            tags_len: u16::try_from(tags.len()).ok()?,
        })
    }

    #[inline]
    fn bytes(&self, key: KeyRef) -> &[u8] {
        let start = key.start as usize & (CHUNK - 1);
        &self.chunks[key.start as usize >> CHUNK_BITS][start..start + key.len()]
    }

    pub(super) fn name(&self, key: KeyRef) -> &[u8] {
        &self.bytes(key)[..key.name_len()]
    }

    pub(super) fn tags(&self, key: KeyRef) -> &[u8] {
        &self.bytes(key)[key.name_len()..]
    }

    #[inline]
    pub(super) fn matches(&self, key: KeyRef, name: &[u8], tags: &[u8]) -> bool {
        if key.name_len() != name.len() || usize::from(key.tags_len) != tags.len() {
            return false;
        }
        let (known_name, known_tags) = self.bytes(key).split_at(name.len());
        bytes_equal(known_name, name) && (tags.is_empty() || bytes_equal(known_tags, tags))
    }

    pub(super) fn remove(&mut self, key: KeyRef) {
        self.wasted += key.len();
        self.used -= key.len();
    }

    pub(super) fn needs_compaction(&self) -> bool {
        self.wasted >= WASTE_MIN && self.wasted > self.used
    }

    /// Copies the keys that are still in use, and frees the old chunks.
    pub(super) fn compact<'a>(&mut self, held: impl Iterator<Item = &'a mut KeyRef>) {
        let mut fresh = KeyArena::default();
        for key in held {
            let (name, tags) = (self.name(*key), self.tags(*key));
            if let Some(moved) = fresh.add(name, tags) {
                *key = moved;
            }
        }
        *self = fresh;
    }
}

/// Compares word by word: names are short, and a call of memcmp takes longer.
#[inline]
pub(super) fn bytes_equal(one: &[u8], other: &[u8]) -> bool {
    let (words, rest) = one.as_chunks::<8>();
    let (other_words, other_rest) = other.as_chunks::<8>();
    let mut difference = 0;
    for (a, b) in words.iter().zip(other_words) {
        difference |= u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b);
    }
    let rest = rest.iter().zip(other_rest);
    let rest = rest.fold(0, |difference, (a, b)| difference | (a ^ b));
    difference == 0 && rest == 0 && one.len() == other.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_what_they_are_when_others_go() {
        let mut keys = KeyArena::default();
        let name = |n: usize| format!("some.rather.long.name.of.a.metric.{n}");
        let mut held: Vec<(usize, KeyRef)> = (0..20_000)
            .map(|n| (n, keys.add(name(n).as_bytes(), b"t:1").expect("room")))
            .collect();
        held.retain(|(n, key)| {
            let stays = n % 3 == 0;
            if !stays {
                keys.remove(*key);
            }
            stays
        });
        assert!(keys.needs_compaction());
        let chunks = keys.chunks.len();
        keys.compact(held.iter_mut().map(|(_, key)| key));
        assert!(!keys.needs_compaction() && keys.chunks.len() < chunks);
        for (n, key) in held {
            assert!(keys.matches(key, name(n).as_bytes(), b"t:1"));
            assert!(!keys.matches(key, name(n).as_bytes(), b"t:2"));
            assert_eq!(keys.tags(key), b"t:1");
        }
    }

    #[test]
    fn a_key_has_a_bound() {
        let mut keys = KeyArena::default();
        let longest = vec![b'a'; KEY_BYTES_MAX];
        assert!(keys.add(&longest, b"").is_some());
        assert!(keys.add(&longest, b"b").is_none());
        assert!(keys.add(b"", b"b").is_none());
    }
}
