//! The series of the store and, before its border, of the history: for OpenTSDB's queries and
//! `/api/v1/range`, which see series under their stored names.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use pegel_metric::prometheus_names::metric_name;
use pegel_metric::{Family, MetricKind, Millis, Selector, Series, is_stale};
use pegel_store::{
    QueryError, QueryStep, RangeQuery, SeriesVisitor, ShownValues, Store, TimeLimit,
    aggregate_samples, bucket_of,
};

use super::join::{JoinRule, JoinedColumn, JoinedHistory, StoredColumn};
use super::selector_matchers::covering_matchers;
use super::{HistoryAccess, HistoryRequest};
use crate::promql::{LabelSet, NodeLabels, SeriesView};
use crate::sample_source::{LatestVisitor, SampleReader};

/// Suffixes by which a counter is recognised if the store has no family for its name.
const COUNTER_SUFFIXES: [&str; 4] = ["_total", "_sum", "_count", "_bucket"];

/// A store, and the samples of an engine that are older.
#[derive(Debug, Clone)]
pub struct StoreWithHistory {
    store: Store,
    node: Arc<NodeLabels>,
    history: HistoryAccess,
}

/// The work for a series that only the history has: its labels are compared and joined.
const OLD_SERIES_WORK: usize = 4 * TimeLimit::STEP;

type StoredPoints = Vec<(Millis, f64)>;

/// A series that only the history has.
struct OldSeries {
    series: Arc<Series>,
    samples: JoinedColumn,
}

impl StoreWithHistory {
    pub(crate) fn new(
        store: Store,
        node: Arc<NodeLabels>,
        history: HistoryAccess,
    ) -> StoreWithHistory {
        StoreWithHistory {
            store,
            node,
            history,
        }
    }

    fn view(&self) -> SeriesView {
        SeriesView::new(&self.node, &[])
    }

