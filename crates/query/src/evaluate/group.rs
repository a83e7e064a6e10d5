use pegel_metric::{Millis, Series};

use super::Plan;
use super::budget::Budget;
use super::line::Line;
use super::merge::{Grid, merge};
use crate::downsample::Buckets;
use crate::problem::Problem;
use crate::request::SubQuery;
use crate::tags::CommonTags;
use crate::tsuid::tsuid;

/// More buckets than this are not laid out for a group: most of them would be empty.
const GRID_LEN_MAX: usize = 1 << 17;

/// The series that become one line.
#[derive(Debug)]
pub(super) struct Group {
    tags: CommonTags,
    tsuids: Vec<String>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// One cell for each bucket: the series need not be kept.
    Grid(Grid),
    /// The points of every series.
    Tracks(Vec<Vec<(Millis, f64)>>),
}

/// A group that is worked out.
#[derive(Debug)]
pub(super) struct Finished {
    tags: CommonTags,
    tsuids: Vec<String>,
    points: Vec<(Millis, f64)>,
}

impl Group {
    pub fn new(plan: &Plan<'_>, budget: &mut Budget) -> Result<Group, Problem> {
        budget.take(size_of::<Group>() + 256)?;
        let is_running = plan.query.aggregator.is_running();
        let content = match &plan.downsample {
            Some((_, buckets))
                if is_running
                    && buckets.len() <= GRID_LEN_MAX
                    && !matches!(buckets, Buckets::Uneven(_)) =>
            {
                budget.take(Grid::bytes(buckets.len()))?;
                Content::Grid(Grid::new(buckets))
            }
            _ => Content::Tracks(Vec::new()),
        };
        Ok(Group {
            tags: CommonTags::default(),
            tsuids: Vec::new(),
            content,
        })
    }

    /// A group of one series.
    pub fn alone(series: &Series, plan: &Plan<'_>, node: &str) -> Group {
        let mut group = Group {
            tags: CommonTags::default(),
            tsuids: Vec::new(),
            content: Content::Tracks(Vec::new()),
        };
        group.tags.add(series, node);
        if plan.wants_tsuids {
            group.tsuids.push(tsuid(series, node));
        }
        group
    }

    /// Notes that a series belongs to it.
    pub fn join(
        &mut self,
        series: &Series,
        plan: &Plan<'_>,
        node: &str,
        budget: &mut Budget,
    ) -> Result<(), Problem> {
        self.tags.add(series, node);
        if plan.wants_tsuids {
            let id = tsuid(series, node);
            budget.take(size_of::<String>() + id.len())?;
            self.tsuids.push(id);
        }
        Ok(())
    }

    pub fn add(
        &mut self,
        plan: &Plan<'_>,
        points: &[(Millis, f64)],
        budget: &mut Budget,
    ) -> Result<(), Problem> {
        match &mut self.content {
            Content::Grid(grid) => grid.add(plan.query.aggregator, points),
            Content::Tracks(tracks) => {
                budget.take(size_of::<Vec<(Millis, f64)>>() + size_of_val(points))?;
                tracks.push(points.to_vec());
            }
        }
        Ok(())
    }

    pub fn finish(self, plan: &Plan<'_>, budget: &mut Budget) -> Result<Finished, Problem> {
        let aggregator = plan.query.aggregator;
        let points = match self.content {
            Content::Grid(grid) => {
                let points = grid.finish(aggregator);
                budget.give_back(Grid::bytes(grid.len()));
                points
            }
            Content::Tracks(tracks) => {
                let points = merge(&tracks, aggregator, plan.deadline, budget)?;
                let bytes = |track: &Vec<(Millis, f64)>| {
                    size_of::<Vec<(Millis, f64)>>() + size_of_val(&track[..])
                };
                budget.give_back(tracks.iter().map(bytes).sum());
                points
            }
        };
        Ok(Finished {
            tags: self.tags,
            tsuids: self.tsuids,
            points,
        })
    }

    pub fn line<'a>(
        &mut self,
        metric: &'a str,
        query: &'a SubQuery,
        points: &'a [(Millis, f64)],
    ) -> Line<'a> {
        line(
            std::mem::take(&mut self.tags),
            std::mem::take(&mut self.tsuids),
            metric,
            query,
            points,
        )
    }
}

impl Finished {
    pub fn line<'a>(&'a self, metric: &'a str, query: &'a SubQuery) -> Line<'a> {
        line(
            self.tags.clone(),
            self.tsuids.clone(),
            metric,
            query,
            &self.points,
        )
    }
}

fn line<'a>(
    tags: CommonTags,
    mut tsuids: Vec<String>,
    metric: &'a str,
    query: &'a SubQuery,
    points: &'a [(Millis, f64)],
) -> Line<'a> {
    let (tags, aggregate_tags) = tags.split();
    tsuids.sort_unstable();
    Line {
        query,
        metric,
        tags,
        aggregate_tags,
        tsuids,
        points,
    }
}
