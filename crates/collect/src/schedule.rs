//! Decides when to sample: a pure state machine over two clocks, without threads or waiting. The
//! sampler feeds it the clocks and takes the due tracks from it.
//!
//! Each track has a rate; its nominal times are the UTC multiples of that rate. A nominal time is
//! converted to a monotonic deadline with one offset between the clocks, which is measured again
//! every second. So a slewing clock moves deadlines but never repeats a nominal time: nominal times
//! only increase. If the clock is off by [`STEP_MIN`] or the fastest rate, whichever is larger, it
//! was stepped: the step is counted, and every track continues with the next multiple of the new
//! time.

use std::time::Duration;

use pegel_metric::{Clock, Millis};

/// The smallest clock step. A smaller difference between the clocks is slew.
pub(crate) const STEP_MIN: Duration = Duration::from_millis(500);

const OFFSET_REFRESH_NANOS: i64 = 1_000_000_000;
const MILLI_NANOS: i64 = 1_000_000;

/// Both clocks at one moment, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockPair {
    pub utc: i64,
    pub monotonic: i64,
}

impl ClockPair {
    /// Reads both clocks. If the thread were preempted between the reads, the difference would look
    /// like a clock step, so a slow read is repeated.
    pub fn read(clock: &dyn Clock) -> ClockPair {
        let mut before = nanos(clock.monotonic());
        for _ in 0..3 {
            let utc = clock.utc_nanos();
            let after = nanos(clock.monotonic());
            if after - before < MILLI_NANOS / 10 {
                return ClockPair {
                    utc,
                    monotonic: after,
                };
            }
            before = after;
        }
        ClockPair {
            utc: clock.utc_nanos(),
            monotonic: before,
        }
    }

    pub(crate) fn utc_millis(self) -> Millis {
        self.utc.div_euclid(MILLI_NANOS)
    }
}

/// Deviations from the schedule since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScheduleCounts {
    /// Passes that ran more than half an interval after their deadline.
    pub late: u64,
    /// Nominal times without a pass.
    pub missed: u64,
    pub clock_steps: u64,
}

#[derive(Debug)]
pub struct Schedule {
    tracks: Vec<RateTrack>,
    /// UTC minus monotonic time.
    offset: i64,
    /// The monotonic time at which `offset` was measured.
    offset_measured_at: i64,
    step_threshold: i64,
    /// The newest sampled time; `None` before the first pass and after a clock step.
    newest_taken: Option<i64>,
    is_first: bool,
    counts: ScheduleCounts,
}

#[derive(Debug)]
struct RateTrack {
    rate: i64,
    /// The next nominal time.
    next: i64,
}

impl Schedule {
    /// Creates a schedule whose tracks are all due at once. A rate below a millisecond counts as
    /// one millisecond.
    pub fn new(rates: &[Duration], now: ClockPair) -> Schedule {
        let track = |rate: &Duration| {
            let rate = nanos(*rate).max(MILLI_NANOS);
            RateTrack {
                rate,
                next: now.utc,
            }
        };
        let tracks: Vec<RateTrack> = rates.iter().map(track).collect();
        let fastest = tracks.iter().map(|track| track.rate).min().unwrap_or(0);
        Schedule {
            tracks,
            offset: now.utc - now.monotonic,
            offset_measured_at: now.monotonic,
            step_threshold: fastest.max(nanos(STEP_MIN)),
            newest_taken: None,
            is_first: true,
            counts: ScheduleCounts::default(),
        }
    }

    /// Compares the clocks. Call it after every wait, before [`Schedule::take_due`].
    pub fn observe(&mut self, now: ClockPair) {
        let offset = now.utc.saturating_sub(now.monotonic);
        if offset.saturating_sub(self.offset).saturating_abs() >= self.step_threshold {
            self.counts.clock_steps += 1;
            self.newest_taken = None;
            for track in &mut self.tracks {
                track.next = newest_multiple(now.utc, track.rate) + track.rate;
            }
        } else if now.monotonic - self.offset_measured_at < OFFSET_REFRESH_NANOS {
            return;
        }
        self.offset = offset;
        self.offset_measured_at = now.monotonic;
    }

    /// Returns the oldest nominal time that is due and puts its tracks into `due`, by position.
    /// Call it until it returns `None`. A track that fell behind yields only its newest time; the
    /// others count as missed.
    pub fn take_due(&mut self, now: ClockPair, due: &mut Vec<usize>) -> Option<Millis> {
        let utc = now.monotonic + self.offset;
        due.clear();
        if std::mem::take(&mut self.is_first) {
            return self.take_first(utc, due);
        }
        let is_due = |track: &&RateTrack| track.next <= utc;
        let time = self
            .tracks
            .iter()
            .filter(is_due)
            .map(|track| newest_multiple(utc, track.rate))
            .min()?;
        for (index, track) in self.tracks.iter_mut().enumerate() {
            if track.next > utc || newest_multiple(utc, track.rate) != time {
                continue;
            }
            self.counts.missed += (time - track.next).unsigned_abs() / track.rate.unsigned_abs();
            if utc - time > track.rate / 2 {
                self.counts.late += 1;
            }
            track.next = time + track.rate;
            due.push(index);
        }
        self.newest_taken = self.newest_taken.max(Some(time));
        Some(time.div_euclid(MILLI_NANOS))
    }

    /// Makes all tracks due. The first pass lies between two nominal times and carries the actual
    /// time: the previous multiple is in the past, and an agent that ran until just now may have
    /// sampled it.
    fn take_first(&mut self, utc: i64, due: &mut Vec<usize>) -> Option<Millis> {
        due.extend(0..self.tracks.len());
        for track in &mut self.tracks {
            track.next = newest_multiple(utc, track.rate) + track.rate;
        }
        self.newest_taken = Some(utc);
        (!due.is_empty()).then_some(utc.div_euclid(MILLI_NANOS))
    }

    /// Continues after a pass whose samples were read at `time`, after the next nominal time of
    /// the tracks with this rate. That nominal time has its sample, so those before it are missed.
    pub(crate) fn record_overrun(&mut self, rate: Duration, time: Millis) {
        let rate = nanos(rate).max(MILLI_NANOS);
        let time = newest_multiple(time.saturating_mul(MILLI_NANOS), rate);
        for track in &mut self.tracks {
            if track.rate == rate && track.next <= time {
                self.counts.missed += ((time - track.next) / rate + 1).unsigned_abs();
                track.next = time + rate;
                self.newest_taken = self.newest_taken.max(Some(time));
            }
        }
    }

    /// Returns UTC minus monotonic time, in nanoseconds.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Returns the monotonic time of the next deadline.
    pub fn deadline(&self) -> Option<Duration> {
        let next = self.tracks.iter().map(|track| track.next).min()?;
        Some(Duration::from_nanos(
            u64::try_from(next - self.offset).unwrap_or(0),
        ))
    }

    /// Returns the time of a last pass between two nominal times: now, unless it was already
    /// sampled.
    pub fn final_time(&self, now: ClockPair) -> Option<Millis> {
        let utc = (now.monotonic + self.offset).div_euclid(MILLI_NANOS);
        let is_taken = self
            .newest_taken
            .is_some_and(|taken| taken.div_euclid(MILLI_NANOS) >= utc);
        (!is_taken).then_some(utc)
    }

    pub fn schedule_counts(&self) -> ScheduleCounts {
        self.counts
    }
}

/// Returns the newest multiple of `rate` that is not after `utc`.
fn newest_multiple(utc: i64, rate: i64) -> i64 {
    utc.div_euclid(rate) * rate
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
