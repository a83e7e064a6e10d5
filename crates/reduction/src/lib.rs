//! Reduces the values of many nodes to sums, extremes, averages and quantiles, and finds the nodes
//! that stand out. Pure functions, without I/O.
//!
//! A parent puts the values of its children into a [`TickWindow`]. A closed tick has one
//! [`Partial`] per series, which the parent writes to its store under the names of
//! [`reduced_values`] and sends to its own parent, where it is merged with others. Merging is
//! associative and does not depend on the order, up to the rounding of sums.

mod counter_rates;
mod outliers;
mod partial;
mod reduced_names;
mod series_table;
mod sketch;
mod tick_cells;
mod tick_window;

pub use counter_rates::NodeCounterRates;
pub use outliers::{Figure, Outlier, OutlierFinder, OutlierRule};
pub use partial::Partial;
pub use reduced_names::{is_reducible_name, partial_values, reduced_values};
pub use series_table::{ReducedSeries, ReducedSeriesTable, SERIES_KEYS_MAX};
pub use sketch::{BUCKETS_MAX, QuantileSketch, SKETCH_BYTES_MAX, SketchError};
pub use tick_cells::TickCells;
pub use tick_window::{ClosedTick, DueTick, PutOutcome, TickWindow};
