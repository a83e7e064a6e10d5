//! Real processes: fork, exec, closed descriptors, sudden death. Everything counted is present
//! exactly once.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::support::{SharedNumbers, count_in, counter, lane_of, total, wait_until};
use pegel_lane::reader::{LaneDirectoryHandle, ProcessState};
use pegel_lane::{Counter, Gauge, Handle, Histogram, Points, ProcessLanes, STALE_LANES_MAX, Timer};
use pegel_testkit::{ForkedChild, Rng, TempDir, eventually, open_lanes, open_ready_lanes};

#[test]
fn a_child_counts_into_a_lane_of_its_own() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let steps = Counter::create_in(home, &counter("steps_total")).expect("made");
    steps.add(1);
    let shared = SharedNumbers::new();
    let child = ForkedChild::run(|| {
        steps.add(10);
        let more = Counter::create_in(home, &counter("more_total")).expect("made");
        more.add(3);
        shared.set(0, 1);
        wait_until(|| shared.get(1) == 1);
    });
    shared.await_at_least(0, 1);
    steps.add(100);
    let mut own = lane_of(&dir, std::process::id() as i32);
    let mut childs = lane_of(&dir, child.pid());
    assert_ne!(own.header().id, childs.header().id);
    assert_eq!(count_in(&mut own, "steps_total"), 101);
    assert_eq!(count_in(&mut own, "more_total"), 0);
    assert_eq!(count_in(&mut childs, "steps_total"), 10);
    assert_eq!(count_in(&mut childs, "more_total"), 3);
    assert_eq!(childs.process(), ProcessState::Alive);
    assert!(!childs.is_ended().expect("asked"));
    shared.set(1, 1);
    assert_eq!(child.wait(), 0);
    assert!(childs.is_ended().expect("asked"));
    assert_eq!(childs.process(), ProcessState::Gone);
    assert!(!own.is_ended().expect("asked"));
    assert_eq!(count_in(&mut childs, "steps_total"), 10);
}

#[test]
fn a_child_that_counts_nothing_has_no_lane() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let steps = Counter::create_in(home, &counter("steps_total")).expect("made");
    assert_eq!(ForkedChild::run(|| {}).wait(), 0);
    assert_eq!(open_lanes(&dir).len(), 1);
    steps.add(1);
    assert_eq!(total(&dir, "steps_total"), 1);
}

#[test]
fn grandchildren_and_all_kinds_are_counted_separately() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let steps = Counter::create_in(home, &counter("steps_total")).expect("made");
    let sizes = Histogram::create_in(home, &counter("sizes")).expect("made");
    let times = Timer::create_in(home, &counter("times")).expect("made");
    let depth = Gauge::create_in(home, &counter("depth")).expect("made");
    let points = Points::create_in(home, &counter("points")).expect("made");
    let work = move |amount: u64| {
        steps.add(amount);
        sizes.record(1.0);
        times.record(Duration::from_millis(1));
        depth.set(amount as f64);
        points.add_at(amount as f64, amount as i64);
    };
    work(1);
    let child = ForkedChild::run(|| {
        work(10);
        // Like a daemon: the process in the middle ends at once.
        let middle = ForkedChild::run(|| {
            let last = ForkedChild::run(|| work(100));
            assert_eq!(last.wait(), 0);
        });
        assert_eq!(middle.wait(), 0);
    });
    assert_eq!(child.wait(), 0);
    assert_eq!(total(&dir, "steps_total"), 111);
    assert_eq!(total(&dir, "sizes"), 3);
    assert_eq!(total(&dir, "times"), 3);
    // Three processes with a lane and a ring each; the one in the middle never counted.
    assert_eq!(open_lanes(&dir).len(), 6);
    let mut seen = Vec::new();
    for mut lane in open_lanes(&dir) {
        let (mut buffer, mut found) = (Vec::new(), Vec::new());
        lane.read(&mut buffer).expect("readable");
        let read = lane
            .points(&mut buffer, true, &mut found)
            .expect("readable");
        assert_eq!(read.lost, 0);
        seen.extend(found.iter().map(|point| point.time_ms));
    }
    seen.sort_unstable();
    assert_eq!(seen, [1, 10, 100]);
}

#[test]
fn forks_amid_busy_threads_lose_nothing() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let steps = Counter::create_in(home, &counter("steps_total")).expect("made");
    let shared = SharedNumbers::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    steps.add(1);
                    shared.add(0, 1);
                }
            });
        }
        // Holds the lock much of the time, so that children are forked while it is held.
        scope.spawn(|| {
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("c{}_total", number % 300);
                Counter::create_in(home, &counter(&name))
                    .expect("made")
                    .add(1);
            }
        });
        let children: Vec<ForkedChild> = (0..60)
            .map(|_| {
                ForkedChild::run(|| {
                    for _ in 0..1000 {
                        steps.add(1);
                        shared.add(0, 1);
                    }
                    Counter::create_in(home, &counter("own_total"))
                        .expect("made")
                        .add(1);
                })
            })
            .collect();
        for child in children {
            assert_eq!(child.wait(), 0);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(total(&dir, "steps_total"), shared.get(0));
    assert_eq!(total(&dir, "own_total"), 60);
}

