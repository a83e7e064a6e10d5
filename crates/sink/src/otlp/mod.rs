//! Sends current values to receivers of OpenTelemetry's protocol (OTLP): collectors, Prometheus,
//! and services that accept it.
//!
//! ```text
//! store ──current values──► MetricBuilder ──requests──► client ──HTTP or gRPC──► receiver
//!                           metrics, start times         │ fails
//!                                                        ▼
//!                                          tried again until the next interval
//! ```
//!
//! Every receiver has a thread of its own. Values are totals: what could not be sent within an
//! interval is dropped and counted, and the next values contain it.

#[cfg(test)]
mod builder_tests;
mod client;
mod histograms;
mod metric_builder;
mod output;
mod settings;

pub use metric_builder::{MetricBuilder, OtlpExport};
pub use output::{OtlpCounts, OtlpOutput, OtlpOutputOptions};
pub use settings::{OtlpReceiver, OtlpSettings};
