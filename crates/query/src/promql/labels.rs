//! The labels of a series, including its name as the label `__name__`.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The label that holds the name of a metric.
pub(crate) const NAME: &str = "__name__";

type Label = (Arc<str>, Arc<str>);

/// Labels sorted by name, without empty values. Cloning copies a pointer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LabelSet(Arc<[Label]>);

impl LabelSet {
    /// Creates labels from pairs in any order. Empty values are left out, as they mean that the
    /// label is absent; of two labels with one name the first remains.
    pub fn new<N: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (N, V)>) -> LabelSet {
        let pairs = pairs
            .into_iter()
            .map(|(name, value)| (name.as_ref().into(), value.as_ref().into()));
        LabelSet::from_vec(pairs.collect())
    }

    fn from_vec(mut pairs: Vec<Label>) -> LabelSet {
        pairs.retain(|(_, value)| !value.is_empty());
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|a, b| a.0 == b.0);
        LabelSet(pairs.into())
    }

    pub fn empty() -> LabelSet {
        LabelSet(Arc::new([]))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the value of a label; empty if it is absent.
    pub fn get(&self, name: &str) -> &str {
        match self.0.binary_search_by(|label| (*label.0).cmp(name)) {
            Ok(index) => &self.0[index].1,
            Err(_) => "",
        }
    }

    pub fn metric_name(&self) -> &str {
        self.get(NAME)
    }

    /// Returns the approximate size in memory.
    pub fn bytes(&self) -> usize {
        let text = |label: &Label| label.0.len() + label.1.len() + 64;
        self.0.iter().map(text).sum::<usize>() + 64
    }

    pub(crate) fn without_name(&self) -> LabelSet {
        if self.get(NAME).is_empty() {
            return self.clone();
        }
        self.retain(|name| name != NAME)
    }

    pub(crate) fn retain(&self, keep: impl Fn(&str) -> bool) -> LabelSet {
        let kept = self.0.iter().filter(|label| keep(&label.0)).cloned();
        LabelSet(kept.collect())
    }

    /// Returns these labels with one of them set; an empty value removes it.
    pub(crate) fn with(&self, name: &str, value: &str) -> LabelSet {
        let mut pairs: Vec<Label> = self
            .0
            .iter()
            .filter(|label| &*label.0 != name)
            .cloned()
            .collect();
        pairs.push((name.into(), value.into()));
        LabelSet::from_vec(pairs)
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
        self.0.cmp(&other.0)
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
