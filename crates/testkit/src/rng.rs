//! Reproducible random numbers.

/// A seeded random number generator (SplitMix64). Not for secrets.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// Uses the seed in `PEGEL_SEED`, otherwise one from the clock. Prints the seed, so that a
    /// failure can be reproduced.
    #[allow(clippy::print_stderr)] // The test runner shows it for failed tests only.
    pub fn from_env() -> Rng {
        let seed = match std::env::var("PEGEL_SEED") {
            Ok(text) => text.parse().expect("PEGEL_SEED is a whole number"),
            Err(_) => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |since| since.as_micros() as u64),
        };
        eprintln!("seed: PEGEL_SEED={seed}");
        Rng::new(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0..bound`; the tiny bias does not matter to tests.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in `range`.
    pub fn between(&mut self, range: std::ops::Range<i64>) -> i64 {
        let width = range
            .end
            .checked_sub(range.start)
            .expect("a range that fits");
        range.start + self.below(width as u64) as i64
    }

    /// Returns a number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true once in `one_in` calls on average.
    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let (mut a, mut b, mut c) = (Rng::new(7), Rng::new(7), Rng::new(8));
        let numbers: Vec<u64> = (0..100).map(|_| a.next_u64()).collect();
        assert!(numbers.iter().all(|&number| b.next_u64() == number));
        assert!(numbers.iter().any(|&number| c.next_u64() != number));
    }

    #[test]
    fn stays_within_bounds_and_reaches_them() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 5];
        for _ in 0..1_000 {
            seen[(rng.between(-2..3) + 2) as usize] += 1;
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
    }
}
