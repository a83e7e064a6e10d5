//! The series that PromQL selects from: those of this agent or, on a parent, of all nodes.

use pegel_metric::{Input, Series};
use pegel_query::promql::{
    LabelMatcher, LabelSet, MatchKind, PromqlError, PromqlErrorKind, PushedAggregation,
    PushedSeries, SelectedSamples, Selection, SeriesLabelVisitor, SeriesSampleVisitor,
    SeriesSource, StoreSource,
};
use pegel_store::QueryError;
use pegel_tree_protocol::{
    SelectRequest, SelectedSeries, SeriesMatcher, select_request::Content, series_matcher,
};

use super::chosen_nodes::{ChosenNodes, FanOutLimits};
use super::host_label::{ADDED_LABELS, HOST, own_labels_with_host, with_host};
use super::selected_series::SelectedDecoder;

const NAME: &str = "__name__";

#[derive(Debug)]
pub(crate) enum PromqlSource {
    Own(StoreSource),
    Tree(PromqlTree),
}

/// The union of the own series and those of the chosen nodes.
#[derive(Debug)]
pub(crate) struct PromqlTree {
    pub(super) own: StoreSource,
    pub(super) nodes: ChosenNodes,
}

impl PromqlSource {
    pub(crate) fn of_tree(own: StoreSource, nodes: ChosenNodes) -> PromqlSource {
        PromqlSource::Tree(PromqlTree { own, nodes })
    }

    /// Visits the labels and the family of every series that matches and has samples in the range.
    pub(crate) fn series(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesLabelVisitor<'_>,
    ) -> Result<(), PromqlError> {
        match self {
            PromqlSource::Own(own) => own.series(selection, visit),
            PromqlSource::Tree(tree) => tree.series(selection, visit),
        }
    }
}

impl SeriesSource for PromqlSource {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        match self {
            PromqlSource::Own(own) => own.select(selection, visit),
            PromqlSource::Tree(tree) => tree.select(selection, visit),
        }
    }

    fn takes_aggregations(&self) -> bool {
        matches!(self, PromqlSource::Tree(_))
    }

    fn aggregate(
        &self,
        pushed: &PushedAggregation<'_>,
    ) -> Option<Result<Vec<PushedSeries>, PromqlError>> {
        match self {
            PromqlSource::Own(_) => None,
            PromqlSource::Tree(tree) => tree.aggregate(pushed),
        }
    }
}

/// The matchers of a selection: those that every node can apply, and those on labels that the
/// parent adds.
struct SplitMatchers {
    of_nodes: Vec<LabelMatcher>,
    of_parent: Vec<LabelMatcher>,
}

impl SplitMatchers {
    fn new(matchers: &[LabelMatcher]) -> SplitMatchers {
        let is_added = |matcher: &LabelMatcher| ADDED_LABELS.contains(&matcher.name.as_str());
        let (of_parent, of_nodes) = matchers.iter().cloned().partition(is_added);
        SplitMatchers {
            of_nodes,
            of_parent,
        }
    }

    fn accepts_host(&self, host: &str) -> bool {
        let mut on_host = self.of_parent.iter().filter(|matcher| matcher.name == HOST);
        on_host.all(|matcher| matcher.accepts(host))
    }

    fn accepts(&self, labels: &LabelSet) -> bool {
        self.of_parent.iter().all(|matcher| matcher.matches(labels))
    }

    /// Like [`accepts`](Self::accepts), for a series of a node: only those of nodes that
    /// `accepts_host` accepts are received.
    fn accepts_received(&self, labels: &LabelSet) -> bool {
        let mut others = self.of_parent.iter().filter(|matcher| matcher.name != HOST);
        others.all(|matcher| matcher.matches(labels))
    }

    /// Returns a series of a node with the labels that PromQL shows. `None` if it is malformed or
    /// does not match.
    fn shown(
        &self,
        decoder: &mut SelectedDecoder,
        selected: &SelectedSeries,
    ) -> Result<Option<(LabelSet, Series)>, PromqlError> {
        let Some(series) = decoder.series(selected).map_err(promql_error)? else {
            return Ok(None);
        };
        let labels = shown_labels(&series, &selected.host);
        let labels = labels.filter(|labels| self.accepts_received(labels));
        Ok(labels.map(|labels| (labels, series)))
    }

