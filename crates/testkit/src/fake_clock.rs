//! A clock controlled by the test.

use std::time::Duration;

use parking_lot::Mutex;
use pegel_metric::{Clock, Millis};

/// A clock that advances only when the test moves it.
#[derive(Debug)]
pub struct FakeClock {
    now: Mutex<(Millis, Duration)>,
}

impl FakeClock {
    pub fn new(utc: Millis) -> FakeClock {
        FakeClock {
            now: Mutex::new((utc, Duration::ZERO)),
        }
    }

    /// Advances both clocks.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock();
        now.0 += i64::try_from(by.as_millis()).expect("a step that fits");
        now.1 += by;
    }

    /// Steps the wall clock in either direction; the monotonic clock is not affected.
    pub fn step(&self, by: Millis) {
        self.now.lock().0 += by;
    }
}

impl Clock for FakeClock {
    fn utc(&self) -> Millis {
        self.now.lock().0
    }

    fn monotonic(&self) -> Duration {
        self.now.lock().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_moves_only_the_wall_clock() {
        let clock = FakeClock::new(1_000);
        clock.advance(Duration::from_millis(500));
        clock.step(-700);
        assert_eq!(
            (clock.utc(), clock.monotonic()),
            (800, Duration::from_millis(500))
        );
    }
}
