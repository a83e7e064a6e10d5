//! Samples read back from an agent.

use std::collections::BTreeMap;

use crate::AgentProcess;

/// Stored samples by series and time; values are compared bit by bit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredSamples(BTreeMap<(String, i64), u64>);

impl StoredSamples {
    /// Reads every sample of the last hour of the matching series.
    #[track_caller]
    pub fn read(agent: &AgentProcess, matching: &str) -> StoredSamples {
        StoredSamples::since(agent, matching, "-1h")
    }

    /// Reads every sample from `start` on, which has the syntax of the request parameter. A
    /// duplicate series, or a time that is duplicate or out of order, fails the test.
    #[track_caller]
    pub fn since(agent: &AgentProcess, matching: &str, start: &str) -> StoredSamples {
        let answer = agent
            .get(&format!("/api/v1/range?match={matching}&start={start}"))
            .json();
        let mut samples = BTreeMap::new();
        for series in answer.as_array().expect("a list of series") {
            let text = format!("{}{}", series["name"], series["labels"]);
            let mut last = i64::MIN;
            for point in series["points"].as_array().expect("a list of points") {
                let time = point[0].as_i64().expect("milliseconds");
                // Values that are not finite are null in JSON.
                let value = point[1].as_f64().unwrap_or(f64::NAN).to_bits();
                assert!(last < time, "{text}: {time} after {last}");
                last = time;
                let before = samples.insert((text.clone(), time), value);
                assert!(before.is_none(), "duplicate series {text}");
            }
        }
        StoredSamples(samples)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn extend(&mut self, other: StoredSamples) {
        self.0.extend(other.0);
    }

    pub fn insert(&mut self, series: String, time: i64, value: f64) {
        self.0.insert((series, time), value.to_bits());
    }

    /// Returns the samples from this time on.
    pub fn from(&self, time: i64) -> StoredSamples {
        let later = self.0.iter().filter(|((_, at), _)| *at >= time);
        StoredSamples(later.map(|(key, value)| (key.clone(), *value)).collect())
    }

    /// Returns the values, by series and time.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        self.0.values().map(|value| f64::from_bits(*value))
    }

    /// Returns the times of all samples, in no particular order.
    pub fn times(&self) -> impl Iterator<Item = i64> {
        self.0.keys().map(|(_, time)| *time)
    }

    /// Asserts that `found` contains every sample with its value.
    #[track_caller]
    pub fn assert_all_in(&self, found: &StoredSamples) {
        let wrong: Vec<String> = self
            .0
            .iter()
            .filter(|(key, value)| found.0.get(*key) != Some(*value))
            .map(|(key, value)| {
                let now = found.0.get(key).map(|bits| f64::from_bits(*bits));
                format!(
                    "{} at {}: {}, now {now:?}",
                    key.0,
                    key.1,
                    f64::from_bits(*value)
                )
            })
            .collect();
        let shown = wrong
            .iter()
            .take(10)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n");
        let (count, all) = (wrong.len(), self.len());
        assert!(
            wrong.is_empty(),
            "{count} of {all} samples are lost or changed:\n{shown}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(list: &[(&str, i64, f64)]) -> StoredSamples {
        let list = list
            .iter()
            .map(|(text, time, value)| (((*text).to_owned(), *time), value.to_bits()));
        StoredSamples(list.collect())
    }

    #[test]
    fn more_is_fine() {
        samples(&[("a", 1, 2.0)]).assert_all_in(&samples(&[("a", 1, 2.0), ("a", 2, 3.0)]));
    }

    #[test]
    #[should_panic(expected = "1 of 2 samples are lost or changed:\na at 1: 2, now Some(3.0)")]
    fn a_changed_value_is_found() {
        samples(&[("a", 1, 2.0), ("a", 2, 3.0)])
            .assert_all_in(&samples(&[("a", 1, 3.0), ("a", 2, 3.0)]));
    }

    #[test]
    #[should_panic(expected = "a at 1: 2, now None")]
    fn a_lost_sample_is_found() {
        samples(&[("a", 1, 2.0)]).assert_all_in(&samples(&[("b", 1, 2.0)]));
    }
}