    /// Calls `read` with a request for the series of a query.
    fn request<T>(
        &self,
        query: &RangeQuery,
        read: impl FnOnce(&HistoryRequest<'_>) -> T,
    ) -> Option<T> {
        // A selector whose names make too large an expression is answered by the store alone.
        let matchers = covering_matchers(&query.selector, &self.node);
        let matchers = matchers.inspect_err(|error| {
            tracing::warn!(%error, "cannot read the history for this selector");
        });
        let request = HistoryRequest {
            matchers: &matchers.ok()?,
            node: &self.node,
            start: query.start,
            end: query.end,
            now: 0,
            bytes_max: query.bytes_max,
            deadline: query.deadline,
            cancellation: &query.cancellation,
        };
        Some(read(&request))
    }

    /// Reads the history that a query needs; `None` if the store has the whole range.
    fn join(&self, query: &RangeQuery) -> Option<JoinedHistory> {
        self.request(query, |request| self.history.join(&self.store, request))?
    }

    /// Returns the series of the store that a query selects.
    fn stored(&self, query: &RangeQuery) -> Result<Vec<Arc<Series>>, QueryError> {
        let mut found = Vec::new();
        self.store
            .series(query, &mut |series| found.push(series.clone()))?;
        Ok(found)
    }

    /// Returns a series of this node by the labels that PromQL shows; `None` if it is of another
    /// system, or the selector or a filter leaves it out.
    fn old_series(
        &self,
        labels: &LabelSet,
        selector: &Selector,
        names: &StoredNames<'_>,
    ) -> Option<(Arc<Series>, ShownValues)> {
        if labels.get("instance") != self.node.instance {
            return None;
        }
        let name = names.stored_name(labels.metric_name());
        let is_added = |key: &str, value: &str| match key {
            "__name__" | "instance" => true,
            "job" => value == self.node.job,
            _ => false,
        };
        let own = labels.iter().filter(|(key, value)| !is_added(key, value));
        let own: Vec<(&str, &str)> = own.collect();
        let family = names.families.get(name).copied().cloned();
        let family = family.unwrap_or_else(|| Arc::new(guessed_family(name)));
        let series = Series::named(family, name, &own).ok()?;
        let shown = self.store.shown_values(&series);
        let is_selected = selector.matches(&series) && shown != ShownValues::None;
        is_selected.then(|| (Arc::new(series), shown))
    }

    /// Returns the series that only the history has, sorted by text.
    fn only_old(
        &self,
        query: &RangeQuery,
        history: &mut JoinedHistory,
        stored: &[Arc<Series>],
    ) -> Result<BTreeMap<String, OldSeries>, QueryError> {
        let mut limit = TimeLimit::of(query);
        let known = self.known_labels(stored, &mut limit)?;
        let names = StoredNames::new(&query.selector, stored);
        let unknown: Vec<LabelSet> = { history.labels() }
            .filter(|labels| !known.contains(*labels))
            .cloned()
            .collect();
        let mut old = BTreeMap::new();
        for labels in unknown {
            limit.spend(OLD_SERIES_WORK)?;
            let Some(samples) = history.take(&labels) else {
                continue;
            };
            let Some((series, shown)) = self.old_series(&labels, &query.selector, &names) else {
                continue;
            };
            let samples = history.alone(&samples, shown);
            old.insert(series.text().to_owned(), OldSeries { series, samples });
        }
        Ok(old)
    }

    /// Returns the labels that PromQL shows of series of the store.
    fn known_labels(
        &self,
        stored: &[Arc<Series>],
        limit: &mut TimeLimit,
    ) -> Result<HashSet<LabelSet>, QueryError> {
        let view = self.view();
        let labels = stored.iter().map(|series| {
            limit.spend_on(series)?;
            Ok(view.labels(series))
        });
        labels.collect()
    }

    /// Joins the samples of a series of the store, which are stored without steps.
    fn joined_points(
        &self,
        history: &mut JoinedHistory,
        series: &Series,
        points: &[(Millis, f64)],
    ) -> Option<JoinedColumn> {
        let labels = self.view().labels(series);
        let rule = JoinRule {
            border: history.complete.of(series),
            hidden_before: self.store.hidden_before(series.family().input),
            shown: self.store.shown_values(series),
        };
        let (times, values): (Vec<Millis>, Vec<f64>) = points.iter().copied().unzip();
        let stored = StoredColumn {
            times: &times,
            values: &values,
        };
        history.join(&labels, rule, stored)
    }

    /// Returns the points of the first part of a query with a step: everything before `cut`, where
    /// a bucket begins from which on the store is complete.
    fn stepped_head(
        &self,
        query: &RangeQuery,
        step: QueryStep,
        (history, cut): (&mut JoinedHistory, Millis),
        (stored, old): (&[Arc<Series>], BTreeMap<String, OldSeries>),
    ) -> Result<BTreeMap<String, (Arc<Series>, StoredPoints)>, QueryError> {
        let head = RangeQuery {
            step: None,
            end: query.end.min(cut.saturating_sub(1)),
            ..query.clone()
        };
        let mut found = BTreeMap::new();
        let mut add = |series: &Arc<Series>, samples: &mut dyn Iterator<Item = (Millis, f64)>| {
            let points = aggregate_samples(samples, step, series.family().kind);
            if !points.is_empty() {
                found.insert(series.text().to_owned(), (series.clone(), points));
            }
        };
        self.store
            .query_range(&head, &mut |series, points| match self
                .joined_points(history, series, points)
            {
                Some(joined) => add(series, &mut joined.points()),
                None => add(series, &mut points.iter().copied()),
            })?;
        // Series whose samples in the store are all after the cut.
        for series in stored {
            if let Some(joined) = self.joined_points(history, series, &[]) {
                add(series, &mut joined.points());
            }
        }
        for one in old.into_values() {
            add(&one.series, &mut one.samples.points());
        }
        Ok(found)
    }

    fn query_with_step(
        &self,
        query: &RangeQuery,
        step: QueryStep,
        mut history: JoinedHistory,
        visit: &mut SeriesVisitor<'_>,
    ) -> Result<(), QueryError> {
        if step.millis < 1 {
            return Err(QueryError::Step);
        }
        let border = history.complete.of_all();
        let bucket = bucket_of(border, step.millis);
        let cut = match bucket == border {
            true => border,
            false => bucket.saturating_add(step.millis),
        };
        let stored = self.stored(query)?;
        let old = self.only_old(query, &mut history, &stored)?;
        let mut heads = self.stepped_head(query, step, (&mut history, cut), (&stored, old))?;
        if cut <= query.end {
            let tail = RangeQuery {
                start: query.start.max(cut),
                ..query.clone()
            };
            self.store.query_range(&tail, &mut |series, points| {
                visit_before(&mut heads, series.text(), visit);
                match heads.remove(series.text()) {
                    Some((_, mut head)) => {
                        head.extend_from_slice(points);
                        visit(series, &head);
                    }
                    None => visit(series, points),
                }
            })?;
        }
        for (series, points) in heads.into_values() {
            visit(&series, &points);
        }
        Ok(())
    }

    fn query_samples(
        &self,
        query: &RangeQuery,
        mut history: JoinedHistory,
        visit: &mut SeriesVisitor<'_>,
    ) -> Result<(), QueryError> {
        let stored = self.stored(query)?;
        let old = self.only_old(query, &mut history, &stored)?;
        let old = old.into_iter().map(|(text, one)| {
            let points: StoredPoints = one.samples.points().collect();
            (text, (one.series, points))
        });
        let mut old: BTreeMap<String, (Arc<Series>, StoredPoints)> =
            old.filter(|(_, (_, points))| !points.is_empty()).collect();
        self.store.query_range(query, &mut |series, points| {
            visit_before(&mut old, series.text(), visit);
            match self.joined_points(&mut history, series, points) {
                Some(joined) => visit(series, &joined.points().collect::<StoredPoints>()),
                None => visit(series, points),
            }
        })?;
        for (series, points) in old.into_values() {
            visit(&series, &points);
        }
        Ok(())
    }
}

impl JoinedColumn {
    /// Returns the samples without stale markers, which have a meaning in PromQL only.
    fn points(&self) -> impl Iterator<Item = (Millis, f64)> {
        let samples = self.times.iter().copied().zip(self.values.iter().copied());
        samples.filter(|(_, value)| !is_stale(*value))
    }
}

/// Visits the series that precede a text.
fn visit_before(
    sorted: &mut BTreeMap<String, (Arc<Series>, StoredPoints)>,
    text: &str,
    visit: &mut SeriesVisitor<'_>,
) {
    while let Some(first) = sorted.first_entry()
        && first.key().as_str() < text
    {
        let (series, points) = first.remove();
        visit(&series, &points);
    }
}

/// The names and families of series as the store has them, for one query.
struct StoredNames<'a> {
    /// The exact names of the selector by their form in Prometheus.
    names: HashMap<Cow<'a, str>, &'a str>,
    /// The families of the store's series by name.
    families: HashMap<&'a str, &'a Arc<Family>>,
}

