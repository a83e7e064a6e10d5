//! The tags of series, and the common tags of a group.

use std::borrow::Cow;
use std::collections::BTreeMap;

use pegel_metric::Series;

/// The tag with the node of a series; every result has it.
pub(crate) const HOST: &str = "host";

/// Returns the value of a tag. A series without a host belongs to this node; on a node without a
/// name it has none.
pub(crate) fn tag_value<'a>(series: &'a Series, key: &str, node: &'a str) -> Option<Cow<'a, str>> {
    let own = series.label(key);
    match own {
        None if key == HOST && !node.is_empty() => Some(Cow::Borrowed(node)),
        own => own,
    }
}

/// Returns all tags, sorted by key.
pub(crate) fn tags<'a>(series: &'a Series, node: &'a str) -> BTreeMap<&'a str, Cow<'a, str>> {
    let mut tags: BTreeMap<&str, Cow<'_, str>> = series.labels().collect();
    if !node.is_empty() {
        tags.entry(HOST).or_insert(Cow::Borrowed(node));
    }
    tags
}

/// Returns all tags as owned texts, for responses.
pub(crate) fn owned_tags(series: &Series, node: &str) -> BTreeMap<String, String> {
    let tags = tags(series, node).into_iter();
    tags.map(|(key, value)| (key.to_owned(), value.into_owned()))
        .collect()
}

/// The common tags of the series of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CommonTags {
    has_series: bool,
    /// The keys that every series has, with their common value; `None` if the values differ.
    keys: BTreeMap<String, Option<String>>,
}

impl CommonTags {
    pub(crate) fn add(&mut self, series: &Series, node: &str) {
        let tags = tags(series, node);
        if !self.has_series {
            self.has_series = true;
            let owned =
                |(key, value): (&str, Cow<'_, str>)| (key.to_owned(), Some(value.into_owned()));
            self.keys = tags.into_iter().map(owned).collect();
            return;
        }
        self.keys.retain(|key, common| {
            let Some(value) = tags.get(key.as_str()) else {
                return false;
            };
            if common.as_deref().is_some_and(|common| common != value) {
                *common = None;
            }
            true
        });
    }

    /// Returns the tags with one value, and the keys with several.
    pub(crate) fn split(self) -> (BTreeMap<String, String>, Vec<String>) {
        let mut tags = BTreeMap::new();
        let mut aggregated = Vec::new();
        for (key, value) in self.keys {
            match value {
                Some(value) => drop(tags.insert(key, value)),
                None => aggregated.push(key),
            }
        }
        (tags, aggregated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_store::series;

    fn common(all: &[&str]) -> (Vec<(String, String)>, Vec<String>) {
        let mut common = CommonTags::default();
        all.iter()
            .for_each(|text| common.add(&series(text), "nid1"));
        let (tags, aggregated) = common.split();
        (tags.into_iter().collect(), aggregated)
    }

    #[test]
    fn same_values_different_values_and_missing_keys() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        // host is equal in all series, dc differs, owner is missing in some.
        let found = common(&[
            "m{dc=\"dal\",host=\"a\",owner=\"x\"}",
            "m{dc=\"lax\",host=\"a\",owner=\"x\"}",
            "m{dc=\"lax\",host=\"a\"}",
        ]);
        assert_eq!(found, (vec![pair("host", "a")], vec!["dc".to_owned()]));
        let found = common(&["m{gpu=\"0\"}", "m{gpu=\"1\",host=\"b\"}"]);
        assert_eq!(found, (vec![], vec!["gpu".into(), "host".into()]));
        assert_eq!(common(&["m"]), (vec![pair("host", "nid1")], vec![]));
    }
}
