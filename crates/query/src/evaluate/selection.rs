//! Selects the series of a sub-query and assigns them to groups.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use pegel_metric::{Millis, Selector, Series};
use pegel_store::RangeQuery;

use crate::engine::QueryEngine;
use crate::error::OpentsdbError;
use crate::filter::TagFilter;
use crate::request::{QueryRequest, QueryTarget, SubQuery};
use crate::tags::{HOST, tag_value};
use crate::tsuid::tsuid;

/// The series of a sub-query, and the tags that group them.
pub(super) struct SeriesSelection {
    pub metric: String,
    pub selector: Selector,
    /// There is one group for each combination of the values of these tags.
    group_keys: Vec<String>,
}

impl SeriesSelection {
    /// Returns `None` if no series has one of the given TSUIDs.
    pub(super) fn new(
        engine: &QueryEngine,
        request: &QueryRequest,
        query: &SubQuery,
        deadline: Instant,
    ) -> Result<Option<SeriesSelection>, OpentsdbError> {
        let name = match &query.target {
            QueryTarget::Metric(name) => name,
            QueryTarget::Tsuids(ids) => return select_by_tsuids(engine, ids, deadline),
        };
        let filters = if engine.dragon_compat {
            dragon_filters(&query.filters)
        } else {
            query.filters.clone()
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
        let is_on_host = host_condition(&filters);
        let mut selector = selector(engine, name, filters, query.explicit_tags);
        if has_expression {
            let named = Selector::name(name).with_label_condition(HOST, is_on_host.clone());
            selector = resolve_selector(engine, request, name, named, &selector, deadline)?;
        }
        let selector = selector.with_label_condition(HOST, is_on_host);
        Ok(Some(SeriesSelection {
            metric: name.clone(),
            selector,
            group_keys,
        }))
    }

    /// Returns the group of a series. Series that lack a tag form a group of their own.
    pub(super) fn group_key(&self, series: &Series, node: &str) -> Vec<Option<String>> {
        let value = |key: &String| tag_value(series, key, node).map(|value| value.into_owned());
        self.group_keys.iter().map(value).collect()
    }
}

/// Makes filters on `*` grouping. Dragon ignores `groupBy`: its panels query `*` without it and
/// expect a series for each value.
fn dragon_filters(filters: &[TagFilter]) -> Vec<TagFilter> {
    let change = |filter: &TagFilter| {
        if filter.is_any_value() {
            filter.with_grouping()
        } else {
            filter.clone()
        }
    };
    filters.iter().map(change).collect()
}

/// Returns whether series of a host can match.
pub(crate) fn host_condition(
    filters: &[TagFilter],
) -> impl Fn(&str) -> bool + Clone + Send + Sync + 'static {
    let filters = filters.iter().filter(|filter| filter.tagk == HOST);
    let filters: Arc<[TagFilter]> = filters.cloned().collect();
    move |host| filters.iter().all(|filter| filter.accepts(host.into()))
}

fn selector(
    engine: &QueryEngine,
    name: &str,
    filters: Vec<TagFilter>,
    is_explicit: bool,
) -> Selector {
    if filters.is_empty() && !is_explicit {
        return Selector::name(name);
    }
    let (node, adds_host) = (engine.node.clone(), engine.source.is_distributed());
    Selector::with_predicate(name, move |series| {
        filters.iter().all(|filter| filter.matches(series, &node))
            && (!is_explicit || has_exact_tags(series, &filters, adds_host))
    })
}

/// Replaces a selector with regular expressions by the list of series that it matches: expressions
/// are expensive, so they are evaluated once per series instead of once per block.
fn resolve_selector(
    engine: &QueryEngine,
    request: &QueryRequest,
    name: &str,
    named: Selector,
    selector: &Selector,
    deadline: Instant,
) -> Result<Selector, OpentsdbError> {
    let mut range_query = RangeQuery::new(named, request.start, Millis::MAX, None);
    range_query.bytes_max = engine.limits.bytes_max;
    range_query.deadline = deadline;
    let mut all: Vec<Arc<Series>> = Vec::new();
    engine
        .source
        .series(&range_query, &mut |series| all.push(series.clone()))?;
    let mut found = HashSet::new();
    for series in all {
        QueryEngine::check_time(deadline)?;
        if selector.matches(&series) {
            found.insert(series);
        }
    }
    Ok(Selector::with_predicate(name, move |series| {
        found.contains(series)
    }))
}

/// Returns whether a series has exactly the keys of the filters. A missing `host` is accepted,
/// since responses add it; so is one that the source added.
fn has_exact_tags(series: &Series, filters: &[TagFilter], adds_host: bool) -> bool {
    let is_known =
        |key: &str| (adds_host && key == HOST) || filters.iter().any(|filter| filter.tagk == key);
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
