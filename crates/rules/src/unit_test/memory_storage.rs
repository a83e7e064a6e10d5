//! Series in memory.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use pegel_metric::Millis;
use pegel_query::promql::{
    LabelSet, PromqlError, SampleColumns, Selection, SeriesSampleVisitor, SeriesSource,
};

use crate::storage::{RuleSample, RuleStorage};

#[derive(Debug, Default)]
pub(crate) struct MemoryStorage {
    series: RwLock<BTreeMap<LabelSet, Vec<(Millis, f64)>>>,
}

impl SeriesSource for MemoryStorage {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        for (labels, samples) in self.series.read().iter() {
            let mut matchers = selection.matchers.iter();
            if !matchers.all(|matcher| matcher.matches(labels)) {
                continue;
            }
            let from = samples.partition_point(|sample| sample.0 < selection.start);
            let until = samples.partition_point(|sample| sample.0 <= selection.end);
            if from < until {
                let columns = SampleColumns::new(&samples[from..until]);
                visit(labels.clone(), columns.samples())?;
            }
        }
        Ok(())
    }
}

impl RuleStorage for MemoryStorage {
    fn source(&self) -> &dyn SeriesSource {
        self
    }

    fn append(&self, samples: &[RuleSample]) -> Result<(), String> {
        let mut series = self.series.write();
        for sample in samples {
            let points = series.entry(sample.labels.clone()).or_default();
            match points.last_mut() {
                Some(last) if last.0 == sample.time => last.1 = sample.value,
                Some(last) if last.0 > sample.time => return Err("out of order sample".to_owned()),
                _ => points.push((sample.time, sample.value)),
            }
        }
        Ok(())
    }
}