impl<'a> StoredNames<'a> {
    fn new(selector: &'a Selector, stored: &'a [Arc<Series>]) -> StoredNames<'a> {
        let mut names = HashMap::new();
        for name in selector.exact_names().unwrap_or_default() {
            // The first of several names with one form counts.
            names.entry(metric_name(name)).or_insert(name);
        }
        let families = stored.iter();
        StoredNames {
            names,
            families: families
                .map(|series| (series.name(), series.family()))
                .collect(),
        }
    }

    /// Returns the name of the selector if `name` is its form in Prometheus, otherwise `name`.
    fn stored_name<'b>(&'b self, name: &'b str) -> &'b str {
        self.names.get(name).copied().unwrap_or(name)
    }
}

fn guessed_family(name: &str) -> Family {
    let is_counter = COUNTER_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    let kind = match is_counter {
        true => MetricKind::Counter,
        false => MetricKind::Unknown,
    };
    Family::new("", kind, "", 1, "")
}

impl SampleReader for StoreWithHistory {
    fn latest(
        &self,
        deadline: Instant,
        selector: &Selector,
        visit: &mut LatestVisitor<'_>,
    ) -> Result<(), QueryError> {
        SampleReader::latest(&self.store, deadline, selector, visit)
    }

    fn series(
        &self,
        query: &RangeQuery,
        visit: &mut dyn FnMut(&Arc<Series>),
    ) -> Result<(), QueryError> {
        let mut found = self.stored(query)?;
        let listed = self.request(query, |request| self.history.list(&self.store, request));
        let listed = listed.unwrap_or_default();
        if !listed.is_empty() {
            let mut limit = TimeLimit::of(query);
            let known = self.known_labels(&found, &mut limit)?;
            let names = StoredNames::new(&query.selector, &found);
            let mut old = Vec::new();
            for labels in listed.iter().filter(|labels| !known.contains(*labels)) {
                limit.spend(OLD_SERIES_WORK)?;
                let series = self.old_series(labels, &query.selector, &names);
                old.extend(series.map(|(series, _)| series));
            }
            found.extend(old);
            found.sort_unstable_by(|a, b| a.text().cmp(b.text()));
            found.dedup_by(|a, b| a.text() == b.text());
        }
        found.iter().for_each(visit);
        Ok(())
    }

    fn query_range(
        &self,
        query: &RangeQuery,
        visit: &mut SeriesVisitor<'_>,
    ) -> Result<(), QueryError> {
        match (self.join(query), query.step) {
            (None, _) => self.store.query_range(query, visit),
            (Some(history), Some(step)) => self.query_with_step(query, step, history, visit),
            (Some(history), None) => self.query_samples(query, history, visit),
        }
    }

    fn time_bounds(&self) -> (Option<Millis>, Option<Millis>) {
        let (_, newest) = self.store.time_bounds();
        let now = self.store.complete_since().now;
        (Some(self.history.reader().oldest(now)), newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_store::series;

    #[test]
    fn series_of_the_history_get_their_stored_names_and_families() {
        let selector = Selector::any(["a.b", "a-b", "c"].map(Selector::name).into());
        let stored = [Arc::new(series("a.b"))];
        let names = StoredNames::new(&selector, &stored);
        assert_eq!(names.stored_name("a_b"), "a-b", "the first of both");
        assert_eq!(names.stored_name("c"), "c");
        assert_eq!(names.stored_name("other"), "other");
        assert!(names.families.contains_key("a.b"));
    }
}
