//! Parses numbers in lines: exactly, and quickly if they are short.

/// The sign as written: a gauge with a sign is changed by the value, one without is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberSign {
    None,
    Plus,
    Minus,
}

/// A finite value. Negative where the sign is a minus.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecimalNumber {
    pub value: f64,
    pub sign: NumberSign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NumberFault {
    #[error("malformed value; expected a number")]
    NotANumber,
    #[error("the value is not finite, or exceeds the range of a 64-bit float")]
    NotFinite,
}

/// With at most this many digits, the digits are an integer that f64 holds exactly.
const DIGITS_MAX: usize = 15;

const POWERS_OF_TEN: [f64; DIGITS_MAX + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

impl DecimalNumber {
    /// Placeholder for a line without a number.
    pub(super) const ABSENT: DecimalNumber = DecimalNumber {
        value: 0.0,
        sign: NumberSign::None,
    };

    /// Parses a short decimal at the front of `bytes`. Returns the number and its length in bytes.
    ///
    /// The digits and the power of ten are both exact, so that the single division rounds as
    /// `str::parse` does. All other forms are left to [`DecimalNumber::parse`].
    #[inline]
    pub(super) fn parse_short(bytes: &[u8]) -> Option<(DecimalNumber, usize)> {
        let sign = sign(bytes);
        let start = usize::from(sign != NumberSign::None);
        let (mut digits, mut at, mut whole) = (0_u64, start, None);
        while let Some(&byte) = bytes.get(at) {
            let digit = byte.wrapping_sub(b'0');
            if digit <= 9 {
                // Wraps only beyond the number of digits accepted below.
                digits = digits.wrapping_mul(10).wrapping_add(u64::from(digit));
            } else if byte == b'.' && whole.is_none() {
                whole = Some(at);
            } else {
                break;
            }
            at += 1;
        }
        let count = at - start - usize::from(whole.is_some());
        if count == 0 || count > DIGITS_MAX {
            return None;
        }
        let mut value = digits as f64;
        if let Some(point) = whole {
            value /= POWERS_OF_TEN[at - point - 1];
        }
        if sign == NumberSign::Minus {
            value = -value;
        }
        Some((DecimalNumber { value, sign }, at))
    }

    /// Parses any finite decimal number, and nothing else: no words, no hexadecimal, no blanks.
    pub fn parse(bytes: &[u8]) -> Result<DecimalNumber, NumberFault> {
        if let Some((number, used)) = DecimalNumber::parse_short(bytes)
            && used == bytes.len()
        {
            return Ok(number);
        }
        let sign = sign(bytes);
        let unsigned = &bytes[usize::from(sign != NumberSign::None)..];
        if [&b"nan"[..], b"inf", b"infinity"]
            .iter()
            .any(|word| unsigned.eq_ignore_ascii_case(word))
        {
            return Err(NumberFault::NotFinite);
        }
        let value: f64 = std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or(NumberFault::NotANumber)?;
        if value.is_finite() {
            Ok(DecimalNumber { value, sign })
        } else {
            Err(NumberFault::NotFinite)
        }
    }
}

fn sign(bytes: &[u8]) -> NumberSign {
    match bytes.first() {
        Some(b'+') => NumberSign::Plus,
        Some(b'-') => NumberSign::Minus,
        _ => NumberSign::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift: the numbers of a run are always the same.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    fn agrees(text: &str) {
        let expected: f64 = text.parse().expect("the test writes numbers");
        match DecimalNumber::parse(text.as_bytes()) {
            Ok(number) => assert_eq!(number.value.to_bits(), expected.to_bits(), "{text}"),
            Err(fault) => assert!(
                fault == NumberFault::NotFinite && !expected.is_finite(),
                "{text}: {fault}"
            ),
        }
    }

    #[test]
    fn is_the_same_as_the_standard_library_bit_for_bit() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..200_000 {
            let digits = random(&mut state) % 10_u64.pow((random(&mut state) % 19 + 1) as u32);
            let point = random(&mut state) % 20;
            let mut text = digits.to_string();
            if point < text.len() as u64 {
                text.insert(point as usize, '.');
            }
            let sign = ["", "+", "-"][(random(&mut state) % 3) as usize];
            agrees(&format!("{sign}{text}"));
            agrees(&format!("{sign}{text}e{}", random(&mut state) as i16 % 400));
            let any = f64::from_bits(random(&mut state));
            if any.is_finite() {
                agrees(&format!("{any}"));
                agrees(&format!("{any:e}"));
            }
        }
        for text in [
            "0",
            "-0",
            "+0",
            ".5",
            "5.",
            "-.5",
            "000000000000000000001",
            "0.1",
            "1e-400",
        ] {
            agrees(text);
        }
    }

    #[test]
    fn a_sign_is_told_apart_from_a_negative_value() {
        for (text, value, sign) in [
            ("5", 5.0, NumberSign::None),
            ("+5", 5.0, NumberSign::Plus),
            ("-5", -5.0, NumberSign::Minus),
        ] {
            assert_eq!(
                DecimalNumber::parse(text.as_bytes()),
                Ok(DecimalNumber { value, sign })
            );
        }
    }

    #[test]
    fn what_is_no_finite_number_is_refused_by_reason() {
        use NumberFault::*;
        for (text, fault) in [
            ("", NotANumber),
            (".", NotANumber),
            ("+", NotANumber),
            ("1.2.3", NotANumber),
            ("--1", NotANumber),
            ("0x10", NotANumber),
            ("1_000", NotANumber),
            (" 1", NotANumber),
            ("1e", NotANumber),
            ("one", NotANumber),
            ("NaN", NotFinite),
            ("-inf", NotFinite),
            ("Infinity", NotFinite),
            ("1e400", NotFinite),
            ("-1e400", NotFinite),
        ] {
            assert_eq!(DecimalNumber::parse(text.as_bytes()), Err(fault), "{text}");
        }
    }
}
