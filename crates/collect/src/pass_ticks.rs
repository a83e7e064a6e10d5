//! Decides which time the samples of a group carry, and puts groups with the same time into one
//! tick.
//!
//! A group carries the nominal time of its pass while it is read within [`nominal_tolerance`] of
//! it. A group that is read later, on a busy machine or by a slow thread, carries the time of
//! reading: over a wrong interval, the modes of a CPU would add up to more than a CPU. The next
//! nominal time belongs to a group that is read after it (a [`PassOverrun`]), so no nominal time
//! has two samples. Usually all groups of a pass are one tick.

use std::time::Duration;

use pegel_metric::{Input, Millis, Tick, nominal_tolerance};

const MILLI_NANOS: i64 = 1_000_000;

/// The time of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PassTime {
    /// The time for which the pass is taken.
    pub nominal: Millis,
    /// UTC minus monotonic time, in nanoseconds. `None`: every group carries the nominal time,
    /// whenever it is read.
    pub offset: Option<i64>,
}

/// When a group was read, and how often it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupReading {
    /// Monotonic.
    pub at: Duration,
    pub rate: Duration,
    /// The first time that the group may carry: earlier ones are stored or counted as missed.
    pub earliest: Millis,
}

/// The ticks of one pass. Their buffers are reused from pass to pass.
#[derive(Debug)]
pub(crate) struct PassTicks {
    time: PassTime,
    /// The tick with the nominal time comes first. Others are in use only if their groups were read
    /// at other times.
    ticks: Vec<Tick>,
    used: usize,
    overruns: Vec<PassOverrun>,
}

/// A group that was read after the next nominal time of its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PassOverrun {
    pub rate: Duration,
    /// The time that the group carries.
    pub time: Millis,
}

impl PassTicks {
    pub(crate) fn new() -> PassTicks {
        PassTicks {
            time: PassTime::default(),
            ticks: vec![Tick::new(Input::Collect)],
            used: 1,
            overruns: Vec::new(),
        }
    }

    /// Starts a pass: removes all groups.
    pub(crate) fn begin(&mut self, time: PassTime) {
        self.time = time;
        self.ticks[0].reset(time.nominal);
        self.used = 1;
        self.overruns.clear();
    }

    /// Returns the tick with the nominal time.
    pub(crate) fn nominal(&mut self) -> &mut Tick {
        &mut self.ticks[0]
    }

    /// Returns whether every group carries the nominal time.
    pub(crate) fn is_untimed(&self) -> bool {
        self.time.offset.is_none()
    }

    /// Returns the tick for a group that is read during this pass, at a monotonic time.
    pub(crate) fn tick_of_pass(&mut self, at: Duration, rate: Duration) -> &mut Tick {
        let nominal = self.time.nominal;
        let at = self.index_for(&GroupReading {
            at,
            rate,
            earliest: nominal,
        });
        let (time, step) = (self.ticks[at].time, millis(rate));
        if time.div_euclid(step) > nominal.div_euclid(step) {
            self.overruns.push(PassOverrun { rate, time });
        }
        &mut self.ticks[at]
    }

    /// Returns the groups that were read after their next nominal time, which belongs to them now.
    pub(crate) fn overruns(&self) -> &[PassOverrun] {
        &self.overruns
    }

    /// Converts a monotonic time to UTC; `None` if every group carries the nominal time.
    pub(crate) fn utc(&self, monotonic: Duration) -> Option<Millis> {
        let utc = nanos(monotonic).saturating_add(self.time.offset?);
        Some(utc.div_euclid(MILLI_NANOS))
    }

    /// Returns the tick for a group that was read by a thread of its own.
    pub(crate) fn tick_for(&mut self, group: &GroupReading) -> &mut Tick {
        let at = self.index_for(group);
        &mut self.ticks[at]
    }

    fn index_for(&mut self, group: &GroupReading) -> usize {
        let Some(offset) = self.time.offset else {
            return 0;
        };
        let read_nanos = nanos(group.at).saturating_add(offset);
        let read_at = read_nanos.div_euclid(MILLI_NANOS).max(group.earliest);
        let tolerance = nanos(nominal_tolerance(group.rate));
        let is_near = |time: &Millis| {
            let late = read_nanos.saturating_sub(time.saturating_mul(MILLI_NANOS));
            late <= tolerance && (group.earliest..=read_at).contains(time)
        };
        // The pass of a thread is published after its nominal time.
        let rate = millis(group.rate);
        let nominal = read_at.div_euclid(rate) * rate;
        let others = self.ticks[..self.used].iter().map(|tick| tick.time);
        let time = std::iter::once(nominal).chain(others).find(is_near);
        self.index_at(time.unwrap_or(read_at))
    }

    /// Returns the index of the tick with this time; adds it if there is none.
    fn index_at(&mut self, time: Millis) -> usize {
        let mut used = self.ticks[..self.used].iter();
        let at = used.position(|tick| tick.time == time).unwrap_or(self.used);
        if at == self.ticks.len() {
            self.ticks.push(Tick::new(Input::Collect));
        }
        if at == self.used {
            self.ticks[at].reset(time);
            self.used += 1;
        }
        at
    }

