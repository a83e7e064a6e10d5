use std::fmt;

/// A text that lies in place where it is short. Most names are, and an allocation of its own would take as much
/// again: a node may hold hundreds of thousands of them.
pub(crate) enum Text {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Box<str>),
}

/// As many as make the whole 32 bytes.
const SHORT: usize = 30;

impl Text {
    pub fn as_str(&self) -> &str {
        match self {
            Text::Short { len, bytes } => {
                let bytes = &bytes[..usize::from(*len)];
                // SAFETY: these are all bytes of a `str`, copied by `from`, and nothing changes them.
                unsafe { std::str::from_utf8_unchecked(bytes) }
            }
            Text::Long(text) => text,
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text.as_bytes());
                Text::Short {
                    len: text.len() as u8,
                    bytes,
                }
            }
            None => Text::Long(text.into()),
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_length_reads_back() {
        let long = "ä".repeat(SHORT);
        for end in (0..=long.len()).filter(|&end| long.is_char_boundary(end)) {
            let text = Text::from(&long[..end]);
            assert_eq!(text.as_str(), &long[..end]);
            assert_eq!(matches!(text, Text::Long(_)), end > SHORT);
        }
    }

    #[test]
    fn a_text_is_small() {
        assert_eq!(size_of::<Text>(), 32);
    }
}
