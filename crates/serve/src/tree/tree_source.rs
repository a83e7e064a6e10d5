//! The series of this agent and of the nodes below it, each with the label `host`.

use std::sync::Arc;
use std::time::Instant;

use pegel_metric::{Millis, Selector, Series};
use pegel_query::{LatestVisitor, SampleReader};
use pegel_store::{LatestValue, QueryError, RangeQuery, SeriesVisitor, TimeLimit};
use pegel_tree_protocol::limits::MATCHERS_MAX;
use pegel_tree_protocol::{SelectRequest, SelectedSeries, select_request::Content};

use super::chosen_nodes::{ChosenNodes, FanOutLimits};
use super::host_label::{ADDED_LABELS, HOST, own_with_host, with_host};
use super::selected_series::SelectedDecoder;

/// The union of the own store and the chosen nodes. All methods block.
#[derive(Debug)]
pub(crate) struct TreeSource {
    nodes: Arc<ChosenNodes>,
    own: Arc<dyn SampleReader>,
}

/// The current value of a series of one node.
#[derive(Debug)]
pub(crate) struct NodeLatest {
    pub host: String,
    /// The series as the node has it.
    pub stored: Arc<Series>,
    /// The series with the label `host`.
    pub shown: Arc<Series>,
    pub latest: LatestValue,
}

/// A series with its points.
type PointsOfSeries = (Arc<Series>, Vec<(Millis, f64)>);

/// A series of a node, as the node has it and with the label `host`.
type ShownSeries = (Series, Arc<Series>);

impl TreeSource {
    pub(crate) fn new(nodes: ChosenNodes, own: Arc<dyn SampleReader>) -> TreeSource {
        TreeSource {
            nodes: Arc::new(nodes),
            own,
        }
    }

    /// Returns the current values of all nodes, in no particular order.
    pub(crate) fn latest_of_nodes(
        &self,
        deadline: Instant,
        selector: &Selector,
    ) -> Result<Vec<NodeLatest>, QueryError> {
        let mut found = Vec::new();
        if self.nodes.includes_own() {
            let own = self.own_selector(selector);
            self.own.latest(deadline, &own, &mut |series, latest| {
                if let Some(shown) = own_with_host(series, &self.nodes.index) {
                    found.push(NodeLatest {
                        host: self.nodes.index.own.to_string(),
                        stored: series.clone(),
                        shown: Arc::new(shown),
                        latest,
                    });
                }
            })?;
        }
        let limits = FanOutLimits {
            deadline,
            bytes_max: self.nodes.node_responses_bytes_max(),
            cancellation: Default::default(),
        };
        let mut decoder = SelectedDecoder::new(limits.bytes_max, limits.time());
        for selected in self.ask(Content::Latest, selector, None, &limits)? {
            let Some((stored, shown)) = shown_series(&mut decoder, &selected, selector)? else {
                continue;
            };
            let Some(latest) = decoder.latest(&selected)? else {
                continue;
            };
            found.push(NodeLatest {
                host: selected.host,
                stored: Arc::new(stored),
                shown,
                latest,
            });
        }
        Ok(found)
    }

    /// Returns a selector over the own series, which it sees with the label `host`.
    fn own_selector(&self, selector: &Selector) -> Selector {
        let accepts = {
            let (selector, nodes) = (selector.clone(), self.nodes.clone());
            move |stored: &Series| {
                let shown = own_with_host(stored, &nodes.index);
                shown.is_some_and(|shown| selector.matches_shown(stored, &shown))
            }
        };
        let names = selector.exact_names();
        match names.filter(|_| !selector.includes_foreign_names()) {
            Some(names) => {
                let named = |name: &str| Selector::with_predicate(name, accepts.clone());
                Selector::any(names.into_iter().map(named).collect())
            }
            None => Selector::filter(accepts),
        }
        .including_remote()
    }

    /// Asks the nodes below for the series of a selector.
    fn ask(
        &self,
        content: Content,
        selector: &Selector,
        query: Option<&RangeQuery>,
        limits: &FanOutLimits,
    ) -> Result<Vec<SelectedSeries>, QueryError> {
        let patterns = selector.covering_patterns(&ADDED_LABELS);
        if patterns
            .as_ref()
            .is_some_and(|patterns| patterns.is_empty())
        {
            return Ok(Vec::new());
        }
        let patterns = patterns.filter(|patterns| patterns.len() <= MATCHERS_MAX);
        let step = query.and_then(|query| query.step);
        let aggregation = step.and_then(|step| step.aggregation);
        let request = SelectRequest {
            content: content as i32,
            start_ms: query.map_or(0, |query| query.start),
            end_ms: query.map_or(Millis::MAX, |query| query.end),
            step_ms: step.map_or(0, |step| step.millis),
            aggregation: aggregation.map_or_else(String::new, |fold| fold.as_str().to_owned()),
            selectors: patterns.into_iter().flatten().collect(),
            ..SelectRequest::default()
        };
        let accepts = |host: &str| selector.may_match_label(HOST, host);
        self.nodes.select(request, &accepts, limits)
    }

