//! The samples that are sent together, by series. The thread of a target fills a round from the
//! stream and clears it when all of its requests are confirmed, refused or dropped.

use pegel_metric::Millis;

use super::series_table::{SendChoice, TargetSeries};

/// A sample of the series in a slot.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SlotSample {
    slot: u32,
    time: Millis,
    value: f64,
}

/// Samples in the order of the log. Those that are not newer than what was sent of their series are
/// kept apart: receivers that refuse them (Prometheus without an out-of-order window) refuse the
/// whole request.
#[derive(Debug, Default)]
pub(super) struct Round {
    in_order: Vec<SlotSample>,
    late: Vec<SlotSample>,
    /// Samples that are not sent because another series has the same labels.
    pub hidden: u64,
    /// All samples that were taken from the log, including those that are not sent.
    pub taken: u64,
}

impl Round {
    pub(super) fn clear(&mut self) {
        self.in_order.clear();
        self.late.clear();
        self.hidden = 0;
        self.taken = 0;
    }

    /// Returns the number of samples to send.
    pub(super) fn len(&self) -> usize {
        self.in_order.len() + self.late.len()
    }

    /// Adds a sample if its series is sent.
    #[inline]
    pub(super) fn add(&mut self, table: &mut TargetSeries, slot: u32, time: Millis, value: f64) {
        self.taken += 1;
        let known = table.slot_mut(slot);
        match known.choice {
            SendChoice::Sent => {}
            SendChoice::NotChosen => return,
            SendChoice::Hidden => {
                self.hidden += 1;
                return;
            }
        }
        let sample = SlotSample { slot, time, value };
        if time > known.newest {
            known.newest = time;
            self.in_order.push(sample);
        } else {
            self.late.push(sample);
        }
    }

    /// Returns the samples in order, by series.
    pub(super) fn series_in_order(&self, table: &TargetSeries) -> GroupedSamples {
        GroupedSamples::group(&self.in_order, table.len())
    }

    /// Returns the late samples by series, sorted by time, and the number of duplicates: of several
    /// samples of a series with one time, only the last is returned.
    pub(super) fn late_series(&self, table: &TargetSeries) -> (GroupedSamples, u64) {
        let grouped = GroupedSamples::group(&self.late, table.len());
        let mut sorted = GroupedSamples::default();
        for (slot, samples) in grouped.iter() {
            let start = sorted.samples.len();
            sorted.samples.extend_from_slice(samples);
            sorted.samples[start..].sort_by_key(|(time, _)| *time);
            let mut kept = start;
            for at in start..sorted.samples.len() {
                let is_replaced = { sorted.samples.get(at + 1) }
                    .is_some_and(|next| next.0 == sorted.samples[at].0);
                if !is_replaced {
                    sorted.samples[kept] = sorted.samples[at];
                    kept += 1;
                }
            }
            sorted.samples.truncate(kept);
            sorted.series.push((slot, start, kept));
        }
        let replaced = grouped.samples.len() - sorted.samples.len();
        (sorted, replaced as u64)
    }
}

/// Samples by series, in the order in which the series first appear.
#[derive(Debug, Default)]
pub(super) struct GroupedSamples {
    /// Slot, and the range of its samples.
    series: Vec<(u32, usize, usize)>,
    samples: Vec<(Millis, f64)>,
}

impl GroupedSamples {
    /// Sorts samples by series in time proportional to their number; samples of a series keep their
    /// order.
    fn group(list: &[SlotSample], slots: usize) -> GroupedSamples {
        const NONE: u32 = u32::MAX;
        if list.is_empty() {
            return GroupedSamples::default();
        }
        let mut place_of_slot = vec![NONE; slots];
        let mut series: Vec<(u32, usize, usize)> = Vec::new();
        for sample in list {
            let place = &mut place_of_slot[sample.slot as usize];
            if *place == NONE {
                *place = series.len() as u32;
                series.push((sample.slot, 0, 0));
            }
            series[*place as usize].2 += 1;
        }
        let mut start = 0;
        for (_, from, count) in &mut series {
            let end = start + *count;
            // The end of the samples of this series that are copied so far.
            (*from, *count) = (start, start);
            start = end;
        }
        let mut samples = vec![(0, 0.0); list.len()];
        for sample in list {
            let end = &mut series[place_of_slot[sample.slot as usize] as usize].2;
            samples[*end] = (sample.time, sample.value);
            *end += 1;
        }
        GroupedSamples { series, samples }
    }

    /// Iterates over slots and their samples.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[(Millis, f64)])> {
        let series = self.series.iter();
        series.map(|&(slot, from, to)| (slot, &self.samples[from..to]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(list: &[(u32, Millis)]) -> Vec<(u32, Vec<Millis>)> {
        let sample = |&(slot, time): &(u32, Millis)| SlotSample {
            slot,
            time,
            value: time as f64,
        };
        let list: Vec<SlotSample> = list.iter().map(sample).collect();
        let times = |samples: &[(Millis, f64)]| samples.iter().map(|(time, _)| *time).collect();
        let grouped = GroupedSamples::group(&list, 9);
        let lists = grouped.iter().map(|(slot, samples)| (slot, times(samples)));
        lists.collect()
    }

    #[test]
    fn samples_are_grouped_by_series_and_keep_their_order() {
        assert_eq!(group(&[]), []);
        assert_eq!(
            group(&[(5, 1), (2, 1), (5, 2), (8, 4), (2, 3), (5, 3)]),
            [(5, vec![1, 2, 3]), (2, vec![1, 3]), (8, vec![4])]
        );
    }
}
