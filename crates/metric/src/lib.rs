//! The core types of Pegel: series, samples, ticks and selectors. This crate performs no I/O except
//! reading the system clocks.
//!
//! | word | meaning |
//! |---|---|
//! | family | the properties that series share: kind, help text, unit, level, and usually their name |
//! | series | a name plus labels, and its family; identified by its text `name{k="v",…}` with sorted keys |
//! | sample | one value (f64) of a series at one time (milliseconds since 1970, UTC) |
//! | tick | the samples of one or more groups of series, all with one time |
//! | point | a single sample with its own time |
//! | ledger | sample counters: received = kept + dropped by reason, for every input |

mod clock;
mod error_chain;
mod family;
mod format_value;
mod glob;
mod inline_string;
mod label_enum;
mod ledger;
mod process_table;
pub mod prometheus_names;
pub mod quantity;
mod selector;
mod selector_patterns;
mod series;
mod series_list;
pub mod slurm;
mod stale;
mod tick;
mod unprintable;

pub use clock::{Clock, SystemClock, nominal_tolerance};
pub use error_chain::with_causes;
pub use family::{Family, Level, MetricKind, Unit};
pub use format_value::format_value;
pub use glob::glob_matches;
pub use ledger::{DropReason, Input, InputTotals, Ledger};
pub use process_table::{CommandVisibility, ProcessIoRates, ProcessRow, ProcessTable};
pub use selector::{Selector, SelectorError};
pub use series::{LABELS_MAX, Labels, NAME_BYTES_MAX, Series, SeriesError, TEXT_BYTES_MAX};
pub use series_list::split_series_list;
pub use stale::{STALE_NAN, is_stale};
pub use tick::{GroupRow, GroupSeries, Point, SampleGroup, Slot, Tick};
pub use unprintable::{escape_unprintable, is_unprintable, one_line};

/// Milliseconds since 1970-01-01 00:00 UTC.
pub type Millis = i64;
