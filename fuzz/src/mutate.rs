//! Random mutations of an input.

use pegel_testkit::Rng;

/// The maximum size of an input.
pub(crate) const INPUT_BYTES_MAX: usize = 64 * 1024;

/// Boundary values of arithmetic, and bytes with a meaning in most formats.
const TOKENS: &[&[u8]] = &[
    b"\n",
    b" ",
    b"\"",
    b"\\",
    b"{",
    b"}",
    b",",
    b"=",
    b":",
    b"#",
    b"-",
    b".",
    b"\0",
    b"\xff",
    b"\r",
    b"\t",
    b"0",
    b"-1",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e308",
    b"1e-324",
    b"NaN",
    b"+Inf",
    b"-Inf",
    b"\xc3\xa4",
    b"\xed\xa0\x80",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",
];

/// Applies one to eight changes, occasionally a splice with another input.
pub(crate) fn mutate(bytes: &mut Vec<u8>, other: &[u8], dictionary: &[&[u8]], rng: &mut Rng) {
    if rng.chance(8) {
        splice(bytes, other, rng);
    }
    for _ in 0..1 + rng.below(8) {
        change(bytes, dictionary, rng);
    }
    bytes.truncate(INPUT_BYTES_MAX);
}

/// Joins the front of one input and the end of the other.
fn splice(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
    let from = rng.below(other.len() as u64 + 1) as usize;
    bytes.extend_from_slice(&other[from..]);
}

fn change(bytes: &mut Vec<u8>, dictionary: &[&[u8]], rng: &mut Rng) {
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    let end = (at + 1 + rng.below(16) as usize).min(bytes.len());
    if bytes.is_empty() {
        bytes.push(rng.next_u64() as u8);
        return;
    }
    let inside = at.min(bytes.len() - 1);
    match rng.below(10) {
        0 => bytes[inside] ^= 1 << rng.below(8),
        1 => bytes[inside] = rng.next_u64() as u8,
        2 => bytes[inside] = bytes[inside].wrapping_add(rng.between(-8..9) as u8),
        3 => bytes.insert(at, rng.next_u64() as u8),
        4 => drop(bytes.drain(at..end)),
        5 => bytes.truncate(at),
        6 => {
            // Duplicates a piece, in place or elsewhere.
            let piece = bytes[at..end].to_vec();
            let to = rng.below(bytes.len() as u64 + 1) as usize;
            bytes.splice(to..to, piece);
        }
        7 => {
            let token = *rng.pick(TOKENS);
            bytes.splice(at..at, token.iter().copied());
        }
        8 if !dictionary.is_empty() => {
            let token = *rng.pick(dictionary);
            bytes.splice(at..at, token.iter().copied());
        }
        _ => {
            let token = *rng.pick(TOKENS);
            let end = (at + token.len()).min(bytes.len());
            bytes.splice(at..end, token.iter().copied());
        }
    }
}
