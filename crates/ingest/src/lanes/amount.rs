//! Amounts of counters: whole numbers exactly, others as floating point numbers.

/// The number type of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CounterKind {
    Whole = 0,
    Float = 1,
    /// Whole numbers of one bucket of a histogram; published cumulatively.
    Bucket = 2,
}

impl CounterKind {
    pub fn from_byte(byte: u8) -> Option<CounterKind> {
        match byte {
            0 => Some(CounterKind::Whole),
            1 => Some(CounterKind::Float),
            2 => Some(CounterKind::Bucket),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CounterAmount {
    Whole(u64),
    Float(f64),
}

impl CounterAmount {
    pub fn zero(kind: CounterKind) -> CounterAmount {
        match kind {
            CounterKind::Whole | CounterKind::Bucket => CounterAmount::Whole(0),
            CounterKind::Float => CounterAmount::Float(0.0),
        }
    }

    /// Decodes an amount. A value that is not finite counts as zero: a lane may contain anything.
    pub fn from_bits(kind: CounterKind, bits: u64) -> CounterAmount {
        match kind {
            CounterKind::Whole | CounterKind::Bucket => CounterAmount::Whole(bits),
            CounterKind::Float => {
                let value = f64::from_bits(bits);
                CounterAmount::Float(if value.is_finite() { value } else { 0.0 })
            }
        }
    }

    pub fn to_bits(self) -> u64 {
        match self {
            CounterAmount::Whole(value) => value,
            CounterAmount::Float(value) => value.to_bits(),
        }
    }

    pub fn value(self) -> f64 {
        match self {
            CounterAmount::Whole(value) => value as f64,
            CounterAmount::Float(value) => value,
        }
    }

    pub fn plus(self, other: CounterAmount) -> CounterAmount {
        match (self, other) {
            (CounterAmount::Whole(a), CounterAmount::Whole(b)) => {
                CounterAmount::Whole(a.saturating_add(b))
            }
            // Keep the sum finite: an infinite total could never be published again.
            (a, b) => CounterAmount::Float((a.value() + b.value()).clamp(f64::MIN, f64::MAX)),
        }
    }

    /// Returns the difference; zero if it would be negative.
    pub fn minus(self, other: CounterAmount) -> CounterAmount {
        match (self, other) {
            (CounterAmount::Whole(a), CounterAmount::Whole(b)) => {
                CounterAmount::Whole(a.saturating_sub(b))
            }
            (a, b) => CounterAmount::Float((a.value() - b.value()).max(0.0)),
        }
    }

    pub fn is_more_than(self, other: CounterAmount) -> bool {
        match (self, other) {
            (CounterAmount::Whole(a), CounterAmount::Whole(b)) => a > b,
            (a, b) => a.value() > b.value(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_exact_beyond_what_floating_point_can_hold() {
        let large = CounterAmount::Whole((1 << 53) + 1);
        assert_eq!(
            large.plus(CounterAmount::Whole(2)),
            CounterAmount::Whole((1 << 53) + 3)
        );
        assert_eq!(
            CounterAmount::Whole(3).minus(CounterAmount::Whole(5)),
            CounterAmount::Whole(0)
        );
        assert!(CounterAmount::Whole((1 << 53) + 1).is_more_than(CounterAmount::Whole(1 << 53)));
    }

    #[test]
    fn what_is_no_number_is_nothing() {
        let bits = f64::INFINITY.to_bits();
        assert_eq!(
            CounterAmount::from_bits(CounterKind::Float, bits),
            CounterAmount::Float(0.0)
        );
        let half = CounterAmount::from_bits(CounterKind::Float, 0.5f64.to_bits());
        assert_eq!(half.plus(half), CounterAmount::Float(1.0));
        let most = CounterAmount::Float(f64::MAX);
        assert_eq!(most.plus(most), most);
    }
}