#[test]
fn exec_ends_the_lane_but_not_the_process() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let steps = Counter::create_in(home, &counter("steps_total")).expect("made");
    let child = ForkedChild::run(|| {
        steps.add(5);
        let args = ["sleep", "1000"].map(|arg| CString::new(arg).expect("no zero byte"));
        let args = [args[0].as_ptr(), args[1].as_ptr(), std::ptr::null()];
        // SAFETY: `args` is a list of C strings that ends with null.
        unsafe { libc::execvp(args[0], args.as_ptr()) };
    });
    let mut lane = eventually("the lane of a child", || {
        match open_ready_lanes(&dir)
            .into_iter()
            .find(|lane| lane.header().pid == child.pid() as u32)
        {
            Some(lane) => Ok(lane),
            None => Err("not there"),
        }
    });
    eventually("the end of the lane", || {
        lane.is_ended()
            .expect("asked")
            .then_some(())
            .ok_or("not yet")
    });
    assert_eq!(lane.process(), ProcessState::Alive);
    assert_eq!(count_in(&mut lane, "steps_total"), 5);
    child.kill();
    assert_eq!(lane.process(), ProcessState::Gone);
}

#[test]
fn a_program_that_closes_all_descriptors_continues_to_count() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let steps = Counter::create_in(home, &counter("steps_total")).expect("made");
    let shared = SharedNumbers::new();
    let child = ForkedChild::run(|| {
        steps.add(1);
        // SAFETY: closes the descriptors of the child, which uses none of them afterwards.
        unsafe { libc::close_range(0, u32::MAX, 0) };
        shared.set(0, 1);
        wait_until(|| shared.get(1) == 1);
        steps.add(10);
        Counter::create_in(home, &counter("more_total"))
            .expect("made")
            .add(1);
        let grandchild = ForkedChild::run(|| steps.add(100));
        assert_eq!(grandchild.wait(), 0);
        shared.set(0, 2);
        wait_until(|| shared.get(1) == 2);
    });
    shared.await_at_least(0, 1);
    let mut lane = lane_of(&dir, child.pid());
    // The mapping holds the lock.
    assert!(!lane.is_ended().expect("asked"));
    assert_eq!(count_in(&mut lane, "steps_total"), 1);
    shared.set(1, 1);
    shared.await_at_least(0, 2);
    assert_eq!(count_in(&mut lane, "steps_total"), 11);
    assert_eq!(count_in(&mut lane, "more_total"), 1);
    assert_eq!(total(&dir, "steps_total"), 111);
    shared.set(1, 2);
    assert_eq!(child.wait(), 0);
    assert!(lane.is_ended().expect("asked"));
}

#[test]
fn a_program_has_no_descriptor_of_its_lane() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let steps = Counter::create_in(home, &counter("steps_total")).expect("made");
    let child = ForkedChild::run(|| {
        // SAFETY: closes the descriptors of the child, which uses none of them afterwards.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        steps.add(1);
        // SAFETY: F_GETFD only queries a descriptor.
        let is_open = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
        assert!(!(3..1024).any(is_open));
    });
    assert_eq!(child.wait(), 0);
    assert_eq!(total(&dir, "steps_total"), 1);
}

#[test]
fn a_child_that_counts_nothing_does_not_keep_its_parent_alive() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let shared = SharedNumbers::new();
    let child = ForkedChild::run(|| {
        Counter::create_in(home, &counter("steps_total"))
            .expect("made")
            .add(7);
        let idle = ForkedChild::run(|| {
            shared.set(0, 1);
            wait_until(|| shared.get(1) == 1);
        });
        std::mem::forget(idle);
    });
    shared.await_at_least(0, 1);
    let mut lane = lane_of(&dir, child.pid());
    assert_eq!(child.wait(), 0);
    // Its child exists and holds the mapping, but will not write to it.
    assert!(lane.is_ended().expect("asked"));
    assert_eq!(lane.process(), ProcessState::Gone);
    assert_eq!(count_in(&mut lane, "steps_total"), 7);
    shared.set(1, 1);
}

#[test]
fn kill_9_loses_no_counts() {
    let mut rng = Rng::from_env();
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let steps = Counter::create_in(home, &counter("steps_total")).expect("made");
    let times = Timer::create_in(home, &counter("times")).expect("made");
    for _ in 0..20 {
        let shared = SharedNumbers::new();
        let child = ForkedChild::run(|| {
            for number in 0_u64.. {
                steps.add(1);
                shared.set(0, number + 1);
                times.record_seconds(0.5);
                shared.set(1, number + 1);
            }
        });
        shared.await_at_least(1, 1000);
        std::thread::sleep(Duration::from_micros(rng.below(3000)));
        let pid = child.pid();
        child.kill();
        let mut lane = lane_of(&dir, pid);
        assert!(lane.is_ended().expect("asked"));
        let counted = count_in(&mut lane, "steps_total");
        assert!(
            (shared.get(0)..=shared.get(0) + 1).contains(&counted),
            "{counted}"
        );
        let recorded = count_in(&mut lane, "times");
        assert!(
            (shared.get(1)..=shared.get(1) + 1).contains(&recorded),
            "{recorded}"
        );
    }
}

