//! The labels of a series, including its name as the label `__name__`.

use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The label that holds the name of a metric.
pub(crate) const NAME: &str = "__name__";

/// Labels sorted by name, without empty values. Cloning copies a pointer.
///
/// All labels are in one text, each as the length of its name, the name, the length of its value
/// and the value: one allocation per series, and equal labels are equal texts. A length is written
/// as two characters, see [`push_sized`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LabelSet(Arc<str>);

impl LabelSet {
    /// Creates labels from pairs in any order. Empty values are left out, as they mean that the
    /// label is absent; of two labels with one name the first remains.
    pub fn new<N: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (N, V)>) -> LabelSet {
        let mut pairs: Vec<(N, V)> = pairs.into_iter().collect();
        pairs.retain(|(_, value)| !value.as_ref().is_empty());
        // Stable, so that the first of two labels with one name stays the first.
        pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
        pairs.dedup_by(|a, b| a.0.as_ref() == b.0.as_ref());
        LabelSet::from_sorted(
            pairs
                .iter()
                .map(|(name, value)| (name.as_ref(), value.as_ref())),
        )
    }

    /// Creates labels from pairs that are sorted by name and have values.
    fn from_sorted<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> LabelSet {
        let sized = |text: &str| text.len() + 4;
        let bytes = pairs
            .clone()
            .map(|(name, value)| sized(name) + sized(value));
        let mut text = String::with_capacity(bytes.sum());
        for (name, value) in pairs {
            push_sized(&mut text, name);
            push_sized(&mut text, value);
        }
        LabelSet(text.into())
    }

    pub fn empty() -> LabelSet {
        static EMPTY: LazyLock<LabelSet> = LazyLock::new(|| LabelSet("".into()));
        EMPTY.clone()
    }

    pub fn iter(&self) -> LabelIter<'_> {
        LabelIter { rest: &self.0 }
    }

    /// Returns the value of a label; empty if it is absent.
    pub fn get(&self, name: &str) -> &str {
        let found = self.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    pub fn metric_name(&self) -> &str {
        self.get(NAME)
    }

    /// Returns the approximate size in memory.
    pub fn bytes(&self) -> usize {
        self.0.len() + 48
    }

    pub(crate) fn without_name(&self) -> LabelSet {
        if self.get(NAME).is_empty() {
            return self.clone();
        }
        self.retain(|name| name != NAME)
    }

    pub(crate) fn retain(&self, keep: impl Fn(&str) -> bool) -> LabelSet {
        LabelSet::from_sorted(self.iter().filter(|(name, _)| keep(name)))
    }

    /// Returns these labels with one of them set; an empty value removes it.
    pub fn with(&self, name: &str, value: &str) -> LabelSet {
        let others = self.iter().filter(|(known, _)| *known != name);
        LabelSet::new(others.chain([(name, value)]))
    }
}

/// The bits of a length in one character: less than the surrogates, which are not characters.
const LENGTH_BITS: u32 = 14;

/// Appends a text with its length before it, as two characters of 14 bits each: two bytes for
/// short texts, at most six for one of 256 MiB, which exceeds the memory of a query.
fn push_sized(out: &mut String, text: &str) {
    for part in [text.len() >> LENGTH_BITS, text.len() % (1 << LENGTH_BITS)] {
        out.push(char::from_u32(part as u32).unwrap_or(char::MAX));
    }
    out.push_str(text);
}

/// Splits off the first text that [`push_sized`] wrote; `None` at the end.
fn split_sized<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let mut characters = rest.chars();
    let length = (characters.next()? as usize) << LENGTH_BITS | characters.next()? as usize;
    let (text, after) = characters.as_str().split_at_checked(length)?;
    *rest = after;
    Some(text)
}

/// An iterator over the names and values of labels, sorted by name.
#[derive(Debug, Clone)]
pub struct LabelIter<'a> {
    rest: &'a str,
}

impl<'a> Iterator for LabelIter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<(&'a str, &'a str)> {
        Some((split_sized(&mut self.rest)?, split_sized(&mut self.rest)?))
    }
}

fn is_plain(name: &str) -> bool {
    let is_plain = |next: char| next.is_ascii_alphanumeric() || next == '_';
    name.chars().all(is_plain) && !name.starts_with(|first: char| first.is_ascii_digit())
}

impl PartialOrd for LabelSet {
    fn partial_cmp(&self, other: &LabelSet) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LabelSet {
    fn cmp(&self, other: &LabelSet) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl fmt::Display for LabelSet {
    /// Writes `{name="value", …}` as Prometheus' messages do; names with other characters than
    /// letters, digits and underscores are quoted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, (name, value)) in self.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            if is_plain(name) {
                write!(f, "{name}={value:?}")?;
            } else {
                write!(f, "{name:?}={value:?}")?;
            }
        }
        f.write_str("}")
    }
}

impl fmt::Debug for LabelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_and_have_no_empty_values() {
        let labels = LabelSet::new([("b", "2"), ("a", "1"), ("c", ""), (NAME, "m")]);
        assert_eq!(labels.to_string(), "{__name__=\"m\", a=\"1\", b=\"2\"}");
        assert_eq!((labels.get("a"), labels.get("c")), ("1", ""));
        assert_eq!(labels.metric_name(), "m");
        assert_eq!(labels.without_name().to_string(), "{a=\"1\", b=\"2\"}");
        assert_eq!(
            labels.with("a", "").with("0", "x").to_string(),
            "{\"0\"=\"x\", __name__=\"m\", b=\"2\"}"
        );
    }

    #[test]
    fn labels_of_any_length_read_back() {
        for length in [
            0, 1, 127, 128, 2_047, 2_048, 16_383, 16_384, 70_000, 1_200_000,
        ] {
            let value = "ä".repeat(length / 2) + &"x".repeat(length % 2);
            let labels = LabelSet::new([("a", value.as_str()), ("b", "2")]);
            assert_eq!((labels.get("a"), labels.get("b")), (value.as_str(), "2"));
            assert_eq!(labels.with("a", "1").to_string(), "{a=\"1\", b=\"2\"}");
        }
    }

    #[test]
    fn labels_compare_name_by_name() {
        let of = |pairs: &[(&str, &str)]| LabelSet::new(pairs.iter().copied());
        let mut all = [
            of(&[("a", "2")]),
            of(&[("b", "1")]),
            of(&[("a", "1"), ("b", "1")]),
            of(&[("a", "1")]),
        ];
        all.sort();
        let texts: Vec<String> = all.iter().map(LabelSet::to_string).collect();
        assert_eq!(
            texts,
            ["{a=\"1\"}", "{a=\"1\", b=\"1\"}", "{a=\"2\"}", "{b=\"1\"}"]
        );
    }
}
