//! Answers to the questions of OpenTSDB's clients: which series, downsampled, as rates, put together.
//!
//! ```text
//! JSON, m=…  ──► request ──► store (samples, or folded into steps) ──► downsample ──► rate ──► group ──► encode
//!                checked     series by series                         buckets, fill             aggregator
//! ```
//!
//! There is no HTTP in here: [`Engine`] takes parsed requests and writes JSON to any writer. Memory and time
//! are bounded; what is beyond is refused with a [`Problem`] that carries OpenTSDB's status and words.
//!
//! Where OpenTSDB keeps whole numbers apart, every value here is a double.

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
mod last;
mod lookup;
mod owned_results;
mod rate;
mod request;
mod response;
mod server_info;
mod suggest;
mod tags;
#[cfg(test)]
mod test_store;
mod time_syntax;
mod time_zone;
mod tsuid;

pub use aggregator::Aggregator;
pub use annotations::{Annotation, AnnotationBulkDelete, AnnotationUpdate, Annotations};
pub use engine::{QueryEngine, QueryLimits};
pub use error::OpentsdbError;
pub use exp::ExpressionRequest;
pub use gexp::GexpRequest;
pub use last::{LastPoint, LastQuery};
pub use lookup::{LookupQuery, LookupResponse};
pub use request::{GapFormat, QUERIES_MAX, QueryParams, QueryRequest, ResponseOptions, SubQuery};
pub use server_info::{describe_filters, describe_serializers};
pub use suggest::SuggestQuery;
pub use time_zone::TimeZone;
