//! The hash by which `limit_ratio` chooses series: XXH64 of the labels in the form in which
//! Prometheus holds them, so that both choose the same series.

use super::super::labels::LabelSet;

const PRIMES: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];

/// Returns a number from 0 to 1 that depends on the labels only.
pub(super) fn sampling_offset(labels: &LabelSet) -> f64 {
    let mut bytes = Vec::with_capacity(256);
    for (name, value) in labels.iter() {
        push_sized(&mut bytes, name);
        push_sized(&mut bytes, value);
    }
    xxh64(&bytes) as f64 / u64::MAX as f64
}

/// Appends a text with its length before it: one byte, or 255 and three bytes.
fn push_sized(bytes: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()) {
        Ok(length) if length < 255 => bytes.push(length),
        _ => {
            bytes.push(255);
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes()[..3]);
        }
    }
    bytes.extend_from_slice(text.as_bytes());
}

fn round(state: u64, input: u64) -> u64 {
    state
        .wrapping_add(input.wrapping_mul(PRIMES[1]))
        .rotate_left(31)
        .wrapping_mul(PRIMES[0])
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Returns the XXH64 hash with the seed 0.
fn xxh64(input: &[u8]) -> u64 {
    let mut stripes = input.chunks_exact(32);
    let mut hash = if input.len() >= 32 {
        let mut lanes = [
            PRIMES[0].wrapping_add(PRIMES[1]),
            PRIMES[1],
            0,
            0u64.wrapping_sub(PRIMES[0]),
        ];
        for stripe in &mut stripes {
            for (lane, bytes) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
                *lane = round(*lane, word(bytes));
            }
        }
        let rotated = lanes.iter().zip([1, 7, 12, 18]);
        let sum = rotated.fold(0u64, |sum, (lane, by)| {
            sum.wrapping_add(lane.rotate_left(by))
        });
        lanes.iter().fold(sum, |hash, lane| {
            (hash ^ round(0, *lane))
                .wrapping_mul(PRIMES[0])
                .wrapping_add(PRIMES[3])
        })
    } else {
        PRIMES[4]
    };
    hash = hash.wrapping_add(input.len() as u64);
    let mut words = stripes.remainder().chunks_exact(8);
    for bytes in &mut words {
        hash = (hash ^ round(0, word(bytes)))
            .rotate_left(27)
            .wrapping_mul(PRIMES[0])
            .wrapping_add(PRIMES[3]);
    }
    let mut rest = words.remainder();
    if rest.len() >= 4 {
        hash = (hash ^ word(&rest[..4]).wrapping_mul(PRIMES[0]))
            .rotate_left(23)
            .wrapping_mul(PRIMES[1])
            .wrapping_add(PRIMES[2]);
        rest = &rest[4..];
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte).wrapping_mul(PRIMES[4]))
            .rotate_left(11)
            .wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_the_published_test_values() {
        assert_eq!(xxh64(b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxh64(b"a"), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(xxh64(b"abc"), 0x44bc_2cf5_ad77_0999);
        assert_eq!(
            xxh64(b"Call me Ishmael. Some years ago--never mind how long precisely-"),
            0x02a2_e854_70d6_fd96
        );
    }

    #[test]
    fn offsets_lie_between_zero_and_one() {
        let offsets =
            (0..1_000).map(|number| sampling_offset(&LabelSet::new([("l", number.to_string())])));
        let below = offsets.filter(|offset| *offset < 0.3).count();
        assert!((250..350).contains(&below), "{below}");
    }
}
