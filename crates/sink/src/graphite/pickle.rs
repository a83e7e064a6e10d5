//! Carbon's pickle format: the length in four bytes, then a list of `(path, (time, value))` in
//! Python's pickle protocol 2.

/// The number of values in one message. Carbon refuses messages of a mebibyte.
const VALUES_MAX: usize = 500;
/// Paths are shorter than this, so that a message of [`VALUES_MAX`] values is accepted.
pub(super) const PATH_BYTES_MAX: usize = 2_000;

/// Collects values into messages.
#[derive(Debug, Default)]
pub(super) struct PickleWriter {
    values: usize,
    /// The start of the message in progress.
    start: usize,
}

impl PickleWriter {
    pub(super) fn push(&mut self, out: &mut Vec<u8>, path: &str, seconds: i64, value: f64) {
        if self.values == 0 {
            self.start = out.len();
            // Four bytes for the length; protocol 2; an empty list; a mark.
            out.extend_from_slice(b"\0\0\0\0\x80\x02](");
        }
        out.push(b'X');
        out.extend_from_slice(&u32::try_from(path.len()).unwrap_or(0).to_le_bytes());
        out.extend_from_slice(path.as_bytes());
        // A long of eight bytes.
        out.extend_from_slice(b"\x8a\x08");
        out.extend_from_slice(&seconds.to_le_bytes());
        out.push(b'G');
        out.extend_from_slice(&value.to_be_bytes());
        // Two tuples of two.
        out.extend_from_slice(b"\x86\x86");
        self.values += 1;
        if self.values == VALUES_MAX {
            self.finish(out);
        }
    }

    /// Completes the message in progress, if there is one.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if self.values == 0 {
            return;
        }
        // Append all to the list; stop.
        out.extend_from_slice(b"e.");
        let length = u32::try_from(out.len() - self.start - 4).unwrap_or(0);
        out[self.start..self.start + 4].copy_from_slice(&length.to_be_bytes());
        self.values = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_length_and_at_most_500_values() {
        let (mut out, mut writer) = (Vec::new(), PickleWriter::default());
        for second in 0..501 {
            writer.push(&mut out, "a.b", second, 0.5);
        }
        writer.finish(&mut out);
        let length = |out: &[u8], at: usize| {
            let bytes = out[at..at + 4].try_into().expect("four bytes");
            u32::from_be_bytes(bytes) as usize
        };
        let value = 1 + 4 + 3 + 10 + 9 + 2;
        assert_eq!(length(&out, 0), 4 + 500 * value + 2);
        let second = 4 + length(&out, 0);
        assert_eq!(length(&out, second), 4 + value + 2);
        assert_eq!(out.len(), second + 4 + length(&out, second));
        writer.finish(&mut out);
        assert_eq!(out.len(), second + 4 + length(&out, second));
    }
}
