//! Sends current values to receivers of OpenTelemetry's protocol (OTLP): collectors, Prometheus,
//! and services that accept it.
//!
//! ```text
//! store ──current values──► MetricBuilder ──requests──► client ──HTTP or gRPC──► receiver
//!                           metrics, start times         │ fails
//!                                                        ▼
//!                                          retried until the next interval
//! ```
//!
//! Every receiver has its own thread, which only reads current values: a receiver that is slow or
//! down never delays sampling or another receiver. Values that could not be sent within an interval
//! are dropped and counted; no increase is lost with them, because the next values are totals.

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
