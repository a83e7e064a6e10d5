use std::fmt;

/// A text that lies in place where it is short. Most names are, and an allocation of its own would take as much
/// again: a node may hold hundreds of thousands of them.
pub(crate) enum InlineString {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Box<str>),
}

/// As many as make the whole 32 bytes.
const INLINE_BYTES: usize = 30;

impl InlineString {
    pub fn as_str(&self) -> &str {
        match self {
            InlineString::Inline { len, bytes } => {
                let bytes = &bytes[..usize::from(*len)];
                // SAFETY: these are all bytes of a `str`, copied by `from`, and nothing changes them.
                unsafe { std::str::from_utf8_unchecked(bytes) }
            }
            InlineString::Heap(text) => text,
        }
    }
}

impl From<&str> for InlineString {
    fn from(text: &str) -> InlineString {
        let mut bytes = [0; INLINE_BYTES];
        match bytes.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text.as_bytes());
                InlineString::Inline {
                    len: text.len() as u8,
                    bytes,
                }
            }
            None => InlineString::Heap(text.into()),
        }
    }
}

impl fmt::Debug for InlineString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_length_reads_back() {
        let long = "ä".repeat(INLINE_BYTES);
        for end in (0..=long.len()).filter(|&end| long.is_char_boundary(end)) {
            let text = InlineString::from(&long[..end]);
            assert_eq!(text.as_str(), &long[..end]);
            assert_eq!(matches!(text, InlineString::Heap(_)), end > INLINE_BYTES);
        }
    }

    #[test]
    fn a_text_is_small() {
        assert_eq!(size_of::<InlineString>(), 32);
    }
}
