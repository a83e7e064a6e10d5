//! What processes used, without an own cgroup.

use super::fake_machine::{FakeMachine, FakeProcess, ticks};
use crate::task::{PeakSource, TaskLife, TaskWatch};

fn cpu_seconds(watch: &mut TaskWatch) -> f64 {
    watch.sample(0).cpu_seconds.expect("known").round()
}

#[test]
fn usage_counts_from_the_start_and_includes_descendants() {
    let machine = FakeMachine::new();
    let root = FakeProcess {
        user: ticks(5),
        read_bytes: 1000,
        peak_kib: 9000,
        ..FakeProcess::default()
    };
    machine.process(50, root);
    let mut watch = machine.watch();
    let first = watch.peaks().clone();
    assert_eq!((first.cpu_seconds, first.processes), (Some(0.0), Some(1)));
    assert_eq!(first.read_bytes, Some(0));
    // The peak of the shell before the start does not count.
    let page = rustix::param::page_size() as u64;
    assert_eq!(first.memory_bytes, Some(10 * page));
    // A grandchild with a smaller ID than its parent.
    let child = FakeProcess {
        parent: 50,
        user: ticks(2),
        start: 200,
        read_bytes: 5,
        ..FakeProcess::default()
    };
    let grandchild = FakeProcess {
        parent: 60,
        start: 300,
        peak_kib: 500,
        ..child
    };
    machine.process(60, child);
    machine.process(20, grandchild);
    machine.process(61, FakeProcess::default());
    let peaks = watch.sample(1000).clone();
    assert_eq!((peaks.cpu_seconds, peaks.processes), (Some(4.0), Some(3)));
    assert_eq!(peaks.read_bytes, Some(10));
    assert_eq!(peaks.memory_bytes, Some(500 << 10));
    assert_eq!(peaks.memory_source, Some(PeakSource::LargestProcess));
    assert_eq!(peaks.rss_sum_bytes, Some(30 * page));
    let largest = peaks.largest_process.expect("known");
    assert_eq!((largest.pid, &*largest.name), (20, "p20"));
    assert_eq!((peaks.samples, peaks.first_sample), (2, Some(0)));
    assert_eq!(peaks.last_sample, Some(1000));
    assert_eq!(peaks.oom_kills, None);
}

#[test]
fn an_ended_child_counts_once_whether_or_not_it_was_waited_for() {
    for was_waited_for in [true, false] {
        let machine = FakeMachine::new();
        let mut watch = machine.watch();
        let child = FakeProcess {
            parent: 50,
            user: ticks(3),
            faults: 30,
            read_bytes: 70,
            ..FakeProcess::default()
        };
        machine.process(60, child);
        assert_eq!(cpu_seconds(&mut watch), 3.0);
        machine.end(60);
        let (child_user, child_faults, read_bytes) = match was_waited_for {
            true => (ticks(4), 35, 75),
            false => (0, 0, 0),
        };
        let root = FakeProcess {
            child_user,
            child_faults,
            read_bytes,
            ..FakeProcess::default()
        };
        machine.process(50, root);
        let expected = if was_waited_for { (4.0, 75) } else { (3.0, 70) };
        for _ in 0..2 {
            assert_eq!(cpu_seconds(&mut watch), expected.0, "{was_waited_for}");
            assert_eq!(watch.peaks().read_bytes, Some(expected.1));
        }
    }
}

#[test]
fn a_child_and_its_parent_that_end_together_count_once() {
    let machine = FakeMachine::new();
    let mut watch = machine.watch();
    let child = FakeProcess {
        parent: 50,
        user: ticks(1),
        faults: 10,
        ..FakeProcess::default()
    };
    let grandchild = FakeProcess {
        parent: 60,
        ..child
    };
    machine.process(60, child);
    machine.process(61, grandchild);
    assert_eq!(cpu_seconds(&mut watch), 2.0);
    machine.end(60);
    machine.end(61);
    let root = FakeProcess {
        child_user: ticks(2),
        child_faults: 20,
        ..FakeProcess::default()
    };
    machine.process(50, root);
    assert_eq!(cpu_seconds(&mut watch), 2.0);
}

#[test]
fn a_reparented_process_stays_and_a_reused_id_is_not_mistaken() {
    let machine = FakeMachine::new();
    let mut watch = machine.watch();
    let child = FakeProcess {
        parent: 50,
        ..FakeProcess::default()
    };
    machine.process(60, child);
    watch.sample(1);
    let orphan = FakeProcess {
        user: ticks(1),
        ..FakeProcess::default()
    };
    machine.process(60, orphan);
    assert_eq!(cpu_seconds(&mut watch), 1.0);
    // Another process with the ID of the orphan: only the orphan's usage remains.
    let other = FakeProcess {
        start: 900,
        user: ticks(50),
        ..FakeProcess::default()
    };
    machine.process(60, other);
    assert_eq!(cpu_seconds(&mut watch), 1.0);
    assert_eq!(watch.life(), TaskLife::Running);
    machine.process(50, other);
    assert_eq!(watch.life(), TaskLife::Ended);
    assert_eq!(cpu_seconds(&mut watch), 1.0);
}

#[test]
fn a_zombie_shows_the_last_usage_and_the_task_has_ended() {
    let machine = FakeMachine::new();
    let mut watch = machine.watch();
    let root = FakeProcess {
        state: 'Z',
        user: ticks(1),
        child_user: ticks(6),
        resident_pages: 0,
        ..FakeProcess::default()
    };
    machine.process(50, root);
    assert!(watch.has_ended());
    assert_eq!(cpu_seconds(&mut watch), 7.0);
}

#[test]
fn a_checkpoint_continues_with_what_was_counted() {
    let machine = FakeMachine::new();
    let mut watch = machine.watch();
    let child = FakeProcess {
        parent: 50,
        user: ticks(3),
        faults: 30,
        ..FakeProcess::default()
    };
    machine.process(60, child);
    assert_eq!(cpu_seconds(&mut watch), 3.0);
    let text = serde_json::to_string(&watch.checkpoint()).expect("JSON");
    drop(watch);
    // Ends, and its parent waits for it, while no agent runs; an orphan of the task goes on.
    let root = FakeProcess {
        child_user: ticks(5),
        child_faults: 40,
        ..FakeProcess::default()
    };
    machine.process(50, root);
    machine.end(60);
    let checkpoint = serde_json::from_str(&text).expect("a checkpoint");
    let mut watch = TaskWatch::resume(machine.files(), checkpoint).expect("resumed");
    assert_eq!(cpu_seconds(&mut watch), 5.0);
    // After a reboot nothing of it runs, whatever has its process IDs.
    let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    json["scope"]["boot_id"] = "a".into();
    machine.write("proc/sys/kernel/random/boot_id", "b\n");
    let checkpoint = serde_json::from_value(json).expect("a checkpoint");
    let mut watch = TaskWatch::resume(machine.files(), checkpoint).expect("resumed");
    assert!(watch.has_ended());
    assert_eq!(cpu_seconds(&mut watch), 3.0);
}
