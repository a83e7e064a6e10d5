//! A group of series that is aggregated into one result series.
//!
//! If the buckets are known in advance and the aggregator can run incrementally, the group holds
//! one accumulator per bucket (a grid), and the series themselves are not kept. Otherwise it keeps
//! the points of every series and merges them at the end.

use pegel_metric::{Millis, Series};

use super::SubQueryPlan;
use super::merge::{BucketGrid, merge};
use super::result_series::ResultSeries;
use crate::downsample::Buckets;
use crate::error::OpentsdbError;
use crate::memory_budget::QueryMemoryBudget;
use crate::tags::CommonTags;
use crate::tsuid::tsuid;

/// The largest grid: with more buckets most of them would be empty.
const GRID_LEN_MAX: usize = 1 << 17;

/// The series that become one result series.
#[derive(Debug)]
pub(super) struct SeriesGroup {
    tags: CommonTags,
    tsuids: Vec<String>,
    data: GroupData,
}

#[derive(Debug)]
enum GroupData {
    /// One accumulator for each bucket; the series are not kept.
    Grid(BucketGrid),
    /// The points of every series.
    PerSeries(Vec<Vec<(Millis, f64)>>),
}

impl SeriesGroup {
    pub(super) fn new(
        plan: &SubQueryPlan<'_>,
        budget: &mut QueryMemoryBudget,
    ) -> Result<SeriesGroup, OpentsdbError> {
        budget.reserve(size_of::<SeriesGroup>() + 256)?;
        let is_running = plan.query.aggregator.is_running();
        let content = match &plan.downsample {
            Some((_, buckets))
                if is_running
                    && buckets.len() <= GRID_LEN_MAX
                    && !matches!(buckets, Buckets::Uneven(_)) =>
            {
                budget.reserve(BucketGrid::bytes(buckets.len()))?;
                GroupData::Grid(BucketGrid::new(buckets))
            }
            _ => GroupData::PerSeries(Vec::new()),
        };
        Ok(SeriesGroup {
            tags: CommonTags::default(),
            tsuids: Vec::new(),
            data: content,
        })
    }

    /// Adds the tags and the TSUID of a series.
    pub(super) fn add_series(
        &mut self,
        series: &Series,
        plan: &SubQueryPlan<'_>,
        node: &str,
        budget: &mut QueryMemoryBudget,
    ) -> Result<(), OpentsdbError> {
        self.tags.add(series, node);
        if plan.wants_tsuids {
            let id = tsuid(series, node);
            budget.reserve(size_of::<String>() + id.len())?;
            self.tsuids.push(id);
        }
        Ok(())
    }

    pub(super) fn add_points(
        &mut self,
        plan: &SubQueryPlan<'_>,
        points: &[(Millis, f64)],
        budget: &mut QueryMemoryBudget,
    ) -> Result<(), OpentsdbError> {
        match &mut self.data {
            GroupData::Grid(grid) => grid.add(plan.query.aggregator, points),
            GroupData::PerSeries(tracks) => {
                budget.reserve(size_of::<Vec<(Millis, f64)>>() + size_of_val(points))?;
                tracks.push(points.to_vec());
            }
        }
        Ok(())
    }

    pub(super) fn finish(
        mut self,
        metric: &str,
        plan: &SubQueryPlan<'_>,
        budget: &mut QueryMemoryBudget,
    ) -> Result<ResultSeries, OpentsdbError> {
        let aggregator = plan.query.aggregator;
        let points = match self.data {
            GroupData::Grid(grid) => {
                let points = grid.finish(aggregator);
                budget.release(BucketGrid::bytes(grid.len()));
                points
            }
            GroupData::PerSeries(tracks) => {
                let points = merge(&tracks, aggregator, plan.deadline, budget)?;
                let bytes = |track: &Vec<(Millis, f64)>| {
                    size_of::<Vec<(Millis, f64)>>() + size_of_val(&track[..])
                };
                budget.release(tracks.iter().map(bytes).sum());
                points
            }
        };
        let (tags, aggregate_tags) = self.tags.split();
        self.tsuids.sort_unstable();
        Ok(ResultSeries {
            metric: metric.to_owned(),
            tags,
            aggregate_tags,
            tsuids: self.tsuids,
            points,
        })
    }
}
