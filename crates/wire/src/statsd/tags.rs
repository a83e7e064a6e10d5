//! Parses DogStatsD's tags: `key:value,key,…`.

use super::StatsdLineFault;

/// The most tags of one line.
pub const TAGS_MAX: usize = pegel_metric::LABELS_MAX;

/// One tag. A tag without a value has the value `true`.
pub type StatsdTag<'a> = (&'a [u8], &'a [u8]);

/// The tags of one line, as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatsdTags<'a> {
    text: &'a [u8],
}

/// The error for tags that are not sorted by key, or not in the shortest form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnorderedTags;

impl<'a> StatsdTags<'a> {
    pub(super) fn new(text: &'a [u8]) -> StatsdTags<'a> {
        StatsdTags { text }
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the tags in the order of the line.
    pub fn iter(&self) -> impl Iterator<Item = StatsdTag<'a>> + use<'a> {
        self.text
            .split(|b| *b == b',')
            .filter(|tag| !tag.is_empty())
            .map(|tag| match memchr::memchr(b':', tag) {
                Some(colon) => (&tag[..colon], &tag[colon + 1..]),
                None => (tag, &b"true"[..]),
            })
    }

    /// Returns the text itself if it is canonical, so that two lines with the same tags have the
    /// same text: every tag with its value, sorted by keys, no duplicate keys.
    pub fn ordered(&self) -> Result<&'a [u8], UnorderedTags> {
        let mut before: &[u8] = &[];
        for tag in self.text.split(|b| *b == b',') {
            if tag.is_empty() && self.text.is_empty() {
                break;
            }
            let colon = memchr::memchr(b':', tag).ok_or(UnorderedTags)?;
            if tag[..colon] <= *before {
                return Err(UnorderedTags);
            }
            before = &tag[..colon];
        }
        Ok(self.text)
    }

    /// Appends the same tags in the form of [`StatsdTags::ordered`]. Values of a duplicate key are
    /// joined by semicolons, in the order of the line.
    pub fn append_ordered(&self, out: &mut Vec<u8>) {
        let mut sorted: [StatsdTag<'_>; TAGS_MAX] = [(&[], &[]); TAGS_MAX];
        let mut count = 0;
        for tag in self.iter().take(TAGS_MAX) {
            sorted[count] = tag;
            count += 1;
        }
        // Stable, so that values keep their order.
        sorted[..count].sort_by_key(|(key, _)| *key);
        for (at, (key, value)) in sorted[..count].iter().enumerate() {
            if at > 0 && sorted[at - 1].0 == *key {
                out.push(b';');
            } else {
                if at > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(key);
                out.push(b':');
            }
            out.extend_from_slice(value);
        }
    }

    pub(super) fn check(&self) -> Result<(), StatsdLineFault> {
        let mut count = 0;
        for (key, _) in self.iter() {
            count += 1;
            let is_bad = |b: &u8| matches!(b, b'{' | b'}' | b'"' | b'=' | b'!' | b'~');
            if key.is_empty() || key.iter().any(is_bad) {
                return Err(StatsdLineFault::Tag);
            }
        }
        if count > TAGS_MAX {
            Err(StatsdLineFault::TooManyTags)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(text: &str) -> String {
        let tags = StatsdTags::new(text.as_bytes());
        let mut out = Vec::new();
        tags.append_ordered(&mut out);
        let again = StatsdTags::new(&out);
        assert_eq!(again.ordered(), Ok(&out[..]), "{text}");
        if let Ok(same) = tags.ordered() {
            assert_eq!(same, out, "{text}");
        }
        String::from_utf8(out).expect("the test writes UTF-8")
    }

    #[test]
    fn the_order_in_which_tags_come_makes_no_difference() {
        for (text, expected) in [
            ("", ""),
            ("a:1", "a:1"),
            ("b:2,a:1", "a:1,b:2"),
            ("b,a:1", "a:1,b:true"),
            (",a:1,,b:2,", "a:1,b:2"),
            ("a:1:2", "a:1:2"),
            ("a:", "a:"),
            ("a:2,b:x,a:1", "a:2;1,b:x"),
        ] {
            assert_eq!(ordered(text), expected, "{text}");
        }
    }

    #[test]
    fn only_the_one_form_counts_as_ordered() {
        for text in ["b:1,a:1", "a", "a:1,a:2", ",a:1", "a:1,", ":1"] {
            assert_eq!(
                StatsdTags::new(text.as_bytes()).ordered(),
                Err(UnorderedTags),
                "{text}"
            );
        }
        for text in ["", "a:1", "a:1,b:2", "a:"] {
            assert_eq!(
                StatsdTags::new(text.as_bytes()).ordered(),
                Ok(text.as_bytes()),
                "{text}"
            );
        }
    }

    #[test]
    fn tags_have_bounds() {
        let many = |count: usize| {
            (0..count)
                .map(|n| format!("k{n}:1"))
                .collect::<Vec<_>>()
                .join(",")
        };
        assert_eq!(StatsdTags::new(many(TAGS_MAX).as_bytes()).check(), Ok(()));
        assert_eq!(
            StatsdTags::new(many(TAGS_MAX + 1).as_bytes()).check(),
            Err(StatsdLineFault::TooManyTags)
        );
        for bad in [":v", "a=b:1", "{:1", "a,\"b\":1"] {
            assert_eq!(
                StatsdTags::new(bad.as_bytes()).check(),
                Err(StatsdLineFault::Tag),
                "{bad}"
            );
        }
    }
}
