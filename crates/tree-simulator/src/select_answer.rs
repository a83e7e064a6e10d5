//! Answers to `/tree/select`: the series that match, with their current values.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pegel_query::promql::LabelSet;
use pegel_reduction::Partial;
use pegel_tree_protocol::select_request::Content;
use pegel_tree_protocol::series_matcher::Kind as MatchKind;
use pegel_tree_protocol::{
    Kind, PartialCell, SelectEnd, SelectRequest, SelectWriter, SelectedSeries, SeriesDefinition,
    SeriesMatcher, encode_partials, encode_times, encode_values,
};
use regex_lite::Regex;

use crate::aggregate_answer;
use crate::simulated_values::definitions;

/// The largest number of points of a series in an answer.
const POINTS_MAX: i64 = 4000;

type SimulatedSelection = (Vec<SeriesMatcher>, Vec<String>, Arc<[usize]>);

/// The series that all children of a simulation have.
#[derive(Debug)]
pub(crate) struct SeriesCatalog {
    pub definitions: Vec<SeriesDefinition>,
    /// The labels of each definition.
    pub labels: Vec<LabelSet>,
    /// The newest selection: a fan-out asks all children for the same.
    newest: Mutex<Option<SimulatedSelection>>,
}

impl SeriesCatalog {
    pub(crate) fn new() -> SeriesCatalog {
        let definitions = definitions();
        SeriesCatalog {
            labels: aggregate_answer::labels(&definitions),
            definitions,
            newest: Mutex::new(None),
        }
    }

    fn selected(&self, request: &SelectRequest) -> Arc<[usize]> {
        let mut newest = self.newest.lock();
        if let Some((matchers, selectors, found)) = &*newest
            && *matchers == request.matchers
            && *selectors == request.selectors
        {
            return found.clone();
        }
        let texts = self.definitions.iter().map(|series| series.text.as_str());
        let is_selected = |text: &str| {
            let mut matchers = request.matchers.iter();
            let selectors = &request.selectors;
            matchers.all(|matcher| matches(matcher, text))
                && (selectors.is_empty() || selectors.iter().any(|glob| matches_glob(glob, text)))
        };
        let found = texts.enumerate().filter(|(_, text)| is_selected(text));
        let found: Arc<[usize]> = found.map(|(index, _)| index).collect();
        *newest = Some((
            request.matchers.clone(),
            request.selectors.clone(),
            found.clone(),
        ));
        found
    }

    /// Returns the body of the answer of a child with these current values, which it has had
    /// forever.
    pub(crate) fn answer(&self, request: &SelectRequest, values: &[f64], now_ms: i64) -> Bytes {
        let mut writer =
            SelectWriter::new(usize::try_from(request.bytes_max).unwrap_or(usize::MAX));
        let step = if request.step_ms > 0 {
            request.step_ms
        } else {
            1000
        };
        let first = request.start_ms.div_euclid(step) * step;
        let first = if first < request.start_ms {
            first + step
        } else {
            first
        };
        let count = ((request.end_ms - first).div_euclid(step) + 1).clamp(0, POINTS_MAX);
        let times: Vec<i64> = match request.content() {
            Content::Series => Vec::new(),
            Content::Latest => vec![now_ms],
            _ => (0..count).map(|index| first + index * step).collect(),
        };
        for &index in &*self.selected(request) {
            let definition = &self.definitions[index];
            let mut series = SelectedSeries {
                text: definition.text.clone(),
                kind: definition.kind as u32,
                help: definition.help.clone(),
                input: "node".to_owned(),
                times: encode_times(&times).into(),
                ..SelectedSeries::default()
            };
            let value = values[index];
            if request.content() == Content::Partials {
                let cell = partial_cell(definition.kind(), value);
                series.partials = encode_partials(&vec![cell; times.len()]).into();
            } else {
                series.values = encode_values(&vec![value; times.len()]).into();
            }
            if writer.series(&series).is_err() {
                break;
            }
        }
        writer.finish(SelectEnd {
            answered: 1,
            expected: 1,
            late: Vec::new(),
            nodes: Vec::new(),
        })
    }
}

/// Returns the partial result of one node; counters do not increase.
fn partial_cell(kind: Kind, value: f64) -> PartialCell {
    let partial = match kind {
        Kind::Counter => Partial::of_counter(Some(0.0), value),
        _ => Partial::of_gauge(value),
    };
    PartialCell {
        count: partial.count,
        sum: partial.sum,
        min: partial.min,
        max: partial.max,
        total: partial.total,
        sketch: partial.sketch.encode().into(),
    }
}

/// Returns the value of a label of a text, the name for `__name__`, else an empty text.
fn label<'a>(text: &'a str, label: &str) -> &'a str {
    let (name, labels) = text.split_once('{').unwrap_or((text, ""));
    if label == "__name__" {
        return name;
    }
    let mut pairs = labels.trim_end_matches('}').split(',');
    let found = pairs.find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == label));
    found.map_or("", |(_, value)| value.trim_matches('"'))
}

fn matches(matcher: &SeriesMatcher, text: &str) -> bool {
    let value = label(text, &matcher.label);
    let is_regex = || {
        let whole = Regex::new(&format!("^(?:{})$", matcher.value));
        whole.is_ok_and(|whole| whole.is_match(value))
    };
    match matcher.kind() {
        MatchKind::Equal => value == matcher.value,
        MatchKind::NotEqual => value != matcher.value,
        MatchKind::Regex => is_regex(),
        MatchKind::NotRegex => !is_regex(),
    }
}

fn matches_glob(glob: &str, text: &str) -> bool {
    let pattern = glob
        .split('*')
        .map(regex_lite::escape)
        .collect::<Vec<_>>()
        .join(".*");
    let name = label(text, "__name__");
    let whole = Regex::new(&format!("^{pattern}$"));
    whole.is_ok_and(|whole| whole.is_match(text) || whole.is_match(name))
}
