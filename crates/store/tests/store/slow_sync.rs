//! A disk whose syncs block as long as the test requires: neither pushes nor readers wait for them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pegel_metric::{Clock, Family, Input, MetricKind, Point, Selector, Series, SystemClock};
use pegel_store::{RangeQuery, Store, StoreOptions};
use pegel_testkit::{FileFailure, FileHook, FileOperation, HookedFiles, TempDir, eventually};

static DEPTH: Family = Family::new("depth", MetricKind::Gauge, "", 1, "How deep it is.");

/// The number of blocked syncs, and whether they may continue.
#[derive(Debug, Default)]
struct SyncBlocker {
    state: Mutex<(usize, bool)>,
    opened: Condvar,
}

impl SyncBlocker {
    fn block_until_open(&self) {
        let mut state = self.state.lock();
        state.0 += 1;
        while !state.1 {
            self.opened.wait(&mut state);
        }
        state.0 -= 1;
    }

    fn waiting(&self) -> usize {
        self.state.lock().0
    }

    fn open(&self) {
        self.state.lock().1 = true;
        self.opened.notify_all();
    }
}

impl FileHook for SyncBlocker {
    fn before(&self, operation: FileOperation) -> Result<(), FileFailure> {
        if operation == FileOperation::Sync {
            self.block_until_open();
        }
        Ok(())
    }
}

#[test]
fn pushes_are_acknowledged_and_readable_while_syncs_hang() {
    let (dir, blocker) = (TempDir::new(), Arc::new(SyncBlocker::default()));
    let mut options = StoreOptions::new(dir.path());
    options.files = Arc::new(HookedFiles::with(blocker.clone()));
    // A sync that hangs for seconds degrades the store, which other tests cover.
    options.disk_timeout = Duration::from_secs(600);
    // A new segment with nearly every push: a rotation must not wait either.
    options.keep.memory = Duration::from_millis(1).into();
    let store = Store::open(options).expect("opens");
    let series = Arc::new(Series::new(Arc::new(DEPTH.clone()), &[]).expect("valid"));
    let start = SystemClock.utc() - 10_000;
    let mut pushed = 0;
    let push = |pushed: &mut i64| {
        let point = Point {
            series: series.clone(),
            time: start + *pushed,
            value: *pushed as f64,
        };
        store.push(Input::Push, vec![point]).expect("taken");
        *pushed += 1;
    };
    // Continue until both the syncer and maintenance hang in a sync, and a little longer.
    eventually("syncs hang", || {
        push(&mut pushed);
        if blocker.waiting() >= 2 {
            Ok(())
        } else {
            Err(blocker.waiting())
        }
    });
    (0..100).for_each(|_| push(&mut pushed));
    let query = RangeQuery::new(Selector::name("depth"), start, start + pushed, None);
    let mut read = 0;
    store
        .query_range(&query, &mut |_, points| read = points.len() as i64)
        .expect("an answer");
    assert_eq!(read, pushed);
    blocker.open();
    store.flush_to_blocks();
    store.close();
    assert!(store.status().degraded.is_none());
}

#[test]
fn readers_do_not_wait_while_the_list_of_hidden_ranges_is_written() {
    let (dir, blocker) = (TempDir::new(), Arc::new(SyncBlocker::default()));
    let mut options = StoreOptions::new(dir.path());
    options.files = Arc::new(HookedFiles::with(blocker.clone()));
    let store = Store::open(options).expect("opens");
    let hiding = {
        let store = store.clone();
        std::thread::spawn(move || store.hide_before(Input::Http, 5))
    };
    eventually("the file's sync hangs", || match blocker.waiting() {
        0 => Err(0),
        _ => Ok(()),
    });
    let (read, answered) = std::sync::mpsc::channel();
    let reader = {
        let store = store.clone();
        std::thread::spawn(move || {
            store.latest(&Selector::all(), 0, &mut |_, _| {});
            let _ = read.send(store.hidden_before(Input::Http));
        })
    };
    let seen = answered.recv_timeout(Duration::from_secs(20));
    blocker.open();
    hiding.join().expect("no panic").expect("written");
    reader.join().expect("no panic");
    assert_eq!(seen, Ok(None), "a reader waited for the disk");
    assert_eq!(store.hidden_before(Input::Http), Some(5));
}
