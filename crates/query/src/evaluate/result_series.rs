//! The result of a sub-query.

use std::collections::BTreeMap;

use pegel_metric::Millis;

use crate::error::OpentsdbError;

/// One series of a result, as a chart shows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResultSeries {
    pub metric: String,
    /// The tags that all its series have with the same value.
    pub tags: BTreeMap<String, String>,
    /// The tags that all its series have with different values.
    pub aggregate_tags: Vec<String>,
    /// Sorted; empty unless requested.
    pub tsuids: Vec<String>,
    pub points: Vec<(Millis, f64)>,
}

pub(crate) type ResultVisitor<'a> = dyn FnMut(ResultSeries) -> Result<(), OpentsdbError> + 'a;

/// Returns the common tags of result series: tags with one value, and keys with several.
pub(crate) fn common_tags(lines: &[&ResultSeries]) -> (BTreeMap<String, String>, Vec<String>) {
    let Some((first, rest)) = lines.split_first() else {
        return (BTreeMap::new(), Vec::new());
    };
    let mut tags = first.tags.clone();
    let mut aggregated = first.aggregate_tags.clone();
    for line in rest {
        for (key, value) in std::mem::take(&mut tags) {
            match line.tags.get(&key) {
                Some(other) if *other == value => drop(tags.insert(key, value)),
                Some(_) => aggregated.push(key),
                None if line.aggregate_tags.contains(&key) => aggregated.push(key),
                None => {}
            }
        }
        aggregated.retain(|key| line.tags.contains_key(key) || line.aggregate_tags.contains(key));
    }
    aggregated.sort_unstable();
    aggregated.dedup();
    (tags, aggregated)
}