#[test]
fn kill_9_during_creation_leaves_complete_lanes_or_temporary_files() {
    let mut rng = Rng::from_env();
    for _ in 0..30 {
        let dir = TempDir::new();
        let home = ProcessLanes::in_directory(dir.path());
        let shared = SharedNumbers::new();
        let child = ForkedChild::run(|| {
            for number in 0_u64.. {
                let name = format!("c{number}_total");
                if let Ok(made) = Counter::create_in(home, &counter(&name)) {
                    made.add(1);
                    shared.set(0, number + 1);
                }
            }
        });
        shared.await_at_least(0, 1);
        std::thread::sleep(Duration::from_micros(rng.below(3000)));
        child.kill();
        let directory = LaneDirectoryHandle::open(dir.path()).expect("a directory");
        let mut counted = 0;
        for found in directory.list(1000).expect("readable").lanes {
            let lane = directory.open_lane(&found.name, &Default::default());
            if found.is_temporary {
                continue;
            }
            let mut buffer = Vec::new();
            let mut lane = lane.expect("a lane that has its name is whole");
            let view = lane.read(&mut buffer).expect("readable");
            for (index, value) in view.iter() {
                view.series(index).expect("described");
                counted += u64::from(value == Some(pegel_lane::reader::LaneValue::Counter(1)));
            }
        }
        assert!(
            (shared.get(0)..=shared.get(0) + 1).contains(&counted),
            "{counted}"
        );
    }
}

/// Creates copies of a lane whose process is gone; the one with the highest number is the newest.
fn create_stale_lanes(dir: &TempDir, count: usize) {
    let home = ProcessLanes::in_directory(dir.path());
    ForkedChild::run(|| {
        Counter::create_in(home, &counter("old_total")).expect("made");
    })
    .wait();
    let mut files = std::fs::read_dir(dir.path()).expect("a directory");
    let first = files.next().expect("a lane").expect("readable").path();
    let bytes = std::fs::read(&first).expect("readable");
    std::fs::remove_file(&first).expect("removed");
    let long_ago = SystemTime::now() - Duration::from_secs(100_000);
    for number in 0..count {
        let path = dir.join(format!("{number:032x}.lane"));
        std::fs::write(&path, &bytes).expect("written");
        let file = std::fs::File::options().write(true).open(&path);
        let time = long_ago + Duration::from_secs(number as u64);
        file.expect("ours").set_modified(time).expect("set");
    }
}

fn lane_names(dir: &TempDir) -> Vec<String> {
    let directory = LaneDirectoryHandle::open(dir.path()).expect("a directory");
    let found = directory.list(10_000).expect("readable").lanes;
    let mut names: Vec<String> = found.into_iter().map(|found| found.name).collect();
    names.sort_unstable();
    names
}

#[test]
fn unread_lanes_do_not_accumulate() {
    let dir = TempDir::new();
    create_stale_lanes(&dir, STALE_LANES_MAX);
    let in_use = ProcessLanes::in_directory(dir.path());
    Counter::create_in(in_use, &counter("a_total")).expect("made");
    assert_eq!(
        lane_names(&dir).len(),
        STALE_LANES_MAX + 1,
        "not yet too many"
    );

    // The oldest of all is in use.
    let used = lane_names(&dir)
        .into_iter()
        .find(|name| !name.starts_with("000000"));
    let used = dir.join(used.expect("the new one"));
    let file = std::fs::File::options()
        .write(true)
        .open(&used)
        .expect("ours");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("set");

    // While an agent reads, nothing is removed.
    let reader = LaneDirectoryHandle::open(dir.path()).expect("a directory");
    assert!(reader.lock_for_reading());
    Counter::create_in(ProcessLanes::in_directory(dir.path()), &counter("b_total")).expect("made");
    assert_eq!(lane_names(&dir).len(), STALE_LANES_MAX + 2);
    drop(reader);

    Counter::create_in(ProcessLanes::in_directory(dir.path()), &counter("c_total")).expect("made");
    let left = lane_names(&dir);
    assert_eq!(left.len(), 768 + 1, "and the new one");
    let removed = STALE_LANES_MAX + 2 - 768;
    assert!(
        !left.contains(&format!("{:032x}.lane", removed - 1)),
        "the oldest go"
    );
    assert!(
        left.contains(&format!("{removed:032x}.lane")),
        "the younger stay"
    );
    assert!(used.exists(), "the lane of a running program stays");
}
