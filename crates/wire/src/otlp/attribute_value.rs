//! Writes values of attributes as the text of a label: a string as it is, everything else as JSON.

use std::fmt::Write;

/// Appends a text as a JSON string.
pub(super) fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out.push_str("\\n"),
            c if c < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Appends a number with the fewest digits that read back as the same value.
pub(super) fn push_double(out: &mut String, value: f64) {
    pegel_metric::format_value(out, value);
}

/// Appends bytes as base64.
pub(super) fn push_base64(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = (bits >> (18 - 6 * at)) & 63;
            out.push(match at <= group.len() {
                true => char::from(DIGITS[digit as usize]),
                false => '=',
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_bytes_are_base64() {
        let mut out = String::new();
        push_quoted(&mut out, "a\"\\\n\u{1}ü");
        assert_eq!(out, "\"a\\\"\\\\\\n\\u0001ü\"");
        for (bytes, expected) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (&[0xff, 0xfe, 0xfd], "//79"),
        ] {
            let mut out = String::new();
            push_base64(&mut out, bytes);
            assert_eq!(out, expected);
        }
    }
}