    fn on_wire(&self) -> Vec<SeriesMatcher> {
        let matcher = |matcher: &LabelMatcher| SeriesMatcher {
            kind: match matcher.kind {
                MatchKind::Equal => series_matcher::Kind::Equal,
                MatchKind::NotEqual => series_matcher::Kind::NotEqual,
                MatchKind::Regex(_) => series_matcher::Kind::Regex,
                MatchKind::NotRegex(_) => series_matcher::Kind::NotRegex,
            } as i32,
            label: matcher.name.clone(),
            value: matcher.value.clone(),
        };
        self.of_nodes.iter().map(matcher).collect()
    }
}

impl PromqlTree {
    /// Returns the selection of this agent's own series, if they are read.
    fn own_selection<'a>(
        &self,
        selection: &Selection<'a>,
        matchers: &'a SplitMatchers,
    ) -> Option<Selection<'a>> {
        self.nodes.includes_own().then(|| Selection {
            matchers: &matchers.of_nodes,
            cancellation: selection.cancellation.clone(),
            ..*selection
        })
    }

    fn series(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesLabelVisitor<'_>,
    ) -> Result<(), PromqlError> {
        let matchers = SplitMatchers::new(selection.matchers);
        if let Some(own) = self.own_selection(selection, &matchers) {
            self.own.series(&own, &mut |labels, family| {
                let is_of_rule = family.input == Input::Rules;
                let labels = own_labels_with_host(labels, is_of_rule, &self.nodes.index);
                match matchers.accepts(&labels) {
                    true => visit(labels, family),
                    false => Ok(()),
                }
            })?;
        }
        let limits = limits_of(selection);
        let mut decoder = SelectedDecoder::new(selection.bytes_max, limits.time());
        for selected in self.ask(Content::Series, selection, &matchers, &limits)? {
            if let Some((labels, series)) = matchers.shown(&mut decoder, &selected)? {
                visit(labels, series.family())?;
            }
        }
        Ok(())
    }

    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        let matchers = SplitMatchers::new(selection.matchers);
        if let Some(own) = self.own_selection(selection, &matchers) {
            self.own.select(&own, &mut |labels, samples| {
                let is_of_rule = samples.is_of_rule;
                let labels = own_labels_with_host(labels, is_of_rule, &self.nodes.index);
                match matchers.accepts(&labels) {
                    true => visit(labels, samples),
                    false => Ok(()),
                }
            })?;
        }
        let limits = limits_of(selection);
        let mut decoder = SelectedDecoder::new(selection.bytes_max, limits.time());
        for selected in self.ask(Content::Samples, selection, &matchers, &limits)? {
            let Some((labels, _)) = matchers.shown(&mut decoder, &selected)? else {
                continue;
            };
            if let Some((times, values)) = decoder.columns(&selected).map_err(promql_error)? {
                let samples = SelectedSamples {
                    times: &times,
                    values: &values,
                    is_of_rule: false,
                };
                visit(labels, samples)?;
            }
        }
        Ok(())
    }

    fn ask(
        &self,
        content: Content,
        selection: &Selection<'_>,
        matchers: &SplitMatchers,
        limits: &FanOutLimits,
    ) -> Result<Vec<SelectedSeries>, PromqlError> {
        // Only the alerts of an earlier agent are selected by input.
        if selection.input.is_some() {
            return Ok(Vec::new());
        }
        let request = SelectRequest {
            content: content as i32,
            matchers: matchers.on_wire(),
            start_ms: selection.start,
            end_ms: selection.end,
            completes_ticks: true,
            ..SelectRequest::default()
        };
        let accepts = |host: &str| matchers.accepts_host(host);
        let found = self.nodes.select(request, &accepts, limits);
        found.map_err(promql_error)
    }
}

fn limits_of(selection: &Selection<'_>) -> FanOutLimits {
    FanOutLimits {
        deadline: selection.deadline,
        bytes_max: selection.bytes_max,
        cancellation: selection.cancellation.clone(),
    }
}

/// Returns the labels of a series of a node, with `host`.
fn shown_labels(series: &Series, host: &str) -> Option<LabelSet> {
    let shown = with_host(series, host)?;
    let name = std::iter::once((NAME, shown.name().into()));
    Some(LabelSet::new(name.chain(shown.labels())))
}

/// Converts an error of a fan-out. Too many samples are an error of their own (413): those of many
/// nodes exceed the memory of a query more easily than those of one.
pub(super) fn promql_error(error: QueryError) -> PromqlError {
    match error {
        QueryError::TooLarge(_) => PromqlError::new(
            PromqlErrorKind::TooLarge,
            error
                .to_string()
                .replace("the response exceeds", "the samples of all nodes exceed"),
        ),
        error => error.into(),
    }
}
