//! Reads the series of the node's store.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::prometheus_names::{label_key, metric_name};
use pegel_metric::{Family, Input, MetricKind, Millis, Selector, Series};
use pegel_store::{RangeQuery, SeriesChoice, ShownValues, Store, TickCompletion};

use super::error::PromqlError;
use super::interval_series::{IntervalSource, interval_series, matching_intervals};
use super::labels::{LabelSet, NAME};
use super::mark_series::{mark_family, mark_series};
use super::matcher::{LabelMatcher, MatchKind};
use super::series_view::{NodeLabels, SeriesView};
use super::source::{SampleColumns, SelectedSamples, Selection, SeriesSampleVisitor, SeriesSource};
use crate::annotations::Annotations;
use crate::history::{
    HistoryAccess, HistoryReader, HistoryRecord, HistoryRequest, JoinRule, JoinedHistory,
    StoreWithHistory, StoredColumn,
};
use crate::sample_source::SampleReader;

/// Receives the labels of a series, and its family.
pub type SeriesLabelVisitor<'a> = dyn FnMut(LabelSet, &Family) -> Result<(), PromqlError> + 'a;

/// The series of a store, under the names and labels of [`SeriesView`].
#[derive(Debug, Clone)]
pub struct StoreSource {
    store: Store,
    node: Arc<NodeLabels>,
    ticks: TickCompletion,
    annotations: Option<Arc<Annotations>>,
    intervals: Option<Arc<dyn IntervalSource>>,
    history: Option<HistoryAccess>,
}

