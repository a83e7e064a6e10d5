//! Answers OpenTSDB queries: selects series, downsamples them, computes rates and aggregates
//! groups.
//!
//! ```text
//! JSON, m=…  ──► request ──► store (samples, or folded into steps) ──► downsample ──► rate ──► group ──► encode
//!                checked     series by series                         buckets, fill             aggregator
//! ```
//!
//! This crate contains no HTTP code: [`QueryEngine`] takes parsed requests and writes JSON to any
//! writer. Memory and time are bounded; a request that exceeds a limit fails with an
//! [`OpentsdbError`] that carries OpenTSDB's status and wording.
//!
//! OpenTSDB distinguishes integers from floats; here every value is a double.

mod aggregator;
mod annotations;
mod calendar;
mod downsample;
mod engine;
mod error;
mod evaluate;
mod exp;
mod filter;
mod gexp;
mod history;
mod last;
mod lookup;
mod memory_budget;
pub mod promql;
mod rate;
mod request;
mod response;
mod sample_source;
mod server_info;
mod suggest;
mod tags;
#[cfg(test)]
mod test_store;
mod time_syntax;
mod time_zone;
mod tsuid;

pub use aggregator::Aggregator;
pub use annotations::{
    Annotation, AnnotationBulkDelete, AnnotationEditor, AnnotationUpdate, Annotations, ID_LABEL,
    KIND_LABEL, MarkCounts, MarkKind,
};
pub use engine::{QueryEngine, QueryLimits};
pub use error::OpentsdbError;
pub use exp::ExpressionRequest;
pub use gexp::GexpRequest;
pub use history::{
    HistoryAnswer, HistoryMark, HistoryProblem, HistoryProblemKind, HistoryReader, HistoryRecord,
    HistoryRequest, HistorySeries, StoreWithHistory,
};
pub use last::{LastPoint, LastQuery};
pub use lookup::{LookupQuery, LookupResponse};
pub use request::{GapFormat, QUERIES_MAX, QueryParams, QueryRequest, ResponseOptions, SubQuery};
pub use sample_source::{LatestVisitor, SampleReader};
pub use server_info::{describe_filters, describe_serializers};
pub use suggest::{SuggestKind, SuggestQuery};
