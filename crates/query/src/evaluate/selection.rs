use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use pegel_metric::{Millis, Selector, Series};
use pegel_store::{QueryError, RangeQuery};

use crate::engine::QueryEngine;
use crate::error::OpentsdbError;
use crate::filter::TagFilter;
use crate::request::{QueryRequest, QueryTarget, SubQuery};
use crate::tags::{HOST, tag_value};
use crate::tsuid::tsuid;

/// The series of a sub-query, and how they are put into groups.
pub(super) struct SeriesSelection {
    pub metric: String,
    pub selector: Selector,
    /// One line for each combination of the values of these tags.
    group_keys: Vec<String>,
}

impl SeriesSelection {
    /// Nothing where no series has one of the names that were given.
    pub fn new(
        engine: &QueryEngine,
        request: &QueryRequest,
        query: &SubQuery,
        deadline: Instant,
    ) -> Result<Option<SeriesSelection>, OpentsdbError> {
        let name = match &query.target {
            QueryTarget::Metric(name) => name,
            QueryTarget::Tsuids(ids) => return select_by_tsuids(engine, ids, deadline),
        };
        let filters = match engine.dragon_compat {
            true => dragon_filters(&query.filters),
            false => query.filters.clone(),
        };
        let mut group_keys: Vec<String> = filters
            .iter()
            .filter(|filter| filter.group_by)
            .map(|filter| filter.tagk.clone())
            .collect();
        let asks_dragon = |filter: &TagFilter| !filter.group_by && filter.is_any_value();
        if engine.dragon_compat && query.filters.iter().any(asks_dragon) {
            group_keys.push(HOST.to_owned());
        }
        group_keys.sort_unstable();
        group_keys.dedup();
        let has_expression = filters.iter().any(TagFilter::is_expression);
        let mut selector = selector(name, filters, query.explicit_tags, engine.node.clone());
        if has_expression {
            selector = resolve_selector(engine, request, name, &selector, deadline)?;
        }
        Ok(Some(SeriesSelection {
            metric: name.clone(),
            selector,
            group_keys,
        }))
    }

    /// A series that lacks one of the tags stands in a group of those that lack it.
    pub fn group_key(&self, series: &Series, node: &str) -> Vec<Option<String>> {
        let value = |key: &String| tag_value(series, key, node).map(|value| value.into_owned());
        self.group_keys.iter().map(value).collect()
    }
}

/// Dragon never looks at `groupBy`: its panels ask for `*` without it and expect a line for each value.
fn dragon_filters(filters: &[TagFilter]) -> Vec<TagFilter> {
    let change = |filter: &TagFilter| match filter.is_any_value() {
        true => filter.with_grouping(),
        false => filter.clone(),
    };
    filters.iter().map(change).collect()
}

fn selector(name: &str, filters: Vec<TagFilter>, is_explicit: bool, node: Arc<str>) -> Selector {
    if filters.is_empty() && !is_explicit {
        return Selector::name(name);
    }
    Selector::with_predicate(name, move |series| {
        filters.iter().all(|filter| filter.matches(series, &node))
            && (!is_explicit || has_exact_tags(series, &filters))
    })
}

/// The series that a selector with regular expressions matches, by name: an expression may take long, so that it is
/// tried once for each series, not once for each block.
fn resolve_selector(
    engine: &QueryEngine,
    request: &QueryRequest,
    name: &str,
    selector: &Selector,
    deadline: Instant,
) -> Result<Selector, OpentsdbError> {
    let mut question = RangeQuery::new(Selector::name(name), request.start, Millis::MAX, None);
    question.bytes_max = engine.limits.bytes_max;
    question.deadline = deadline;
    let mut all: Vec<Arc<Series>> = Vec::new();
    engine
        .store
        .series(&question, &mut |series| all.push(series.clone()))?;
    let mut found = HashSet::new();
    for series in all {
        if Instant::now() > deadline {
            return Err(QueryError::TooLong.into());
        }
        if selector.matches(&series) {
            found.insert(series);
        }
    }
    Ok(Selector::with_predicate(name, move |series| {
        found.contains(series)
    }))
}

/// Whether a series has the keys of the filters and no others. A host that only answers add may be missing.
fn has_exact_tags(series: &Series, filters: &[TagFilter]) -> bool {
    let is_known = |key: &str| filters.iter().any(|filter| filter.tagk == key);
    let has = |filter: &TagFilter| filter.tagk == HOST || series.label(&filter.tagk).is_some();
    series.labels().all(|(key, _)| is_known(key)) && filters.iter().all(has)
}

fn select_by_tsuids(
    engine: &QueryEngine,
    ids: &[String],
    deadline: Instant,
) -> Result<Option<SeriesSelection>, OpentsdbError> {
    let mut found: Vec<Arc<Series>> = Vec::new();
    engine.for_each_series(Selector::all(), deadline, &mut |series| {
        if ids.binary_search(&tsuid(series, &engine.node)).is_ok() {
            found.push(series.clone());
        }
    })?;
    let Some(first) = found.first() else {
        return Ok(None);
    };
    let metric = first.name().to_owned();
    if found.iter().any(|series| series.name() != metric) {
        return Err(OpentsdbError::bad_request(
            "The tsuids of one sub-query must belong to one metric",
        ));
    }
    let found: HashSet<Arc<Series>> = found.into_iter().collect();
    Ok(Some(SeriesSelection {
        selector: Selector::with_predicate(&metric, move |series| found.contains(series)),
        metric,
        group_keys: Vec::new(),
    }))
}
