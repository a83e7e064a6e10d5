//! Timers: durations in seconds.

use std::time::{Duration, Instant};

use pegel_lane::{CreateError, Handle, LaneSeriesSpec, ProcessLanes};

/// The duration of an operation, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Timer(pegel_lane::Timer);

/// A running measurement; recorded when the value goes out of scope.
#[derive(Debug)]
#[must_use = "the time is recorded when this goes out of scope"]
pub struct Running {
    timer: Timer,
    since: Instant,
}

impl Timer {
    /// Starts a measurement.
    pub fn start(&self) -> Running {
        Running {
            timer: *self,
            since: Instant::now(),
        }
    }

    /// Records the duration of `work`, also when it panics.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let _running = self.start();
        work()
    }

    /// Records a duration that was measured elsewhere.
    pub fn record(&self, elapsed: Duration) {
        self.0.record(elapsed);
    }
}

impl Running {
    /// Ends the measurement without recording it.
    pub fn cancel(self) {
        std::mem::forget(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.timer.record(self.since.elapsed());
    }
}

impl Handle for Timer {
    fn none() -> Timer {
        Timer(Handle::none())
    }

    fn create_in(
        home: &'static ProcessLanes,
        spec: &LaneSeriesSpec<'_>,
    ) -> Result<Timer, CreateError> {
        Handle::create_in(home, spec).map(Timer)
    }
}
