//! Reads the series of the node's store.

use std::sync::Arc;

use pegel_metric::{Family, Selector, Series};
use pegel_store::{RangeQuery, Store};

use super::error::PromqlError;
use super::labels::{LabelSet, NAME};
use super::matcher::{LabelMatcher, MatchKind};
use super::source::{Selection, SeriesSampleVisitor, SeriesSource};

/// The labels that identify this node among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLabels {
    pub job: String,
    pub instance: String,
}

/// Receives the labels of a series, and its family.
pub type SeriesLabelVisitor<'a> = dyn FnMut(LabelSet, &Family) -> Result<(), PromqlError> + 'a;

/// The series of a store, under their stored names and labels.
#[derive(Debug, Clone)]
pub struct StoreSource {
    store: Store,
}

impl StoreSource {
    pub fn new(store: Store) -> StoreSource {
        StoreSource { store }
    }
}

impl SeriesSource for StoreSource {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        let query = range_query(selection, self.selector(selection)?);
        // The store does not support cancellation: after the first error the rest is skipped.
        let mut result = Ok(());
        self.store.query_range(&query, &mut |series, samples| {
            if result.is_ok() {
                result = visit(labels(series), samples);
            }
        })?;
        result
    }
}

fn range_query(selection: &Selection<'_>, selector: Selector) -> RangeQuery {
    RangeQuery {
        bytes_max: selection.bytes_max,
        deadline: selection.deadline,
        cancellation: selection.cancellation.clone(),
        ..RangeQuery::new(selector, selection.start, selection.end, None)
    }
}

impl StoreSource {
    /// Visits the labels and the family of every series that matches and has samples in the range,
    /// without reading the samples. Without matchers, all series match. An error of `visit` is
    /// returned.
    pub fn series(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesLabelVisitor<'_>,
    ) -> Result<(), PromqlError> {
        let query = range_query(selection, self.selector(selection)?);
        let mut result = Ok(());
        self.store.series(&query, &mut |series| {
            if result.is_ok() {
                result = visit(labels(series), series.family());
            }
        })?;
        result
    }

    /// Returns a selector for the store. Without a matcher for exactly one name, the names of all
    /// series are listed first: the store selects by name.
    fn selector(&self, selection: &Selection<'_>) -> Result<Selector, PromqlError> {
        let (names, others): (Vec<&LabelMatcher>, Vec<&LabelMatcher>) = selection
            .matchers
            .iter()
            .partition(|matcher| matcher.name == NAME);
        let others: Arc<[LabelMatcher]> = others.into_iter().cloned().collect();
        if let [only] = names[..]
            && matches!(only.kind, MatchKind::Equal)
        {
            return Ok(select_name(&only.value, others));
        }
        let mut found: Vec<String> = Vec::new();
        let query = range_query(selection, Selector::all());
        self.store.series(&query, &mut |series| {
            let name = series.name();
            // Series are sorted by text, so equal names are neighbours most of the time.
            if found.last().is_none_or(|last| last != name)
                && names.iter().all(|matcher| matcher.accepts(name))
            {
                found.push(name.to_owned());
            }
        })?;
        found.sort_unstable();
        found.dedup();
        let selectors = found.iter().map(|name| select_name(name, others.clone()));
        Ok(Selector::any(selectors.collect()))
    }
}

fn select_name(name: &str, matchers: Arc<[LabelMatcher]>) -> Selector {
    if matchers.is_empty() {
        return Selector::name(name);
    }
    Selector::with_predicate(name, move |series| {
        matchers.iter().all(|matcher| {
            let value = series.label(&matcher.name);
            matcher.accepts(value.as_deref().unwrap_or(""))
        })
    })
}

fn labels(series: &Series) -> LabelSet {
    let name = std::iter::once((NAME, series.name().into()));
    LabelSet::new(name.chain(series.labels()))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use pegel_metric::{Family, Input, MetricKind, Millis, Point};
    use pegel_store::{QueryCancellation, StoreOptions};
    use pegel_testkit::{FakeClock, TempDir};

    use super::*;

    const NOW: Millis = 1_700_000_000_000;

    fn store(dir: &TempDir) -> Store {
        let mut options = StoreOptions::new(dir.join("store"));
        options.clock = Arc::new(FakeClock::new(NOW));
        let store = Store::open(options).expect("opens");
        let family = |name: &str| {
            Arc::new(Family {
                name: name.to_owned().into(),
                ..Family::new("", MetricKind::Gauge, "", 1, "")
            })
        };
        for text in ["a.b{l=\"1\"}", "a.b{l=\"2\"}", "c{l=\"1\"}", "d"] {
            let series = Arc::new(Series::parse(text, family).expect("valid"));
            let point = |time: Millis| Point {
                series: series.clone(),
                time: NOW - time,
                value: time as f64,
            };
            let points = vec![point(2_000), point(1_000)];
            store.push(Input::Push, points).expect("accepted");
        }
        store
    }

    fn select(source: &StoreSource, matchers: &[(&str, &str, &str)]) -> Vec<String> {
        let matchers: Vec<LabelMatcher> = matchers
            .iter()
            .map(|(name, operator, value)| LabelMatcher::new(name, operator, value).expect("valid"))
            .collect();
        let selection = Selection {
            matchers: &matchers,
            start: NOW - 1_500,
            end: NOW,
            bytes_max: 1 << 20,
            deadline: Instant::now() + Duration::from_secs(60),
            cancellation: QueryCancellation::default(),
        };
        let mut found = Vec::new();
        source
            .select(&selection, &mut |labels, samples| {
                assert_eq!(samples, [(NOW - 1_000, 1_000.0)]);
                found.push(labels.to_string());
                Ok(())
            })
            .expect("reads");
        found
    }

    #[test]
    fn matchers_apply_to_names_and_labels() {
        let dir = TempDir::new();
        let source = StoreSource::new(store(&dir));
        let one = "{__name__=\"a.b\", l=\"1\"}";
        let two = "{__name__=\"a.b\", l=\"2\"}";
        let three = "{__name__=\"c\", l=\"1\"}";
        assert_eq!(select(&source, &[(NAME, "=", "a.b")]), [one, two]);
        assert_eq!(
            select(&source, &[(NAME, "=", "a.b"), ("l", "!=", "1")]),
            [two]
        );
        assert_eq!(select(&source, &[("l", "=", "1")]), [one, three]);
        assert_eq!(
            select(&source, &[(NAME, "=~", "a.*|d"), ("l", "!~", "2")]),
            [one, "{__name__=\"d\"}"]
        );
        assert_eq!(select(&source, &[(NAME, "=", "x")]), [""; 0]);
    }
}
