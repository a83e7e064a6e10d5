//! The increase per second of counters between ticks.

use pegel_metric::Millis;

/// The increase per second of the counters of one node between consecutive ticks.
///
/// - The first value of a counter has no rate.
/// - A decrease is a reset: the counter started again from 0, as in Prometheus.
/// - `started_ms` changes when the node's agent restarts. A counter that continues (it did not
///   decrease) has a rate across the restart; another one has none at its first tick.
/// - After missing ticks the increase is divided by the time that passed.
///
/// Readings are kept by key: keys are small numbers that count up.
#[derive(Debug, Default)]
pub struct NodeCounterRates {
    started_ms: i64,
    newest: Vec<CounterReading>,
    /// The newest readings before the last restart, of counters that did not occur since.
    before_restart: Vec<CounterReading>,
}

#[derive(Debug, Clone, Copy)]
struct CounterReading {
    time: Millis,
    /// NaN: there is no reading.
    value: f64,
    /// NaN: none.
    rate: f64,
}

const NO_READING: CounterReading = CounterReading {
    time: 0,
    value: f64::NAN,
    rate: f64::NAN,
};

/// Replaces the reading of a key and returns it.
fn take_reading(readings: &mut [CounterReading], key: u32) -> CounterReading {
    let reading = readings.get_mut(key as usize);
    reading.map_or(NO_READING, |reading| std::mem::replace(reading, NO_READING))
}

impl NodeCounterRates {
    pub fn new() -> NodeCounterRates {
        NodeCounterRates::default()
    }

    /// Returns the rate at `time`, and keeps the value for the next call. The same time again has
    /// the same rate, so a tick can be repeated. NaN and infinite values have no rate.
    pub fn rate(&mut self, key: u32, time: Millis, value: f64, started_ms: i64) -> Option<f64> {
        if !value.is_finite() {
            return None;
        }
        if started_ms != self.started_ms {
            self.started_ms = started_ms;
            self.before_restart = std::mem::take(&mut self.newest);
        }
        let index = key as usize;
        if index >= self.newest.len() {
            self.newest.resize(index + 1, NO_READING);
        }
        let last = self.newest[index];
        let mut rate = f64::NAN;
        if !last.value.is_nan() {
            if last.time == time {
                rate = last.rate;
            } else {
                let base = if value < last.value { 0.0 } else { last.value };
                rate = increase_per_second(value - base, last.time, time);
            }
        } else {
            let last = take_reading(&mut self.before_restart, key);
            if value >= last.value {
                rate = increase_per_second(value - last.value, last.time, time);
            }
        }
        self.newest[index] = CounterReading { time, value, rate };
        Some(rate).filter(|rate| !rate.is_nan())
    }

    /// Forgets a counter, before its key is used for another one.
    pub fn forget(&mut self, key: u32) {
        take_reading(&mut self.newest, key);
        take_reading(&mut self.before_restart, key);
    }
}

/// Returns NaN if no time passed.
fn increase_per_second(increase: f64, from: Millis, to: Millis) -> f64 {
    match to.checked_sub(from) {
        Some(elapsed_ms) if elapsed_ms > 0 => increase * 1000.0 / elapsed_ms as f64,
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_resets_and_gaps() {
        let mut rates = NodeCounterRates::new();
        let mut rate = |time, value| rates.rate(7, time, value, 1);
        assert_eq!(rate(1_000, 100.0), None);
        assert_eq!(rate(2_000, 150.0), Some(50.0));
        assert_eq!(rate(2_000, 150.0), Some(50.0), "a repeated tick");
        assert_eq!(rate(3_000, 150.0), Some(0.0));
        assert_eq!(rate(7_000, 250.0), Some(25.0), "after a gap");
        assert_eq!(rate(8_000, 30.0), Some(30.0), "a reset counts from 0");
        assert_eq!(rate(9_000, f64::NAN), None);
        assert_eq!(rate(10_000, 50.0), Some(10.0), "NaN was not kept");
        assert_eq!(rate(5_000, 60.0), None, "the clock was set back");
        assert_eq!(rate(6_000, 61.0), Some(1.0));
    }

    #[test]
    fn a_restart_has_a_rate_only_if_the_value_continues() {
        let mut rates = NodeCounterRates::new();
        for key in [1, 2, 3] {
            rates.rate(key, 1_000, 100.0, 1);
        }
        assert_eq!(rates.rate(1, 3_000, 120.0, 2), Some(10.0));
        assert_eq!(rates.rate(2, 3_000, 5.0, 2), None);
        assert_eq!(
            rates.rate(2, 4_000, 3.0, 2),
            Some(3.0),
            "a later decrease is a reset"
        );
        assert_eq!(
            rates.rate(3, 5_000, 140.0, 2),
            Some(10.0),
            "seen later than others"
        );
        assert_eq!(rates.rate(4, 5_000, 1.0, 2), None);
        rates.forget(1);
        assert_eq!(rates.rate(1, 4_000, 130.0, 2), None);
    }
}
