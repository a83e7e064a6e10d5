//! The last minutes of one series for sparklines, one value per second.

use std::collections::VecDeque;

/// Length of a history in seconds.
pub(crate) const HISTORY_SECONDS: usize = 240;

/// Values by second, oldest first. A missing second is drawn as a gap.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    values: VecDeque<(i64, f64)>,
}

impl History {
    /// Sets the value of the newest second, replacing a previous one.
    pub(crate) fn push(&mut self, second: i64, value: f64) {
        // Later seconds exist only if the clock was set back.
        while self.values.back().is_some_and(|(last, _)| *last >= second) {
            self.values.pop_back();
        }
        self.values.push_back((second, value));
        if self.values.len() > HISTORY_SECONDS {
            self.values.pop_front();
        }
    }

    /// Inserts samples from the agent before the values recorded here.
    pub(crate) fn prepend(&mut self, samples: &[(f64, f64)], is_counter: bool, now: i64) {
        let older = by_second(samples, is_counter, now);
        let first = self.values.front().map_or(i64::MAX, |(second, _)| *second);
        let mut values: VecDeque<(i64, f64)> = older
            .into_iter()
            .filter(|(second, _)| *second < first)
            .collect();
        values.append(&mut self.values);
        while values.len() > HISTORY_SECONDS {
            values.pop_front();
        }
        self.values = values;
    }

    /// Returns means over `step` seconds each, oldest first. The last column contains `now`.
    /// Columns begin at multiples of the step, so that their values do not change as time passes.
    pub(crate) fn columns(&self, now: i64, count: usize, step: i64) -> Vec<Option<f64>> {
        let mut columns = vec![(0.0, 0u32); count];
        let last = now.div_euclid(step);
        let first = last - count as i64 + 1;
        for (second, value) in self.values.iter().filter(|(_, value)| value.is_finite()) {
            let column = second.div_euclid(step);
            if *second <= now && (first..=last).contains(&column) {
                let (sum, seconds) = &mut columns[(column - first) as usize];
                (*sum, *seconds) = (*sum + value, *seconds + 1);
            }
        }
        columns
            .into_iter()
            .map(|(sum, seconds)| (seconds > 0).then(|| sum / f64::from(seconds)))
            .collect()
    }
}

/// Converts samples to one value per second: the last value of a gauge, or the slope of a counter.
fn by_second(samples: &[(f64, f64)], is_counter: bool, now: i64) -> Vec<(i64, f64)> {
    let mut values = Vec::new();
    for (index, pair) in samples.windows(2).enumerate() {
        let ((from, a), (to, b)) = (pair[0], pair[1]);
        if to <= from {
            continue;
        }
        let increase = if b >= a { b - a } else { b };
        let value = if is_counter {
            increase / (to - from)
        } else {
            a
        };
        let first = if index == 0 { from } else { from + 1e-3 };
        for second in first.ceil() as i64..=to.floor() as i64 {
            values.push((second, value));
        }
        // With several samples in a second, the last one counts.
        if from.floor() == to.floor() || to.fract() == 0.0 {
            values.push((to.floor() as i64, if is_counter { value } else { b }));
        }
    }
    // A gauge keeps its last value until now; a counter keeps its slope for one more interval.
    if let Some((last, value)) = samples.last() {
        let slope = values
            .last()
            .map(|(_, slope)| *slope)
            .filter(|_| is_counter);
        let gap = samples
            .len()
            .checked_sub(2)
            .map(|before| last - samples[before].0);
        let until = match gap.filter(|_| is_counter) {
            Some(gap) => now.min((last + gap).floor() as i64),
            None => now,
        };
        let value = slope.unwrap_or(*value);
        let from = last.floor() as i64 + 1;
        if !is_counter || slope.is_some() {
            values.extend((from..=until).map(|second| (second, value)));
        }
    }
    values.sort_by_key(|(second, _)| *second);
    // Keep the last of several values of one second.
    values.reverse();
    values.dedup_by_key(|(second, _)| *second);
    values.reverse();
    values.retain(|(second, _)| *second <= now);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_keeps_its_value_and_a_counter_its_slope() {
        let gauge = by_second(&[(10.0, 1.0), (12.0, 3.0)], false, 13);
        assert_eq!(gauge, [(10, 1.0), (11, 1.0), (12, 3.0), (13, 3.0)]);
        let counter = by_second(&[(10.0, 0.0), (12.0, 10.0), (14.0, 4.0)], true, 15);
        assert_eq!(
            counter,
            [
                (10, 5.0),
                (11, 5.0),
                (12, 5.0),
                (13, 2.0),
                (14, 2.0),
                (15, 2.0)
            ]
        );
    }

    #[test]
    fn the_last_sample_of_a_second_counts() {
        let samples = [(10.0, 0.0), (10.5, 1.0), (11.0, 2.0), (11.5, 9.0)];
        assert_eq!(by_second(&samples, false, 11), [(10, 1.0), (11, 9.0)]);
        assert_eq!(by_second(&samples, true, 11), [(10, 2.0), (11, 14.0)]);
        assert_eq!(by_second(&[], true, 11), []);
    }

    #[test]
    fn samples_from_the_agent_precede_recorded_values() {
        let mut history = History::default();
        history.push(12, 7.0);
        history.push(12, 8.0);
        history.prepend(&[(9.0, 1.0), (12.0, 2.0)], false, 12);
        assert_eq!(
            history.columns(13, 6, 1),
            [None, Some(1.0), Some(1.0), Some(1.0), Some(8.0), None]
        );
    }

    #[test]
    fn columns_are_means_that_do_not_change_as_time_passes() {
        let mut history = History::default();
        (10..=18).for_each(|second| history.push(second, second as f64));
        assert_eq!(
            history.columns(18, 3, 3),
            [Some(13.0), Some(16.0), Some(18.0)]
        );
        history.push(19, 20.0);
        assert_eq!(
            history.columns(19, 3, 3),
            [Some(13.0), Some(16.0), Some(19.0)]
        );
        assert_eq!(history.columns(40, 2, 3), [None, None]);
    }

    #[test]
    fn only_the_last_minutes_are_kept() {
        let mut history = History::default();
        (0..1000).for_each(|second| history.push(second, 1.0));
        assert_eq!(history.values.len(), HISTORY_SECONDS);
        history.push(10, 2.0);
        assert_eq!(history.columns(10, 2, 1), [None, Some(2.0)]);
    }
}
