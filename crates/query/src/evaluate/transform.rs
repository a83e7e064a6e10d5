//! Transforms the samples of one series: downsampling, filling, rate.

use pegel_metric::Millis;

use super::SubQueryPlan;
use crate::downsample::Buckets;
use crate::error::OpentsdbError;
use crate::memory_budget::QueryMemoryBudget;

/// Turns the samples of one series into the points of its group: downsampled, filled, as rates. The
/// buffers are reused from series to series.
pub(super) struct SeriesTransform<'a> {
    plan: &'a SubQueryPlan<'a>,
    values: Vec<f64>,
    bucketed: Vec<(Millis, f64)>,
    rates: Vec<(Millis, f64)>,
}

impl<'a> SeriesTransform<'a> {
    pub(super) fn new(
        plan: &'a SubQueryPlan<'a>,
        budget: &mut QueryMemoryBudget,
    ) -> Result<SeriesTransform<'a>, OpentsdbError> {
        if let Some((downsample, buckets)) = &plan.downsample
            && downsample.fill.value().is_some()
        {
            // With a fill policy every series has all buckets.
            budget.reserve(buckets.len().saturating_mul(2 * size_of::<(Millis, f64)>()))?;
        }
        Ok(SeriesTransform {
            plan,
            values: Vec::new(),
            bucketed: Vec::new(),
            rates: Vec::new(),
        })
    }

    /// Transforms the samples that the plan's query returned, in the order of their times.
    pub(super) fn apply<'b>(&'b mut self, samples: &'b [(Millis, f64)]) -> &'b [(Millis, f64)] {
        let mut points = samples;
        if let Some((downsample, buckets)) = &self.plan.downsample {
            self.bucketed.clear();
            let is_folded = downsample.function.fold().is_some();
            match (is_folded, buckets) {
                (true, Buckets::Even { .. }) => self.bucketed.extend_from_slice(samples),
                // The store gives the single bucket the time 0.
                (true, Buckets::One { start, .. }) => {
                    self.bucketed
                        .extend(samples.iter().map(|point| (*start, point.1)));
                }
                _ => buckets.fold(
                    samples,
                    downsample.function,
                    &mut self.values,
                    &mut self.bucketed,
                ),
            }
            if let Some(value) = downsample.fill.value() {
                buckets.fill(&mut self.bucketed, value);
            }
            points = &self.bucketed;
        }
        if let Some(rate) = &self.plan.query.rate {
            self.rates.clear();
            rate.apply(points, &mut self.rates);
            points = &self.rates;
        }
        points
    }
}
