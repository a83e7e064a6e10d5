//! Words and numbers in the bytes of kernel files. They accept exactly what the kernel writes and
//! reject everything else, never panic, and do not allocate.

/// An iterator over words separated by blanks and tabs.
#[derive(Debug, Clone)]
pub struct Words<'a>(pub &'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.0;
        let start = text.iter().position(|byte| !is_blank(*byte))?;
        let text = &text[start..];
        let end = text
            .iter()
            .position(|byte| is_blank(*byte))
            .unwrap_or(text.len());
        self.0 = &text[end..];
        Some(&text[..end])
    }
}

#[inline]
fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Parses a whole number without sign; `None` if it is anything else or does not fit.
#[inline]
pub fn parse_u64(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 20 {
        return None;
    }
    let mut value: u64 = 0;
    for &byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Parses a whole number that may be negative, as protocol counters use for "no limit".
#[inline]
pub fn parse_signed(word: &[u8]) -> Option<f64> {
    match word.strip_prefix(b"-") {
        Some(digits) => parse_u64(digits).map(|value| -(value as f64)),
        None => parse_u64(word).map(|value| value as f64),
    }
}

/// Parses a hexadecimal number without prefix.
#[inline]
pub fn parse_hex(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 16 {
        return None;
    }
    let mut value: u64 = 0;
    for &byte in word {
        value = value << 4 | u64::from((byte as char).to_digit(16)?);
    }
    Some(value)
}

/// Parses a whole number without sign, decimal or hexadecimal with the prefix `0x`.
pub fn parse_u64_or_hex(word: &[u8]) -> Option<u64> {
    match word.strip_prefix(b"0x") {
        Some(digits) => parse_hex(digits),
        None => parse_u64(word),
    }
}

/// Parses a number like `12.34` as exact digits divided by a power of ten, which yields the f64
/// nearest to the text.
pub fn parse_decimal(word: &[u8]) -> Option<f64> {
    let Some(point) = word.iter().position(|&byte| byte == b'.') else {
        return parse_u64(word).map(|whole| whole as f64);
    };
    let fraction = &word[point + 1..];
    if fraction.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(fraction.len() as u32);
    let whole = parse_u64(&word[..point])?.checked_mul(scale)?;
    Some(whole.checked_add(parse_u64(fraction)?)? as f64 / scale as f64)
}

/// Parses numbers from `words` until `out` is full; returns how many there were. Further columns
/// are ignored: newer kernels append some.
#[inline]
pub fn parse_u64s(words: Words<'_>, out: &mut [u64]) -> Option<usize> {
    let mut count = 0;
    for (place, word) in out.iter_mut().zip(words) {
        *place = parse_u64(word)?;
        count += 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact_or_refused() {
        assert_eq!(parse_u64(b"0"), Some(0));
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(
            parse_u64(b"0000000000000000000042"),
            None,
            "longer than any u64"
        );
        for bad in [
            &b"18446744073709551616"[..],
            b"",
            b"-1",
            b"1a",
            b" 1",
            b"\xff",
            b"1.",
        ] {
            assert_eq!(parse_u64(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn signs_and_hexadecimal_digits_are_read() {
        assert_eq!(parse_signed(b"-1"), Some(-1.0));
        assert_eq!(parse_signed(b"17"), Some(17.0));
        for bad in [&b"-"[..], b"--1", b"+1", b"1-", b""] {
            assert_eq!(parse_signed(bad), None, "{bad:?}");
        }
        assert_eq!(parse_hex(b"000c66F0"), Some(0xc66f0));
        assert_eq!(parse_hex(b"ffffffffffffffff"), Some(u64::MAX));
        for bad in [&b"0x1"[..], b"", b"g", b"00000000000000001", b"\xff"] {
            assert_eq!(parse_hex(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn decimals_are_the_nearest_f64() {
        for text in [
            "0.00",
            "0.07",
            "12.34",
            "123456.78",
            "0.1",
            "3",
            "7.123456789",
        ] {
            assert_eq!(parse_decimal(text.as_bytes()), text.parse().ok(), "{text}");
        }
        for bad in [
            ".",
            "1.",
            ".5",
            "1.2.3",
            "1.x",
            "nan",
            "18446744073709551615.99",
            "1.0123456789",
        ] {
            assert_eq!(parse_decimal(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn words_skip_all_blanks() {
        let words: Vec<&[u8]> = Words(b"  a\t bc   d ").collect();
        assert_eq!(words, [&b"a"[..], b"bc", b"d"]);
    }
}
