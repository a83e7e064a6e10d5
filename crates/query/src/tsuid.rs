//! TSUIDs: stable identifiers of series, a hash of their name, tags and host as upper-case
//! hexadecimal digits.
//!
//! OpenTSDB composes TSUIDs from numbers that it assigns once and stores forever. A 128-bit hash
//! needs no such table and is the same on every node and after every restart.

use std::fmt::Write;

use pegel_metric::Series;

use crate::tags::tags;

/// FNV-1a.
const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

pub(crate) fn tsuid(series: &Series, node: &str) -> String {
    let mut hash = OFFSET;
    let mut add = |bytes: &[u8]| {
        // UTF-8 never contains this byte, so it separates the parts unambiguously.
        for byte in bytes.iter().chain(&[0xff]) {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    };
    add(series.name().as_bytes());
    for (key, value) in tags(series, node) {
        add(key.as_bytes());
        add(value.as_bytes());
    }
    let mut text = String::with_capacity(32);
    // Writing to a String cannot fail.
    let _ = write!(text, "{hash:032X}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_store::series;

    #[test]
    fn a_name_is_stable_and_belongs_to_one_series() {
        let name = |text, node| tsuid(&series(text), node);
        // Fixed values: a change would orphan every stored annotation.
        assert_eq!(
            name("m{a=\"1\"}", "nid1"),
            "5619C088FBC04AC7998E91F20F7E4557"
        );
        assert_eq!(
            name("m{a=\"1\"}", "nid1"),
            name("m{a=\"1\",host=\"nid1\"}", "nid2")
        );
        assert_ne!(name("m{a=\"1\"}", "nid1"), name("m{a=\"1\"}", "nid2"));
        assert_ne!(name("m{a=\"12\"}", "n"), name("m{a1=\"2\"}", "n"));
    }
}
