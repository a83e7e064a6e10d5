//! The contents of a parsed exposition, and the parse error.

use pegel_metric::Millis;

/// The longest line accepted.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// The samples and metadata of an exporter, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exposition {
    pub samples: Vec<ExpositionSample>,
    pub families: Vec<FamilyMetadata>,
}

impl Exposition {
    /// Returns the metadata of a family. In OpenMetrics the name of a counter's family lacks the `_total`.
    pub fn family(&self, name: &str) -> Option<&FamilyMetadata> {
        self.families.iter().find(|family| family.name == name)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ExpositionSample {
    pub name: String,
    /// In the order of the line; keys are unique.
    pub labels: Vec<(String, String)>,
    pub value: f64,
    pub time: Option<Millis>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FamilyMetadata {
    pub name: String,
    pub kind: Option<MetricType>,
    pub help: Option<String>,
    /// OpenMetrics only.
    pub unit: Option<String>,
}

/// The metric types of both formats. Pegel itself writes the first three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    Counter,
    Gauge,
    /// `unknown` in OpenMetrics, `untyped` in the text format.
    Unknown,
    Histogram,
    Summary,
    GaugeHistogram,
    Info,
    StateSet,
}

impl MetricType {
    pub(crate) fn parse(word: &str) -> Option<MetricType> {
        Some(match word {
            "counter" => MetricType::Counter,
            "gauge" => MetricType::Gauge,
            "unknown" | "untyped" => MetricType::Unknown,
            "histogram" => MetricType::Histogram,
            "summary" => MetricType::Summary,
            "gaugehistogram" => MetricType::GaugeHistogram,
            "info" => MetricType::Info,
            "stateset" => MetricType::StateSet,
            _ => return None,
        })
    }
}

/// The first error in an exposition. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: expected {expected}, found {found}")]
pub struct ExpositionParseError {
    pub line: usize,
    pub column: usize,
    pub expected: &'static str,
    pub found: String,
}
