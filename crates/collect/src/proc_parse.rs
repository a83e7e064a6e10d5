//! Lines of `/proc` files, and what can be wrong with them. Called by the collectors in every pass.
//! The functions never panic, and do not allocate (except for label values that need escaping).

use std::borrow::Cow;
use std::fmt::Write;

use pegel_metric::SeriesError;

pub(crate) use pegel_machine::{
    Words, parse_decimal, parse_hex, parse_signed, parse_u64, parse_u64s,
};

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

impl ProcParseError {
    /// Describes a malformed line, numbered from 1.
    pub(crate) const fn at_line(line: usize, what: &'static str) -> ProcParseError {
        ProcParseError::Malformed { line, what }
    }
}

impl From<SeriesError> for ProcParseError {
    fn from(error: SeriesError) -> ProcParseError {
        ProcParseError::Series(error)
    }
}

/// Returns the lines of a text that must not be empty and must end with a newline: the kernel's
/// files do, so anything else is truncated.
pub(crate) fn non_empty_lines(text: &[u8]) -> Result<NumberedLines<'_>, ProcParseError> {
    if text.is_empty() {
        return Err(ProcParseError::at_line(0, "empty file"));
    }
    lines(text)
}

/// Returns the first line of a text, which must end with a newline.
pub(crate) fn first_line(text: &[u8]) -> Result<&[u8], ProcParseError> {
    Ok(non_empty_lines(text)?
        .next()
        .map_or(&[][..], |(_, line)| line))
}

/// Checks that the first line starts with `heading`: columns are identified by their order, so an
/// unknown header is rejected.
pub(crate) fn check_heading(
    lines: &mut NumberedLines<'_>,
    heading: &[u8],
    what: &'static str,
) -> Result<(), ProcParseError> {
    let is_known = |(_, line): (usize, &[u8])| line.trim_ascii_start().starts_with(heading);
    if lines.next().is_some_and(is_known) {
        Ok(())
    } else {
        Err(ProcParseError::at_line(1, what))
    }
}

/// Like [`non_empty_lines`], for files that may be empty.
pub(crate) fn lines(text: &[u8]) -> Result<NumberedLines<'_>, ProcParseError> {
    if text.last().is_some_and(|&byte| byte != b'\n') {
        let line = text.iter().filter(|&&byte| byte == b'\n').count() + 1;
        return Err(ProcParseError::at_line(line, "the last line is cut off"));
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

/// Returns the position of the first newline, or the length. Scans eight bytes at a time: the
/// `intr` line of a large machine has ten thousand.
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

/// Returns the name of a device as a label value. Bytes that are not UTF-8 are escaped as `\xNN`,
/// and so is a backslash, so that distinct names stay distinct.
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
                what: "empty file"
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
    fn names_that_are_not_utf8_stay_different() {
        assert_eq!(label_value(b"eth0"), "eth0");
        assert_eq!(label_value(b"d\xffi\xfe"), "d\\xffi\\xfe");
        assert_eq!(label_value(b"d\\xff"), "d\\x5cxff");
    }
}
