//! A fast hash of texts with a random key: a sender that does not know the key cannot cause
//! collisions.

use std::hash::{BuildHasher, RandomState};

#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyedHasher {
    first: u64,
    second: u64,
}

impl KeyedHasher {
    /// Creates a hasher with a new key; each table has its own.
    pub(crate) fn new() -> KeyedHasher {
        let random = RandomState::new();
        KeyedHasher {
            first: random.hash_one(1_u8),
            // Odd, so that it is never zero.
            second: random.hash_one(2_u8) | 1,
        }
    }

    #[inline]
    pub(crate) fn hash(self, bytes: &[u8]) -> u64 {
        let mut hash = self.first ^ (bytes.len() as u64);
        let mut rest = bytes;
        while rest.len() > 16 {
            let (head, tail) = rest.split_at(16);
            hash = folded_multiply(word(head) ^ hash, word(&head[8..]) ^ self.second);
            rest = tail;
        }
        let (low, high) = match rest.len() {
            // The two words overlap if there are fewer than 16 bytes: each byte is in at least one
            // of them.
            8.. => (word(rest), word(&rest[rest.len() - 8..])),
            4..=7 => (half(rest), half(&rest[rest.len() - 4..])),
            1..=3 => {
                let middle = u64::from(rest[rest.len() / 2]);
                let last = u64::from(rest[rest.len() - 1]);
                (u64::from(rest[0]) << 16 | middle << 8 | last, 0)
            }
            0 => (0, 0),
        };
        folded_multiply(low ^ hash, high ^ self.second)
    }

    /// Combines two hashes; the order matters.
    #[inline]
    pub(crate) fn combine(self, hash: u64, other: u64) -> u64 {
        folded_multiply(hash ^ self.second, other.rotate_left(32) ^ self.first)
    }
}

/// Multiplies and folds both halves of the product: every bit of one side affects every bit of the
/// other.
#[inline]
fn folded_multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[inline]
fn half(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |chunk| u64::from(u32::from_le_bytes(*chunk)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_byte_and_the_length_count() {
        let hasher = KeyedHasher::new();
        for length in 0..70 {
            let text = vec![b'a'; length];
            let hash = hasher.hash(&text);
            for at in 0..length {
                let mut other = text.clone();
                other[at] = b'b';
                assert_ne!(hasher.hash(&other), hash, "byte {at} of {length}");
            }
            let mut longer = text.clone();
            longer.push(0);
            assert_ne!(hasher.hash(&longer), hash);
        }
    }

    #[test]
    fn names_in_a_row_spread_over_a_table() {
        let hasher = KeyedHasher::new();
        let mut low = HashSet::new();
        for number in 0..100_000 {
            low.insert(hasher.hash(format!("app.node{number}.requests").as_bytes()) as u32);
        }
        // Among 100,000 numbers of 32 bits about one collides.
        assert!(low.len() > 99_900, "{}", low.len());
    }

    #[test]
    fn another_secret_gives_other_hashes() {
        assert_ne!(
            KeyedHasher::new().hash(b"name"),
            KeyedHasher::new().hash(b"name")
        );
    }
}
