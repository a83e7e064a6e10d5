//! How the series of the store appear in PromQL.
//!
//! A series has the name and the label keys of `/metrics`, where characters that Prometheus does
//! not accept are replaced. A selector that asks for such a name by its stored form,
//! `{"name.with.dots"}`, gets stored names and keys. Series of this node have the labels `job` and
//! `instance`, which dashboards filter by, unless they have labels of these names of their own;
//! nothing of this is stored.

use std::borrow::Cow;
use std::sync::Arc;

use pegel_metric::prometheus_names::{collision_rank, is_metric_name, label_key, metric_name};
use pegel_metric::{Input, Series};

use super::labels::{LabelSet, NAME};
use super::matcher::{LabelMatcher, MatchKind};

const JOB: &str = "job";
const INSTANCE: &str = "instance";

/// The labels that identify this node among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLabels {
    pub job: String,
    pub instance: String,
}

impl NodeLabels {
    /// Returns the labels with which PromQL shows a stored series, and with which other systems get
    /// it.
    pub fn labels_of(self: &Arc<Self>, series: &Series) -> LabelSet {
        SeriesView::new(self, &[]).labels(series)
    }

    /// Returns the rank of a series among those with the same labels in PromQL: the one with the
    /// lowest is shown.
    pub fn rank_of(self: &Arc<Self>, series: &Series) -> (u8, bool) {
        SeriesView::new(self, &[]).rank(series)
    }
}

/// The names and labels under which one selection sees the series.
#[derive(Debug, Clone)]
pub(crate) struct SeriesView {
    node: Arc<NodeLabels>,
    is_stored: bool,
}

impl SeriesView {
    /// Returns the view of a selection with these matchers.
    pub(crate) fn new(node: &Arc<NodeLabels>, matchers: &[LabelMatcher]) -> SeriesView {
        let is_foreign = |matcher: &LabelMatcher| {
            matcher.name == NAME
                && matches!(matcher.kind, MatchKind::Equal)
                && !is_metric_name(&matcher.value)
        };
        SeriesView {
            node: node.clone(),
            is_stored: matchers.iter().any(is_foreign),
        }
    }

    /// Returns whether names and keys are those of the store.
    pub(crate) fn is_stored(&self) -> bool {
        self.is_stored
    }

    pub(crate) fn labels(&self, series: &Series) -> LabelSet {
        let name = std::iter::once((Cow::Borrowed(NAME), self.name(series)));
        let labels = series.labels().map(|(key, value)| (self.key(key), value));
        let added = [(JOB, &self.node.job), (INSTANCE, &self.node.instance)];
        let added = added.map(|(key, value)| (Cow::Borrowed(key), Cow::Borrowed(value.as_str())));
        let added = added.into_iter().filter(|_| is_of_node(series));
        // Of two labels with one name the first remains: those of the series precede.
        LabelSet::new(name.chain(labels).chain(added))
    }

    /// Returns whether all matchers accept a series.
    pub(crate) fn accepts(&self, series: &Series, matchers: &[LabelMatcher]) -> bool {
        let accepts = |matcher: &LabelMatcher| matcher.accepts(&self.label(series, &matcher.name));
        matchers.iter().all(accepts)
    }

    /// Returns the rank of a series among those with the same labels in this view: first the rank
    /// in `/metrics`, then names that need no change.
    pub(crate) fn rank(&self, series: &Series) -> (u8, bool) {
        (collision_rank(series), self.changes_names(series))
    }

    /// Returns whether the name or a label key differs from the stored one.
    pub(crate) fn changes_names(&self, series: &Series) -> bool {
        let is_changed = |name: &Cow<'_, str>| matches!(name, Cow::Owned(_));
        !self.is_stored
            && (is_changed(&metric_name(series.name()))
                || series.labels().any(|(key, _)| is_changed(&label_key(key))))
    }

    fn name<'s>(&self, series: &'s Series) -> Cow<'s, str> {
        if self.is_stored {
            return series.name().into();
        }
        metric_name(series.name())
    }

    fn key<'s>(&self, key: &'s str) -> Cow<'s, str> {
        if self.is_stored {
            return key.into();
        }
        label_key(key)
    }

    /// Returns the value of a label, which may also be named by its stored key.
    fn label<'s>(&'s self, series: &'s Series, name: &str) -> Cow<'s, str> {
        if name == NAME {
            return self.name(series);
        }
        let mut labels = series.labels();
        let found = labels.find(|(key, _)| *key == name || *self.key(key) == *name);
        if let Some((_, value)) = found {
            return value;
        }
        match name {
            JOB if is_of_node(series) => self.node.job.as_str().into(),
            INSTANCE if is_of_node(series) => self.node.instance.as_str().into(),
            _ => "".into(),
        }
    }
}

/// Returns whether a series comes from this node, not from a rule or from a system that sent its
/// series here with all their labels.
fn is_of_node(series: &Series) -> bool {
    match series.family().input {
        Input::Collect
        | Input::Push
        | Input::Programs
        | Input::Lane
        | Input::Statsd
        | Input::Http
        | Input::Put
        | Input::Pull
        | Input::Influx
        | Input::Pushgateway
        | Input::Otlp => true,
        // They have the labels of the expression and of the rule.
        Input::Rules => false,
        // They have the labels that the series have on every node.
        Input::Tree => false,
        // They are stored with all their labels.
        Input::RemoteWrite => false,
    }
}
