use std::time::{Duration, Instant};

use pegel_lane::{CreateError, Handle, LaneSeriesSpec, ProcessLanes};

/// How long something takes, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Timer(pegel_lane::Timer);

/// Time that is running; recorded when the value goes out of scope.
#[derive(Debug)]
#[must_use = "the time is recorded when this goes out of scope"]
pub struct Running {
    timer: Timer,
    since: Instant,
}

impl Timer {
    /// Starts the clock.
    pub fn start(&self) -> Running {
        Running {
            timer: *self,
            since: Instant::now(),
        }
    }

    /// Records how long `work` takes, also when it panics.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let _running = self.start();
        work()
    }

    /// Records a time that was measured elsewhere.
    pub fn record(&self, elapsed: Duration) {
        self.0.record(elapsed);
    }
}

impl Running {
    /// Stops the clock without recording.
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
