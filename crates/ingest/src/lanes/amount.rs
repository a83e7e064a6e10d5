//! How much something was counted: whole numbers exactly, others as floating point numbers.

/// How a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CounterKind {
    Whole = 0,
    Float = 1,
    /// Whole numbers of one bucket of a histogram, which are shown cumulated.
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
pub enum Amount {
    Whole(u64),
    Float(f64),
}

impl Amount {
    pub fn zero(kind: CounterKind) -> Amount {
        match kind {
            CounterKind::Whole | CounterKind::Bucket => Amount::Whole(0),
            CounterKind::Float => Amount::Float(0.0),
        }
    }

    /// What is not finite is taken for nothing: a lane may hold anything.
    pub fn from_bits(kind: CounterKind, bits: u64) -> Amount {
        match kind {
            CounterKind::Whole | CounterKind::Bucket => Amount::Whole(bits),
            CounterKind::Float => {
                let value = f64::from_bits(bits);
                Amount::Float(if value.is_finite() { value } else { 0.0 })
            }
        }
    }

    pub fn to_bits(self) -> u64 {
        match self {
            Amount::Whole(value) => value,
            Amount::Float(value) => value.to_bits(),
        }
    }

    pub fn value(self) -> f64 {
        match self {
            Amount::Whole(value) => value as f64,
            Amount::Float(value) => value,
        }
    }

    pub fn plus(self, other: Amount) -> Amount {
        match (self, other) {
            (Amount::Whole(a), Amount::Whole(b)) => Amount::Whole(a.saturating_add(b)),
            // What is not finite could never be shown again.
            (a, b) => Amount::Float((a.value() + b.value()).clamp(f64::MIN, f64::MAX)),
        }
    }

    /// How much more this is; nothing when it is less.
    pub fn minus(self, other: Amount) -> Amount {
        match (self, other) {
            (Amount::Whole(a), Amount::Whole(b)) => Amount::Whole(a.saturating_sub(b)),
            (a, b) => Amount::Float((a.value() - b.value()).max(0.0)),
        }
    }

    pub fn is_more_than(self, other: Amount) -> bool {
        match (self, other) {
            (Amount::Whole(a), Amount::Whole(b)) => a > b,
            (a, b) => a.value() > b.value(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_exact_beyond_what_floating_point_can_hold() {
        let large = Amount::Whole((1 << 53) + 1);
        assert_eq!(large.plus(Amount::Whole(2)), Amount::Whole((1 << 53) + 3));
        assert_eq!(Amount::Whole(3).minus(Amount::Whole(5)), Amount::Whole(0));
        assert!(Amount::Whole((1 << 53) + 1).is_more_than(Amount::Whole(1 << 53)));
    }

    #[test]
    fn what_is_no_number_is_nothing() {
        let bits = f64::INFINITY.to_bits();
        assert_eq!(
            Amount::from_bits(CounterKind::Float, bits),
            Amount::Float(0.0)
        );
        let half = Amount::from_bits(CounterKind::Float, 0.5f64.to_bits());
        assert_eq!(half.plus(half), Amount::Float(1.0));
        let most = Amount::Float(f64::MAX);
        assert_eq!(most.plus(most), most);
    }
}
