//! The times at which the runs of each group begin, for queries that complete ticks: a series that
//! has no column in the next run of its group was absent from its first row.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::Millis;

#[derive(Debug, Default)]
pub(crate) struct GroupRuns {
    numbers: HashMap<Arc<str>, u32>,
    /// For each group, the times of the first rows of its runs.
    starts: Vec<Vec<Millis>>,
    count: usize,
}

impl GroupRuns {
    /// Returns the number of a group.
    pub(super) fn number(&mut self, group: &Arc<str>) -> u32 {
        if let Some(number) = self.numbers.get(group) {
            return *number;
        }
        let number = self.starts.len() as u32;
        self.numbers.insert(group.clone(), number);
        self.starts.push(Vec::new());
        number
    }

    pub(super) fn add(&mut self, group: &Arc<str>, first_row: Millis) {
        let number = self.number(group);
        self.starts[number as usize].push(first_row);
        self.count += 1;
    }

    /// Prepares for [`next_run`](GroupRuns::next_run), after the last call of `add`.
    pub(super) fn sort(&mut self) {
        for starts in &mut self.starts {
            starts.sort_unstable();
        }
    }

    /// Returns the first row of the first run that begins after `time`.
    pub(super) fn next_run(&self, group: u32, time: Millis) -> Option<Millis> {
        let starts = self.starts.get(group as usize)?;
        let next = starts.partition_point(|start| *start <= time);
        starts.get(next).copied()
    }

    pub(super) fn bytes(&self) -> usize {
        self.count * size_of::<Millis>() + self.starts.len() * 128
    }
}
