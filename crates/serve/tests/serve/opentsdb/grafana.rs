//! The types into which Grafana parses responses. A field of another type fails the whole panel
//! there.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

/// What the Go backend parses without `arrays`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GoSeries {
    pub metric: String,
    pub tags: HashMap<String, String>,
    #[serde(default)]
    pub aggregate_tags: Vec<String>,
    /// Sorted as text, and parsed as whole seconds.
    pub dps: BTreeMap<String, f64>,
    #[serde(default)]
    pub annotations: Vec<GoAnnotation>,
    #[serde(default)]
    pub global_annotations: Vec<GoAnnotation>,
}

/// What it parses with `arrays`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GoArrays {
    pub metric: String,
    pub tags: HashMap<String, String>,
    #[serde(default)]
    pub aggregate_tags: Vec<String>,
    pub dps: Vec<(f64, f64)>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct GoAnnotation {
    pub description: String,
    pub start_time: f64,
}

/// What the browser parses; a null is a gap.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BrowserSeries {
    pub metric: String,
    pub tags: HashMap<String, String>,
    pub aggregate_tags: Vec<String>,
    pub dps: BTreeMap<String, Option<f64>>,
    pub query: Option<BrowserQuery>,
    #[serde(default)]
    pub annotations: Vec<GoAnnotation>,
    #[serde(default)]
    pub global_annotations: Vec<GoAnnotation>,
}

#[derive(Debug, Deserialize)]
pub(super) struct BrowserQuery {
    pub index: usize,
}

/// The response of `/api/search/lookup` for tag_names and tag_values.
#[derive(Debug, Deserialize)]
pub(super) struct LookupReply {
    pub results: Vec<LookupResult>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LookupResult {
    pub tags: HashMap<String, String>,
}

/// Error responses: the browser shows `error.message`.
#[derive(Debug, Deserialize)]
pub(super) struct ErrorResponse {
    pub error: ErrorDetails,
}

#[derive(Debug, Deserialize)]
pub(super) struct ErrorDetails {
    pub code: u16,
    pub message: String,
    pub details: Option<String>,
}