    /// Returns the query over the own series; `None` if this agent is not chosen.
    fn own_query(&self, query: &RangeQuery) -> Option<RangeQuery> {
        self.nodes.includes_own().then(|| RangeQuery {
            selector: self.own_selector(&query.selector),
            ..query.clone()
        })
    }
}

/// Decodes a series of a node; `None` if the selector does not accept it or it is malformed.
fn shown_series(
    decoder: &mut SelectedDecoder,
    selected: &SelectedSeries,
    selector: &Selector,
) -> Result<Option<ShownSeries>, QueryError> {
    let Some(stored) = decoder.series(selected)? else {
        return Ok(None);
    };
    let shown = with_host(&stored, &selected.host);
    let shown = shown.filter(|shown| selector.matches_shown(&stored, shown));
    Ok(shown.map(|shown| (stored, Arc::new(shown))))
}

fn limits_of(query: &RangeQuery) -> FanOutLimits {
    FanOutLimits {
        deadline: query.deadline,
        bytes_max: query.bytes_max,
        cancellation: query.cancellation.clone(),
    }
}

impl SampleReader for TreeSource {
    fn latest(
        &self,
        deadline: Instant,
        selector: &Selector,
        visit: &mut LatestVisitor<'_>,
    ) -> Result<(), QueryError> {
        for found in self.latest_of_nodes(deadline, selector)? {
            visit(&found.shown, found.latest);
        }
        Ok(())
    }

    fn series(
        &self,
        query: &RangeQuery,
        visit: &mut dyn FnMut(&Arc<Series>),
    ) -> Result<(), QueryError> {
        let mut found: Vec<Arc<Series>> = Vec::new();
        if let Some(own) = self.own_query(query) {
            self.own.series(&own, &mut |series| {
                found.extend(own_with_host(series, &self.nodes.index).map(Arc::new));
            })?;
        }
        let limits = limits_of(query);
        let mut decoder = SelectedDecoder::new(query.bytes_max, limits.time());
        for selected in self.ask(Content::Series, &query.selector, Some(query), &limits)? {
            let shown = shown_series(&mut decoder, &selected, &query.selector)?;
            found.extend(shown.map(|(_, shown)| shown));
        }
        found.sort_unstable();
        let mut limit = limits.time();
        for series in &found {
            limit.spend_on(series)?;
            visit(series);
        }
        Ok(())
    }

    fn query_range(
        &self,
        query: &RangeQuery,
        visit: &mut SeriesVisitor<'_>,
    ) -> Result<(), QueryError> {
        if query.start > query.end {
            return Err(QueryError::Reversed);
        }
        if query.step.is_some_and(|step| step.millis < 1) {
            return Err(QueryError::Step);
        }
        let mut found: Vec<PointsOfSeries> = Vec::new();
        if let Some(own) = self.own_query(query) {
            self.own.query_range(&own, &mut |series, points| {
                let shown = own_with_host(series, &self.nodes.index);
                found.extend(shown.map(|shown| (Arc::new(shown), points.to_vec())));
            })?;
        }
        let own_bytes: usize = found
            .iter()
            .map(|(_, points)| size_of_val(&points[..]))
            .sum();
        let limits = limits_of(query);
        let bytes_left = query.bytes_max.saturating_sub(own_bytes);
        let mut decoder = SelectedDecoder::new(bytes_left, limits.time());
        for selected in self.ask(Content::Samples, &query.selector, Some(query), &limits)? {
            let Some((_, shown)) = shown_series(&mut decoder, &selected, &query.selector)? else {
                continue;
            };
            if let Some((times, values)) = decoder.columns(&selected)? {
                found.push((shown, times.iter().copied().zip(values).collect()));
            }
        }
        found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut limit = limits.time();
        for (series, points) in &found {
            limit.spend(TimeLimit::STEP + size_of_val(&points[..]))?;
            visit(series, points);
        }
        Ok(())
    }

    fn time_bounds(&self) -> (Option<Millis>, Option<Millis>) {
        (None, None)
    }

    fn is_distributed(&self) -> bool {
        true
    }
}
