//! The interface between the engine and the data: the series of one store, or of all nodes of a
//! tree.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use pegel_metric::{Millis, Selector, Series};
use pegel_store::{LatestValue, QueryError, RangeQuery, SeriesVisitor, Store};

/// Receives a series and its current value.
pub type LatestVisitor<'a> = dyn FnMut(&Arc<Series>, LatestValue) + 'a;

/// A set of series that can be queried. All methods block.
pub trait SampleReader: fmt::Debug + Send + Sync {
    /// Visits the live series that match, with their current values, in no particular order.
    fn latest(
        &self,
        deadline: Instant,
        selector: &Selector,
        visit: &mut LatestVisitor<'_>,
    ) -> Result<(), QueryError>;

    /// Visits the series that match and have samples in the range of a query, live or not, sorted
    /// by text.
    fn series(
        &self,
        query: &RangeQuery,
        visit: &mut dyn FnMut(&Arc<Series>),
    ) -> Result<(), QueryError>;

    /// Visits the series that match with their points, sorted by text.
    fn query_range(
        &self,
        query: &RangeQuery,
        visit: &mut SeriesVisitor<'_>,
    ) -> Result<(), QueryError>;

    /// Returns the times of the oldest and the newest sample, as far as they are known.
    fn time_bounds(&self) -> (Option<Millis>, Option<Millis>);

    /// Returns whether reading all series is expensive, so that single names are looked up instead.
    fn is_distributed(&self) -> bool {
        false
    }
}

impl SampleReader for Store {
    fn latest(
        &self,
        deadline: Instant,
        selector: &Selector,
        visit: &mut LatestVisitor<'_>,
    ) -> Result<(), QueryError> {
        self.latest_until(deadline, selector, 0, visit).map(drop)
    }

    fn series(
        &self,
        query: &RangeQuery,
        visit: &mut dyn FnMut(&Arc<Series>),
    ) -> Result<(), QueryError> {
        Store::series(self, query, visit)
    }

    fn query_range(
        &self,
        query: &RangeQuery,
        visit: &mut SeriesVisitor<'_>,
    ) -> Result<(), QueryError> {
        Store::query_range(self, query, visit)
    }

    fn time_bounds(&self) -> (Option<Millis>, Option<Millis>) {
        let status = self.status();
        (status.oldest, status.newest)
    }
}
