//! Entry points for fuzz targets: every parser of an engine's answers.

use std::collections::BTreeMap;
use std::time::Instant;

use pegel_metric::Millis;
use pegel_query::promql::{LabelMatcher, NodeLabels, QueryCancellation};
use pegel_query::{HistoryRequest, HistorySeries};

use crate::answer::AnswerBuilder;
use crate::matrix::read_matrix;
use crate::remote_read::read_response;
use crate::selector::EngineSelector;
use crate::series_list::read_series;

/// The range and the memory of the request whose answer is read.
pub const RANGE: (Millis, Millis) = (1_000_000, 2_000_000);
pub const BYTES_MAX: usize = 1 << 20;

/// Reads an answer as each of the formats. Returns the series that each accepted.
pub fn read_answers(bytes: &[u8]) -> Vec<Vec<HistorySeries>> {
    // Without matchers of names: every series of the agent is selected.
    let matchers: [LabelMatcher; 0] = [];
    let request = HistoryRequest {
        matchers: &matchers,
        node: &NodeLabels {
            job: "node".to_owned(),
            instance: "n1".to_owned(),
        },
        start: RANGE.0,
        end: RANGE.1,
        now: RANGE.1,
        bytes_max: BYTES_MAX,
        deadline: Instant::now(),
        cancellation: &QueryCancellation::default(),
    };
    let external = BTreeMap::new();
    let Some(selector) = EngineSelector::new(&request, &external) else {
        return Vec::new();
    };
    let builder = || AnswerBuilder::new(&selector, RANGE, BYTES_MAX);
    let mut accepted = Vec::new();
    for nan_is_stale in [false, true] {
        let mut builder = builder();
        if read_matrix(bytes, nan_is_stale, &mut builder).is_ok() {
            accepted.push(builder.finish().0);
        }
    }
    let mut builder = builder();
    if read_response(bytes, BYTES_MAX, &mut builder).is_ok() {
        accepted.push(builder.finish().0);
    }
    // A list has no samples to return: reading it must only stay within its bound.
    drop(read_series(bytes, &selector, BYTES_MAX));
    accepted
}
