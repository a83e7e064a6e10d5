//! Failing disks: full, broken, read-only; permanently, temporarily, or once.

use std::time::Duration;

use pegel_config::ByteSize;
use pegel_metric::Input;
use pegel_store::{PushError, Store};
use pegel_testkit::{FaultyFiles, FileFault, FileOperation, eventually, eventually_within};
use rustix::io::Errno;

use super::fixture::{DamageFixture, SampleBits, missing, read, try_read};

/// Kept samples: ticks, and acknowledged pushes.
#[derive(Default)]
struct AcknowledgedSamples {
    samples: SampleBits,
    refused: u64,
}

/// Advances the fixture by half a second: a tick and a push.
fn half_second(scene: &mut DamageFixture, store: &Store, kept: &mut AcknowledgedSamples) {
    scene.advance(500);
    kept.samples.extend(scene.tick(store, &[0, 1]));
    scene.advance(1);
    match scene.push(store, &["a", "b"]) {
        Ok(samples) => kept.samples.extend(samples),
        Err(PushError::Degraded(reason)) => {
            assert!(!reason.is_empty());
            kept.refused += 1;
        }
        Err(error) => panic!("{error}"),
    }
}

fn check_ledger(store: &Store) {
    for account in store.ledger().totals_by_input() {
        let dropped: u64 = account.dropped.iter().map(|(_, count)| count).sum();
        assert_eq!(account.received, account.kept + dropped, "{account:?}");
    }
}

/// Checks that exactly the kept samples are present, also after reopening.
fn check_all(scene: &DamageFixture, store: Store, kept: &AcknowledgedSamples, context: &str) {
    let found = read(&store);
    assert_eq!(
        missing(&kept.samples, &found, context),
        SampleBits::new(),
        "{context}: lost"
    );
    check_ledger(&store);
    store.flush_to_blocks();
    assert_eq!(read(&store), kept.samples, "{context}: settled");
    store.close();
    drop(store);
    let store = scene.open();
    assert_eq!(read(&store), kept.samples, "{context}: reopened");
    assert_eq!(
        store.status().set_aside,
        [] as [std::path::PathBuf; 0],
        "{context}"
    );
}

/// Checks a disk that fails from some moment on until it is repaired.
fn check_outage(context: &str, break_it: impl Fn(&FaultyFiles), stops_the_log: bool) {
    let files = FaultyFiles::new();
    let mut scene = DamageFixture::new().with_files(files.clone());
    scene.options.keep.memory = Duration::from_secs(10).into();
    let store = scene.open();
    let mut kept = AcknowledgedSamples::default();
    for _ in 0..30 {
        half_second(&mut scene, &store, &mut kept);
    }
    store.flush_to_blocks();
    half_second(&mut scene, &store, &mut kept);
    assert_eq!(store.status().degraded, None, "{context}");

    break_it(&files);
    for _ in 0..50 {
        half_second(&mut scene, &store, &mut kept);
    }
    // Blocks are written and logs are synced in the background, so this may take a moment.
    let degraded = eventually(context, || {
        half_second(&mut scene, &store, &mut kept);
        store.flush_to_blocks();
        store.status().degraded.ok_or("not degraded")
    });
    assert!(!degraded.reason.is_empty() && degraded.since <= scene.now());
    assert_eq!(
        kept.refused > 0,
        stops_the_log,
        "{context}: {} refused",
        kept.refused
    );
    assert_eq!(
        missing(&kept.samples, &read(&store), context),
        SampleBits::new(),
        "{context}: broken"
    );

    files.clear_faults();
    // The store recovers without a flush: its threads retry every second.
    eventually_within(Duration::from_secs(5), context, || {
        scene.advance(2000);
        half_second(&mut scene, &store, &mut kept);
        store.status().degraded.map_or(Ok(()), Err)
    });
    let refused = kept.refused;
    half_second(&mut scene, &store, &mut kept);
    assert_eq!(kept.refused, refused, "{context}: healed");
    check_all(&scene, store, &kept, context);
}

#[test]
fn a_full_disk_is_survived() {
    check_outage("full", FaultyFiles::fill_up, true);
    let torn = |files: &FaultyFiles| {
        files.fill_up();
        files.clear_faults();
        files.inject(FileFault {
            torn_bytes: 17,
            ..FileFault::always(FileOperation::Write, Errno::NOSPC)
        });
    };
    check_outage("full in the middle of a frame", torn, true);
}

