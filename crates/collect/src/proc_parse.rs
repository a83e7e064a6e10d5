//! Small parsers over the bytes of `/proc` files: lines, words, numbers. Called by the collectors in every pass.
//! They accept exactly what the kernel writes and reject everything else, never panic, and do not allocate (except
//! for label values that need escaping).

use std::borrow::Cow;
use std::fmt::Write;

use pegel_metric::SeriesError;

/// Why a text could not be parsed, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProcParseError {
    Malformed {
        line: usize,
        what: &'static str,
    },
    Series(SeriesError),
    /// The text has more names than this maximum.
    TooManyNames(usize),
}

impl From<SeriesError> for ProcParseError {
    fn from(error: SeriesError) -> ProcParseError {
        ProcParseError::Series(error)
    }
}

/// Returns the lines of a text that must not be empty and must end with a newline: the kernel's files
/// do, so anything else is truncated.
pub(crate) fn non_empty_lines(text: &[u8]) -> Result<NumberedLines<'_>, ProcParseError> {
    if text.is_empty() {
        return Err(ProcParseError::Malformed {
            line: 0,
            what: "the file is empty",
        });
    }
    lines(text)
}

/// Like [`non_empty_lines`], for files that may be empty.
pub(crate) fn lines(text: &[u8]) -> Result<NumberedLines<'_>, ProcParseError> {
    if text.last().is_some_and(|&byte| byte != b'\n') {
        let line = text.iter().filter(|&&byte| byte == b'\n').count() + 1;
        return Err(ProcParseError::Malformed {
            line,
            what: "the last line is cut off",
        });
    }
    Ok(NumberedLines {
        rest: text,
        number: 0,
    })
}

/// An iterator over lines without their newline, numbered from 1.
#[derive(Debug, Clone)]
pub(crate) struct NumberedLines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Iterator for NumberedLines<'a> {
    type Item = (usize, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = find_newline(self.rest);
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 1..).unwrap_or(&[]);
        self.number += 1;
        Some((self.number, line))
    }
}

/// Returns the position of the first newline, or the length. Scans eight bytes at a time: the `intr`
/// line of a large machine has ten thousand.
#[inline]
fn find_newline(text: &[u8]) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (chunks, tail) = text.as_chunks::<8>();
    for (index, chunk) in chunks.iter().enumerate() {
        let different = u64::from_le_bytes(*chunk) ^ (LOW * b'\n' as u64);
        // Sets the high bit of the lowest zero byte; bits above that may be wrong.
        let found = different.wrapping_sub(LOW) & !different & HIGH;
        if found != 0 {
            return index * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let before = chunks.len() * 8;
    before
        + tail
            .iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(tail.len())
}

/// An iterator over words separated by blanks and tabs.
#[derive(Debug, Clone)]
pub(crate) struct Words<'a>(pub(crate) &'a [u8]);

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
pub(crate) fn parse_u64(word: &[u8]) -> Option<u64> {
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
pub(crate) fn parse_signed(word: &[u8]) -> Option<f64> {
    match word.strip_prefix(b"-") {
        Some(digits) => parse_u64(digits).map(|value| -(value as f64)),
        None => parse_u64(word).map(|value| value as f64),
    }
}

/// Parses a hexadecimal number without prefix.
#[inline]
pub(crate) fn parse_hex(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 16 {
        return None;
    }
    let mut value: u64 = 0;
    for &byte in word {
        value = value << 4 | u64::from((byte as char).to_digit(16)?);
    }
    Some(value)
}

/// Parses a number like `12.34` as exact digits divided by a power of ten, which yields the f64
/// nearest to the text.
pub(crate) fn parse_decimal(word: &[u8]) -> Option<f64> {
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

/// Parses numbers from `words` until `out` is full; returns how many there were. Further columns are
/// ignored: newer kernels append some.
#[inline]
pub(crate) fn parse_u64s(words: Words<'_>, out: &mut [u64]) -> Option<usize> {
    let mut count = 0;
    for (place, word) in out.iter_mut().zip(words) {
        *place = parse_u64(word)?;
        count += 1;
    }
    Some(count)
}

/// Returns the name of a device as a label value. Bytes that are not UTF-8 are escaped as `\xNN`, and so
/// is a backslash, so that distinct names stay distinct.
pub(crate) fn label_value(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.contains('\\') => Cow::Borrowed(text),
        _ => {
            let mut text = String::new();
            for chunk in name.utf8_chunks() {
                text.push_str(&chunk.valid().replace('\\', "\\x5c"));
                for byte in chunk.invalid() {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "\\x{byte:02x}");
                }
            }
            Cow::Owned(text)
        }
    }
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
    fn lines_are_found_wherever_the_newline_falls() {
        for length in 0..40 {
            let mut text = vec![b'x'; length];
            // A byte that differs from a newline by one must not match.
            text.extend_from_slice(b"\x0b\n\n9\n");
            let found: Vec<(usize, usize)> = lines(&text)
                .expect("whole")
                .map(|(number, line)| (number, line.len()))
                .collect();
            assert_eq!(found, [(1, length + 1), (2, 0), (3, 1)]);
        }
    }

    #[test]
    fn what_is_cut_is_said() {
        assert_eq!(
            non_empty_lines(b"").err(),
            Some(ProcParseError::Malformed {
                line: 0,
                what: "the file is empty"
            })
        );
        assert_eq!(
            lines(b"a\nb\nc").err(),
            Some(ProcParseError::Malformed {
                line: 3,
                what: "the last line is cut off"
            })
        );
        assert_eq!(lines(b"").expect("may be empty").count(), 0);
    }

    #[test]
    fn words_skip_all_blanks() {
        let words: Vec<&[u8]> = Words(b"  a\t bc   d ").collect();
        assert_eq!(words, [&b"a"[..], b"bc", b"d"]);
    }

    #[test]
    fn names_that_are_not_utf8_stay_different() {
        assert_eq!(label_value(b"eth0"), "eth0");
        assert_eq!(label_value(b"d\xffi\xfe"), "d\\xffi\\xfe");
        assert_eq!(label_value(b"d\\xff"), "d\\x5cxff");
    }
}