    /// Returns the newest time of a group; `None` if there are no groups.
    pub(crate) fn newest(&self) -> Option<Millis> {
        let used = self.ticks[..self.used].iter();
        let filled = used.filter(|tick| !tick.rows().is_empty());
        filled.map(|tick| tick.time).max()
    }

    /// Passes every tick that has groups to `sink`.
    pub(crate) fn deliver(&mut self, mut sink: impl FnMut(&mut Tick)) {
        for tick in &mut self.ticks[..self.used] {
            if !tick.rows().is_empty() {
                sink(tick);
            }
        }
    }
}

/// Returns whole milliseconds, at least one: rates are whole milliseconds.
fn millis(rate: Duration) -> Millis {
    (nanos(rate) / MILLI_NANOS).max(1)
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many microseconds after 10,000.
    fn at(late: i64) -> Duration {
        Duration::from_micros(u64::try_from(10_000_000 + late).expect("after boot"))
    }

    /// The time that a group carries which is read during the pass.
    fn time(ticks: &mut PassTicks, rate: u64, late: i64) -> Millis {
        ticks
            .tick_of_pass(at(late), Duration::from_millis(rate))
            .time
    }

    fn pass() -> PassTicks {
        let mut ticks = PassTicks::new();
        ticks.begin(PassTime {
            nominal: 10_000,
            offset: Some(0),
        });
        ticks
    }

    #[test]
    fn a_reading_near_the_nominal_time_carries_it() {
        for (rate, late, expected) in [
            (500, 0, 10_000),
            (500, 5_000, 10_000),
            (500, 5_001, 10_005),
            (500, 480_000, 10_480),
            (500, 700_000, 10_700),
            (5_000, 50_000, 10_000),
            (5_000, 51_000, 10_051),
            (10, 1_000, 10_000),
            (10, 3_700, 10_003),
            (10, 12_000, 10_012),
            (1, 900, 10_000),
            (1, 5_200, 10_005),
        ] {
            let found = time(&mut pass(), rate, late);
            assert_eq!(found, expected, "every {rate} ms, {late} µs late");
        }
    }

    #[test]
    fn a_group_that_is_read_after_the_next_nominal_time_is_an_overrun() {
        let mut ticks = pass();
        time(&mut ticks, 500, 499_000);
        assert_eq!(ticks.overruns(), []);
        time(&mut ticks, 500, 1_200_000);
        let rate = Duration::from_millis(500);
        assert_eq!(ticks.overruns(), [PassOverrun { rate, time: 11_200 }]);
        ticks.begin(PassTime::default());
        assert_eq!(ticks.overruns(), []);
    }

    #[test]
    fn the_first_pass_lies_between_two_nominal_times() {
        let mut ticks = PassTicks::new();
        ticks.begin(PassTime {
            nominal: 9_800,
            offset: Some(0),
        });
        assert_eq!(time(&mut ticks, 500, -199_000), 9_800);
        assert_eq!(time(&mut ticks, 500, -100_000), 9_900);
        assert_eq!(ticks.overruns(), []);
        assert_eq!(time(&mut ticks, 500, 4_000), 10_000);
        assert_eq!(ticks.overruns().len(), 1);
        assert_eq!(ticks.newest(), None, "no groups were appended");
    }

    #[test]
    fn groups_that_are_read_together_share_a_tick() {
        let mut ticks = pass();
        assert_eq!(time(&mut ticks, 500, 20_000), 10_020);
        assert_eq!(time(&mut ticks, 500, 24_000), 10_020);
        assert_eq!(time(&mut ticks, 500, 26_000), 10_026);
        assert_eq!(time(&mut ticks, 5_000, 40_000), 10_000);
        assert_eq!(ticks.used, 3);
    }

    #[test]
    fn a_pass_that_is_published_later_carries_its_nominal_time_or_that_of_reading() {
        let time = |rate, late, earliest| {
            // Published with the tick of 10,500.
            let mut ticks = PassTicks::new();
            ticks.begin(PassTime {
                nominal: 10_500,
                offset: Some(0),
            });
            let group = GroupReading {
                at: at(late),
                rate: Duration::from_millis(rate),
                earliest,
            };
            ticks.tick_for(&group).time
        };
        assert_eq!(time(500, 4_000, 10_000), 10_000);
        assert_eq!(time(500, 8_000, 10_000), 10_008);
        assert_eq!(time(500, 498_000, 10_000), 10_498, "not in the future");
        assert_eq!(time(5_000, 49_000, 10_000), 10_000);
        assert_eq!(time(5_000, 300_000, 10_000), 10_300);
        assert_eq!(time(500, 4_000, 10_001), 10_004, "10,000 is taken");
        assert_eq!(time(100, 150_000, 10_300), 10_300, "a slow pass");
    }

    #[test]
    fn without_a_clock_every_group_carries_the_nominal_time() {
        let mut ticks = PassTicks::new();
        ticks.begin(PassTime {
            nominal: 7,
            offset: None,
        });
        assert_eq!(time(&mut ticks, 500, 900_000), 7);
    }
}
