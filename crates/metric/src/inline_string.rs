//! The text of a series, stored without an allocation when it is short.

use std::fmt;

/// A string that is stored inline when it is short. Most series texts are short, and a separate
/// allocation would double their memory: a node may hold hundreds of thousands of them.
pub(crate) enum InlineString {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Box<str>),
}

/// Makes the whole enum 32 bytes.
const INLINE_BYTES: usize = 30;

impl InlineString {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            InlineString::Inline { len, bytes } => {
                let bytes = &bytes[..usize::from(*len)];
                // SAFETY: `from`, the only constructor, copied exactly these bytes from a `str`,
                // and the fields are never modified afterwards.
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
