//! A store with one hour of samples.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Clock, Input, Millis};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::{FakeClock, TempDir};

use crate::{SimulatedNode, is_trial_run};

/// A store with one hour of the simulated node at 1 Hz; ten minutes in a trial run.
#[derive(Debug)]
pub struct RecordedHour {
    pub store: Store,
    pub dir: TempDir,
    pub clock: Arc<FakeClock>,
    pub start: Millis,
    pub samples: u64,
}

impl RecordedHour {
    pub const MILLIS: Millis = 3_600_000;

    /// Returns the length of a recording: less than an hour in a trial run.
    pub fn length_ms() -> Millis {
        if is_trial_run() {
            600_000
        } else {
            RecordedHour::MILLIS
        }
    }

    /// Records the hour that begins at `start`. It must be a whole hour to be sealed.
    pub fn record(start: Millis) -> RecordedHour {
        RecordedHour::record_beside(start, |_, _| {})
    }

    /// Like [`RecordedHour::record`]; `store_more` adds further samples at each second.
    pub fn record_beside(
        start: Millis,
        mut store_more: impl FnMut(&Store, Millis),
    ) -> RecordedHour {
        let dir = TempDir::new();
        let clock = Arc::new(FakeClock::new(start));
        let mut options = StoreOptions::new(dir.path());
        options.clock = clock.clone();
        let store = Store::open(options).expect("the store opens");
        let mut node = SimulatedNode::new(1);
        let seconds = RecordedHour::length_ms() as u64 / 1_000;
        for second in 0..seconds {
            store.tick(node.tick(clock.utc()));
            store_more(&store, clock.utc());
            if second % 60 == 0 {
                // Returns when the writer has stored all ticks sent before.
                store
                    .push(Input::Push, Vec::new())
                    .expect("the writer answers");
            }
            clock.advance(Duration::from_secs(1));
        }
        store
            .push(Input::Push, Vec::new())
            .expect("the writer answers");
        RecordedHour {
            store,
            dir,
            clock,
            start,
            samples: seconds * node.series_count() as u64,
        }
    }

    /// Advances the clock by two more hours, so that the hour is sealed.
    pub fn seal(&self) {
        self.clock.advance(Duration::from_secs(2 * 3600 + 1));
        self.store.flush_to_blocks();
    }
}
