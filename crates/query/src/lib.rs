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

mod about;
mod aggregator;
mod annotation;
mod answer;
mod calendar;
mod downsample;
mod engine;
mod evaluate;
mod exp;
mod filter;
mod gexp;
mod last;
mod lines;
mod lookup;
mod moment;
mod problem;
mod rate;
mod request;
mod suggest;
mod tags;
#[cfg(test)]
mod testing;
mod tsuid;
mod zone;

pub use about::{filters, serializers};
pub use aggregator::Aggregator;
pub use annotation::{Annotation, Annotations, BulkDelete, Change};
pub use engine::{Engine, Limits};
pub use exp::Expressions;
pub use gexp::Gexp;
pub use last::{LastPoint, LastQuery};
pub use lookup::{LookedUp, Lookup};
pub use problem::Problem;
pub use request::{Gaps, Pairs, QUERIES_MAX, Request, Show, SubQuery};
pub use suggest::Suggest;
pub use zone::Zone;
