//! Reads samples that are older than the store from an engine with Prometheus' HTTP API.
//!
//! ```text
//! query thread ──► PrometheusHistory ──► pieces of time, newest first ──► cache, else EngineClient
//!                        │                                               POST /api/v1/read, or
//!                        ▼                                               /api/v1/query of SELECTOR[RANGE]
//!                  joined by pegel-query
//! ```
//!
//! Queries call it on their own threads; this crate has no thread. Time, bytes, concurrent requests
//! and the cache are bounded. A request never fails: the newest samples are read first, and the
//! answer states from which time on it is complete and why earlier samples are missing. Rules:
//! docs/history.md.

mod answer;
mod cache;
mod client;
mod counters;
#[doc(hidden)] // For fuzz/ only.
pub mod fuzzing;
mod matrix;
mod piece;
mod reader;
mod remote_read;
mod selector;
mod series_list;
mod settings;

pub use counters::HistoryStatus;
pub use reader::PrometheusHistory;
pub use settings::{EngineUrl, HistoryApi, HistoryConfig, HistorySettings};