/// Receives a series, its labels and its samples. Series that are made at each query, such as those
/// of marks, are not stored.
type StoredSampleVisitor<'a> =
    dyn FnMut(Option<&Series>, LabelSet, SelectedSamples<'_>) -> Result<(), PromqlError> + 'a;

/// The family of series that only the history has: nothing but their labels is known.
static UNKNOWN_FAMILY: Family = Family::new("", MetricKind::Unknown, "", 1, "");

impl StoreSource {
    /// Returns the marks, which belong to no input.
    fn marks_for(&self, selection: &Selection<'_>) -> Option<&Arc<Annotations>> {
        let is_of_any_input = selection.input.is_none();
        self.annotations.as_ref().filter(|_| is_of_any_input)
    }

    /// Creates a source. Programs' series are sampled every `interval`.
    pub fn new(store: Store, node: NodeLabels, interval: Duration) -> StoreSource {
        let interval = Millis::try_from(interval.as_millis()).unwrap_or(Millis::MAX);
        StoreSource {
            store,
            node: Arc::new(node),
            ticks: TickCompletion { interval },
            annotations: None,
            intervals: None,
            history: None,
        }
    }

    /// Adds the samples of an engine that keeps them for longer.
    pub fn with_history(mut self, reader: Arc<dyn HistoryReader>) -> StoreSource {
        self.history = Some(HistoryAccess::new(reader));
        self
    }

    /// Returns whether queries may read samples that the store does not have.
    pub fn has_history(&self) -> bool {
        self.history.is_some()
    }

    /// Returns this source for one request, whose use of the history is recorded.
    pub fn recording(mut self, record: Arc<HistoryRecord>) -> StoreSource {
        let history = self.history.take();
        self.history = history.map(|history| history.recording(record));
        self
    }

    /// Returns the series of the store alone.
    pub fn without_history(mut self) -> StoreSource {
        self.history = None;
        self
    }

    /// Returns the same series under their stored names.
    pub fn stored_series(&self) -> Arc<dyn SampleReader> {
        match &self.history {
            None => Arc::new(self.store.clone()),
            Some(history) => Arc::new(StoreWithHistory::new(
                self.store.clone(),
                self.node.clone(),
                history.clone(),
            )),
        }
    }

    /// Adds the series of marks and phases (`mark_series.rs`).
    pub fn with_annotations(mut self, annotations: Arc<Annotations>) -> StoreSource {
        self.annotations = Some(annotations);
        self
    }

    /// Adds series that are 1 during intervals.
    pub fn with_intervals(mut self, intervals: Arc<dyn IntervalSource>) -> StoreSource {
        self.intervals = Some(intervals);
        self
    }

    /// Returns the intervals, which belong to no input.
    fn intervals_for(&self, selection: &Selection<'_>) -> Option<&dyn IntervalSource> {
        let intervals = self.intervals.as_deref();
        intervals.filter(|_| selection.input.is_none())
    }

    /// Returns the labels of this node's series.
    pub fn node_labels(&self) -> &NodeLabels {
        &self.node
    }

    /// Returns the interval at which series of programs are sampled.
    pub fn tick_interval(&self) -> Millis {
        self.ticks.interval
    }

    /// Visits the labels and the family of every series that matches and has samples in the range,
    /// without reading the samples. Without matchers, all series match. An error of `visit` is
    /// returned.
    pub fn series(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesLabelVisitor<'_>,
    ) -> Result<(), PromqlError> {
        let old = match self.history_for(selection) {
            Some(history) => with_request(&self.node, selection, |request| {
                history.list(&self.store, request)
            }),
            None => Vec::new(),
        };
        if old.is_empty() {
            return self.series_of_store(selection, visit);
        }
        let mut old: HashSet<LabelSet> = old.into_iter().collect();
        self.series_of_store(selection, &mut |labels, family| {
            old.remove(&labels);
            visit(labels, family)
        })?;
        for labels in old {
            if self.shown_values(&labels) != ShownValues::None {
                visit(labels, &UNKNOWN_FAMILY)?;
            }
        }
        Ok(())
    }

    fn series_of_store(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesLabelVisitor<'_>,
    ) -> Result<(), PromqlError> {
        let view = SeriesView::new(&self.node, selection.matchers);
        let query = range_query(selection, selector(&view, selection));
        let mut result = Ok(());
        self.store.series(&query, &mut |series| {
            if result.is_ok() {
                result = visit(view.labels(series), series.family());
            }
        })?;
        result?;
        if let Some(intervals) = self.intervals_for(selection) {
            for (labels, _) in matching_intervals(intervals, &self.node, selection) {
                visit(labels, intervals.family())?;
            }
        }
        let Some(annotations) = self.marks_for(selection) else {
            return Ok(());
        };
        for (labels, kind, _) in mark_series(annotations, &self.node, selection)? {
            visit(labels, mark_family(kind))?;
        }
        Ok(())
    }
}

impl StoreSource {
    /// Returns the history if the range begins before the store. A selection by input never
    /// reads it: series of the engine have no input.
    fn history_for(&self, selection: &Selection<'_>) -> Option<&HistoryAccess> {
        let history = self.history.as_ref()?;
        let is_needed = || history.is_needed(&self.store, selection.start);
        (selection.input.is_none() && is_needed()).then_some(history)
    }

    /// Returns what filters of readers leave of a series that only the history has.
    fn shown_values(&self, labels: &LabelSet) -> ShownValues {
        let NodeLabels { job, instance } = &*self.node;
        let is_added = |key: &str, value: &str| match key {
            NAME => true,
            "job" => value == job,
            "instance" => value == instance,
            _ => false,
        };
        let own = labels.iter().filter(|(key, value)| !is_added(key, value));
        let own: Vec<(&str, &str)> = own.collect();
        let family = Arc::new(UNKNOWN_FAMILY.clone());
        // No filter selects labels that exceed the limits of a series.
        Series::named(family, labels.metric_name(), &own)
            .map_or(ShownValues::All, |series| self.store.shown_values(&series))
    }

    /// Visits the series of the store, joined with those of the history.
    fn select_joined(
        &self,
        selection: &Selection<'_>,
        mut history: JoinedHistory,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        let prometheus_view = SeriesView::new(&self.node, &[]);
        let view = SeriesView::new(&self.node, selection.matchers);
        self.select_stored(selection, &mut |series, labels, samples| {
            let Some(series) = series else {
                // Computed for each query: the agent is the only source, also if the engine has a
                // copy.
                history.take(&labels);
                return visit(labels, samples);
            };
            let rule = JoinRule {
                border: history.complete.of(series),
                hidden_before: self.store.hidden_before(series.family().input),
                shown: self.store.shown_values(series),
            };
            let stored = StoredColumn {
                times: samples.times,
                values: samples.values,
            };
            let joined = match view.is_stored() {
                true => history.join(&prometheus_view.labels(series), rule, stored),
                false => history.join(&labels, rule, stored),
            };
            match joined {
                None => visit(labels, samples),
                Some(joined) if joined.is_empty() => Ok(()),
                Some(joined) => visit(
                    labels,
                    SelectedSamples {
                        times: &joined.times.into(),
                        values: &joined.values,
                        is_of_rule: samples.is_of_rule,
                    },
                ),
            }
        })?;
        for old in history.take_rest() {
            let shown = self.shown_values(&old.labels);
            let joined = history.alone(&old, shown);
            if joined.is_empty() || shown == ShownValues::None {
                continue;
            }
            let labels = match view_name(selection.matchers) {
                Some(name) if view.is_stored() => old.labels.with(NAME, name),
                _ => old.labels,
            };
            let samples = SelectedSamples {
                times: &joined.times.into(),
                values: &joined.values,
                is_of_rule: false,
            };
            visit(labels, samples)?;
        }
        Ok(())
    }
}

/// Calls `read` with a request for the series that a selection accepts, under the names that
/// Prometheus accepts.
fn with_request<T>(
    node: &NodeLabels,
    selection: &Selection<'_>,
    read: impl FnOnce(&HistoryRequest<'_>) -> T,
) -> T {
    let matchers = selection.matchers.iter().map(|matcher| {
        let is_name = matcher.name == NAME && matches!(matcher.kind, MatchKind::Equal);
        LabelMatcher {
            name: match &*matcher.name {
                NAME => NAME.to_owned(),
                key => label_key(key).into_owned(),
            },
            value: match is_name {
                true => metric_name(&matcher.value).into_owned(),
                false => matcher.value.clone(),
            },
            kind: matcher.kind.clone(),
        }
    });
    read(&HistoryRequest {
        matchers: &matchers.collect::<Vec<_>>(),
        node,
        start: selection.start,
        end: selection.end,
        now: 0,
        bytes_max: selection.bytes_max,
        deadline: selection.deadline,
        cancellation: &selection.cancellation,
    })
}

/// Leaves out series that have the same labels as another one in this view: names differ only in
/// characters that Prometheus does not accept, or one of them is of remote write. As in `/metrics`,
/// the series of the lower rank remains, then the one whose name needs no change.
fn leave_out_duplicates(view: &SeriesView, matching: &mut Vec<Arc<Series>>) {
    let remote = matching.iter().filter(|series| series.is_remote()).count();
    let is_mixed = remote > 0 && remote < matching.len();
    if !is_mixed && !matching.iter().any(|series| view.changes_names(series)) {
        return;
    }
    let mut shown: HashMap<LabelSet, Arc<Series>> = HashMap::new();
    for series in matching.iter() {
        match shown.entry(view.labels(series)) {
            Entry::Vacant(free) => drop(free.insert(series.clone())),
            Entry::Occupied(mut other) => {
                if view.rank(series) < view.rank(other.get()) {
                    other.insert(series.clone());
                }
            }
        }
    }
    let shown: HashSet<Arc<Series>> = shown.into_values().collect();
    matching.retain(|series| shown.contains(series));
}

impl SeriesSource for StoreSource {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        let history = self.history_for(selection).and_then(|history| {
            with_request(&self.node, selection, |request| {
                history.join(&self.store, request)
            })
        });
        match history {
            Some(history) => self.select_joined(selection, history, visit),
            None => self.select_stored(selection, &mut |_, labels, samples| visit(labels, samples)),
        }
    }
}

impl StoreSource {
    /// Visits the series of the store, and those that are made at each query.
    fn select_stored(
        &self,
        selection: &Selection<'_>,
        visit: &mut StoredSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        let view = SeriesView::new(&self.node, selection.matchers);
        let query = RangeQuery {
            ticks: Some(self.ticks),
            choice: Some(SeriesChoice({
                let view = view.clone();
                Arc::new(move |matching| leave_out_duplicates(&view, matching))
            })),
            ..range_query(selection, selector(&view, selection))
        };
        // The store's scan cannot be stopped: after the first error the rest is skipped.
        let mut result = Ok(());
        self.store.query_columns(&query, &mut |series, column| {
            if result.is_ok() {
                let samples = SelectedSamples {
                    times: column.times,
                    values: column.values,
                    is_of_rule: series.family().input == Input::Rules,
                };
                result = visit(Some(series), view.labels(series), samples);
            }
        })?;
        result?;
        if let Some(intervals) = self.intervals_for(selection) {
            for (labels, samples) in interval_series(intervals, &self.node, selection)? {
                visit(None, labels, SampleColumns::new(&samples).samples())?;
            }
        }
        let Some(annotations) = self.marks_for(selection) else {
            return Ok(());
        };
        for (labels, _, samples) in mark_series(annotations, &self.node, selection)? {
            visit(None, labels, SampleColumns::new(&samples).samples())?;
        }
        Ok(())
    }
}

fn range_query(selection: &Selection<'_>, selector: Selector) -> RangeQuery {
    RangeQuery {
        bytes_max: selection.bytes_max,
        deadline: selection.deadline,
        cancellation: selection.cancellation.clone(),
        ..RangeQuery::new(
            selector.including_remote(),
            selection.start,
            selection.end,
            None,
        )
    }
}

/// Returns a selector for the series that a view shows and a selection accepts.
fn selector(view: &SeriesView, selection: &Selection<'_>) -> Selector {
    let name = view_name(selection.matchers);
    let mut rest = selection.matchers.to_vec();
    // The selector itself compares the name.
    if let Some(name) = name {
        let first = rest.iter().position(|matcher| is_name(matcher, name));
        first.map(|at| rest.remove(at));
    }
    let (view, input) = (view.clone(), selection.input);
    let accepts = {
        let view = view.clone();
        move |series: &Series| {
            let is_of_input = input.is_none_or(|input| series.family().input == input);
            is_of_input && view.accepts(series, &rest)
        }
    };
    match name {
        Some(name) if view.is_stored() => Selector::with_predicate(name, accepts),
        _ => selector_of(name, accepts),
    }
}

fn selector_of(
    name: Option<&str>,
    test: impl Fn(&Series) -> bool + Send + Sync + 'static,
) -> Selector {
    match name {
        Some(name) => Selector::prometheus_name(name, test),
        None => Selector::filter(test),
    }
}

fn is_name(matcher: &LabelMatcher, name: &str) -> bool {
    matcher.name == NAME && matches!(matcher.kind, MatchKind::Equal) && matcher.value == name
}

/// Returns the name that series must have, if the matchers state one.
fn view_name(matchers: &[LabelMatcher]) -> Option<&str> {
    let mut names = matchers
        .iter()
        .filter(|matcher| matcher.name == NAME && matches!(matcher.kind, MatchKind::Equal));
    names.next().map(|matcher| matcher.value.as_str())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use pegel_metric::{Input, MetricKind, Point};
    use pegel_store::{QueryCancellation, StoreOptions};
    use pegel_testkit::{FakeClock, TempDir};

    use super::*;

    const NOW: Millis = 1_700_000_000_000;

    fn store(dir: &TempDir, texts: &[(Input, &str)]) -> StoreSource {
        let mut options = StoreOptions::new(dir.join("store"));
        options.clock = Arc::new(FakeClock::new(NOW));
        let store = Store::open(options).expect("opens");
        for (input, text) in texts {
            let family = |name: &str| {
                Arc::new(Family {
                    name: name.to_owned().into(),
                    input: *input,
                    ..Family::new("", MetricKind::Gauge, "", 1, "")
                })
            };
            let series = Arc::new(Series::parse(text, family).expect("valid"));
            let point = |time: Millis| Point {
                series: series.clone(),
                time: NOW - time,
                value: time as f64,
            };
            let points = vec![point(2_000), point(1_000)];
            store.push(Input::Push, points).expect("accepted");
        }
        let node = NodeLabels {
            job: "node".into(),
            instance: "n1:1337".into(),
        };
        StoreSource::new(store, node, Duration::from_millis(500))
    }

    /// Selects the last sample of each series.
    fn selection(matchers: &[LabelMatcher]) -> Selection<'_> {
        Selection {
            matchers,
            input: None,
            start: NOW - 1_500,
            end: NOW,
            bytes_max: 1 << 20,
            deadline: Instant::now() + Duration::from_secs(60),
            cancellation: QueryCancellation::default(),
        }
    }

    #[test]
    fn series_of_one_input_are_selected() {
        let dir = TempDir::new();
        let source = store(
            &dir,
            &[
                (Input::Rules, "ALERTS_FOR_STATE{alertname=\"A\"}"),
                (Input::Statsd, "ALERTS_FOR_STATE{alertname=\"B\"}"),
                (Input::RemoteWrite, "ALERTS_FOR_STATE{alertname=\"C\"}"),
            ],
        );
        let all = select(&source, "ALERTS_FOR_STATE");
        assert_eq!(all.len(), 3, "{all:?}");
        let of_rules = select_of(&source, "ALERTS_FOR_STATE", Some(Input::Rules));
        assert_eq!(of_rules, ["{\"ALERTS_FOR_STATE\", alertname=\"A\"}"]);
    }

    /// Selects series by a selector; returns their labels without `job` and `instance` of the node.
    fn select(source: &StoreSource, selector: &str) -> Vec<String> {
        select_of(source, selector, None)
    }

    /// Selects series of one input.
    fn select_of(source: &StoreSource, selector: &str, input: Option<Input>) -> Vec<String> {
        let matchers = super::super::parse_selector(selector).expect("valid");
        let selection = Selection {
            input,
            ..selection(&matchers)
        };
        let mut found = Vec::new();
        source
            .select(&selection, &mut |labels, samples| {
                assert_eq!(samples.times[..], [NOW - 1_000]);
                assert_eq!(samples.values, [1_000.0]);
                found.push(labels.to_string());
                Ok(())
            })
            .expect("reads");
        found
            .iter()
            .map(|text| {
                let text = text.replace(", instance=\"n1:1337\", job=\"node\"", "");
                text.replace("{__name__=", "{")
            })
            .collect()
    }

    const TEXTS: [(Input, &str); 4] = [
        (Input::Push, "a.b{l=\"1\"}"),
        (Input::Push, "a.b{l=\"2\"}"),
        (Input::Push, "c{l=\"1\"}"),
        (Input::Push, "d"),
    ];

    #[test]
    fn matchers_apply_to_names_and_labels() {
        let dir = TempDir::new();
        let source = store(&dir, &TEXTS);
        let one = "{\"a_b\", l=\"1\"}";
        let two = "{\"a_b\", l=\"2\"}";
        let three = "{\"c\", l=\"1\"}";
        assert_eq!(select(&source, "a_b"), [one, two]);
        assert_eq!(select(&source, "a_b{l!=\"1\"}"), [two]);
        assert_eq!(select(&source, "{l=\"1\"}"), [one, three]);
        assert_eq!(
            select(&source, "{__name__=~\"a.*|d\",l!~\"2\"}"),
            [one, "{\"d\"}"]
        );
        assert_eq!(select(&source, "x"), [""; 0]);
    }

    #[test]
    fn quoted_names_are_those_of_the_store() {
        let dir = TempDir::new();
        let mut texts = TEXTS.to_vec();
        texts.push((Input::Push, "plain{a.b=\"1\"}"));
        let source = store(&dir, &texts);
        // The same in memory and in blocks.
        for _ in 0..2 {
            let stored = select(&source, "{\"a.b\",l=\"1\"}");
            assert_eq!(stored, ["{\"a.b\", l=\"1\"}"]);
            assert_eq!(select(&source, "{\"a-b\"}"), [""; 0]);
            let by_either_key = ["{\"plain\", a_b=\"1\"}"];
            assert_eq!(select(&source, "plain{a_b=\"1\"}"), by_either_key);
            assert_eq!(select(&source, "plain{\"a.b\"=\"1\"}"), by_either_key);
            assert_eq!(select(&source, "a_b").len(), 2);
            source.store.flush_to_blocks();
        }
    }

    #[test]
    fn series_of_the_node_have_its_labels() {
        let dir = TempDir::new();
        let source = store(
            &dir,
            &[
                (Input::Collect, "load"),
                (Input::Push, "load{job=\"7\"}"),
                (Input::Push, "load{instance=\"other\",job=\"x\"}"),
            ],
        );
        let own = "{\"load\", instance=\"other\", job=\"x\"}";
        let mixed = "{\"load\", instance=\"n1:1337\", job=\"7\"}";
        assert_eq!(select(&source, "load"), ["{\"load\"}", own, mixed]);
        assert_eq!(select(&source, "load{job=\"node\"}"), ["{\"load\"}"]);
        assert_eq!(
            select(&source, "load{instance=~\"n1:.*\"}"),
            ["{\"load\"}", mixed]
        );
        assert_eq!(select(&source, "load{job!=\"node\"}"), [own, mixed]);
        assert_eq!(select(&source, "{job=\"\",__name__!=\"\"}"), [""; 0]);
    }

    #[test]
    fn of_series_with_the_same_labels_the_most_trusted_remains() {
        let dir = TempDir::new();
        let source = store(
            &dir,
            &[
                (Input::Statsd, "app_depth"),
                (Input::Lane, "app.depth"),
                (Input::Push, "queue.depth"),
                (Input::Push, "queue_depth"),
                (Input::Push, "queue-depth"),
            ],
        );
        let view = SeriesView::new(&source.node, &[]);
        let shown = |selector: &str| {
            let matchers = super::super::parse_selector(selector).expect("valid");
            let mut matching = Vec::new();
            let query =
                RangeQuery::new(super::selector(&view, &selection(&matchers)), 0, NOW, None);
            let mut add = |series: &Arc<Series>| matching.push(series.clone());
            source.store.series(&query, &mut add).expect("reads");
            leave_out_duplicates(&view, &mut matching);
            let texts = matching.iter().map(|one| one.text().to_owned());
            texts.collect::<Vec<_>>()
        };
        assert_eq!(select(&source, "app_depth"), ["{\"app_depth\"}"]);
        assert_eq!(
            shown("app_depth"),
            ["app.depth"],
            "statsd does not hide a lane"
        );
        assert_eq!(shown("queue_depth"), ["queue_depth"]);
        assert_eq!(select(&source, "queue_depth").len(), 1);
        assert_eq!(shown("{__name__=~\".+\"}").len(), 2);
        let stored = select(&source, "{\"queue.depth\"}");
        assert_eq!(stored, ["{\"queue.depth\"}"]);
    }
}