#[test]
fn a_read_only_disk_is_survived() {
    check_outage("read-only", FaultyFiles::make_read_only, true);
}

#[test]
fn a_broken_disk_is_survived() {
    for (operation, stops_the_log) in [
        (FileOperation::Create, true),
        (FileOperation::Write, true),
        (FileOperation::Rename, false),
        (FileOperation::SyncDir, false),
    ] {
        let break_it = |files: &FaultyFiles| files.inject(FileFault::always(operation, Errno::IO));
        check_outage(&format!("{operation:?} fails"), break_it, stops_the_log);
    }
}

#[test]
fn a_disk_that_cannot_sync_is_survived() {
    let files = FaultyFiles::new();
    let mut scene = DamageFixture::new().with_files(files.clone());
    let store = scene.open();
    let mut kept = AcknowledgedSamples::default();
    half_second(&mut scene, &store, &mut kept);
    files.inject(FileFault::always(FileOperation::Sync, Errno::IO));
    eventually("the failed sync shows", || {
        half_second(&mut scene, &store, &mut kept);
        let degraded = store.status().degraded.ok_or("not degraded")?;
        assert!(degraded.reason.contains("sync"), "{degraded:?}");
        Ok::<(), &str>(())
    });
    assert_eq!(
        missing(&kept.samples, &read(&store), "broken"),
        SampleBits::new()
    );
    files.clear_faults();
    eventually_within(Duration::from_secs(5), "it recovers", || {
        scene.advance(2000);
        half_second(&mut scene, &store, &mut kept);
        store.status().degraded.map_or(Ok(()), Err)
    });
    check_all(&scene, store, &kept, "sync");
}

/// Every kind of operation fails once, at every moment of a short run with blocks and a sealed
/// hour.
#[test]
fn an_operation_that_fails_once_costs_nothing() {
    for operation in FileOperation::ALL {
        for skip in 0.. {
            let files = FaultyFiles::new();
            let mut scene = DamageFixture::new().with_files(files.clone());
            let store = scene.open();
            let mut kept = AcknowledgedSamples::default();
            let fault = FileFault {
                torn_bytes: if skip % 2 == 0 { 0 } else { 30 },
                ..FileFault::once(operation, Errno::IO, skip)
            };
            files.inject(fault);
            for _ in 0..3 {
                for _ in 0..4 {
                    half_second(&mut scene, &store, &mut kept);
                }
                store.flush_to_blocks();
            }
            let _ = try_read(&store);
            scene.advance(3 * 3_600_000);
            store.flush_to_blocks();
            half_second(&mut scene, &store, &mut kept);
            let failed = files.failures() > 0;
            files.clear_faults();
            let context = format!("{operation:?} fails after {skip}");
            eventually_within(Duration::from_secs(5), &context, || {
                scene.advance(2000);
                half_second(&mut scene, &store, &mut kept);
                store.flush_to_blocks();
                store.status().degraded.map_or(Ok(()), Err)
            });
            check_all(&scene, store, &kept, &context);
            if !failed {
                break;
            }
        }
    }
}

/// Memory is bounded even while nothing can be written: ticks update current values, their samples
/// are dropped and counted.
#[test]
fn memory_is_bounded_on_a_full_disk() {
    let files = FaultyFiles::new();
    let mut scene = DamageFixture::new().with_files(files.clone());
    scene.options.limits.memory = ByteSize::bytes(64 << 10);
    scene.options.keep.memory = Duration::from_secs(3600).into();
    let store = scene.open();
    files.fill_up();
    for _ in 0..12_000 {
        scene.advance(500);
        scene.tick(&store, &[0, 1]);
    }
    let dropped = store
        .ledger()
        .dropped_total(Input::Collect, pegel_metric::DropReason::Memory);
    assert!(dropped > 0, "{:?}", store.status());
    assert!(
        store.status().memory_bytes < 2 * (64 << 10),
        "{:?}",
        store.status()
    );
    check_ledger(&store);
    let mut current = 0;
    store.latest(&pegel_metric::Selector::all(), 0, &mut |_, latest| {
        current += 1;
        assert_eq!(latest.last_sampled, scene.now(), "current values go on");
    });
    assert!(current > 0);
    files.clear_faults();
    eventually("it recovers", || {
        scene.advance(2000);
        scene.push(&store, &["a"]).map(drop)
    });
}
