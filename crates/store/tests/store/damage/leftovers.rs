//! Files that a crash or a person left in the directory.

use std::fs;

use pegel_metric::Millis;
use pegel_store::{Store, StoreOpenError};

use super::fixture::{DamageFixture, SampleBits, contents, files_in, only_file, read};

const HOUR: u64 = 3_600_000;

/// Writes ticks and pushes over some minutes, flushed in parts: several fresh blocks and a log.
fn fill(scene: &mut DamageFixture, store: &Store, blocks: usize) -> SampleBits {
    let mut all = SampleBits::new();
    for _ in 0..blocks {
        for n in 0..20 {
            scene.advance(500);
            all.extend(scene.tick(store, &[0, 1]));
            if n % 5 == 0 {
                all.extend(scene.push(store, &["a", "b"]).expect("taken"));
            }
        }
        store.flush_to_blocks();
    }
    scene.advance(500);
    all.extend(scene.tick(store, &[0]));
    all
}

#[test]
fn half_written_blocks_are_removed_and_foreign_files_left_alone() {
    let mut scene = DamageFixture::new();
    let store = scene.open();
    let all = fill(&mut scene, &store, 1);
    drop(store);
    fs::write(scene.path("blocks/0000000009.tmp"), b"PEGELBLK half").expect("written");
    fs::write(scene.path("blocks/notes.txt"), b"mine").expect("written");
    fs::write(scene.path("log/notes.txt"), b"mine").expect("written");
    let store = scene.open();
    assert_eq!(read(&store), all);
    assert!(store.status().set_aside.is_empty());
    assert!(!scene.path("blocks/0000000009.tmp").exists());
    assert!(scene.path("blocks/notes.txt").exists() && scene.path("log/notes.txt").exists());
}

#[test]
fn a_crash_between_block_and_log_counts_nothing_twice() {
    let mut scene = DamageFixture::new();
    let store = scene.open();
    let mut all = fill(&mut scene, &store, 0);
    scene.advance(500);
    all.extend(scene.push(&store, &["a"]).expect("taken"));
    let log = only_file(&scene.path("log"));
    let bytes = fs::read(&log).expect("a log");
    store.flush_to_blocks();
    drop(store);
    assert!(!log.exists(), "its samples are in a block");
    fs::write(&log, &bytes).expect("written");
    let store = scene.open();
    assert_eq!(read(&store), all);
    assert_eq!(
        store.status().log_bytes,
        24,
        "only the new segment's header"
    );
    assert!(!log.exists(), "the log that the block replaced is gone");
}

#[test]
fn a_crash_before_replaced_blocks_were_removed_counts_nothing_twice() {
    let mut scene = DamageFixture::new();
    let store = scene.open();
    let all = fill(&mut scene, &store, 3);
    store.flush_to_blocks();
    let fresh = contents(&scene.options.dir);
    scene.advance(3 * HOUR);
    store.flush_to_blocks();
    assert_eq!(store.status().blocks, 1, "all in one sealed block");
    drop(store);
    for (path, bytes) in &fresh {
        if path.starts_with(scene.path("blocks")) {
            fs::write(path, bytes).expect("written");
        }
    }
    assert_eq!(files_in(&scene.path("blocks")).len(), 5);
    let store = scene.open();
    assert_eq!(read(&store), all);
    assert_eq!(store.status().blocks, 1);
    assert_eq!(files_in(&scene.path("blocks")).len(), 1);
}

#[test]
fn missing_and_empty_files_cost_only_themselves() {
    let mut scene = DamageFixture::new();
    let store = scene.open();
    let all = fill(&mut scene, &store, 2);
    drop(store);
    let blocks = files_in(&scene.path("blocks"));
    assert_eq!(blocks.len(), 2);
    let latest: Millis = scene.now();
    fs::remove_file(&blocks[0]).expect("removed");
    fs::write(scene.path("log/0000000099.log"), b"").expect("written");
    fs::write(scene.path("blocks/0000000099.blk"), b"").expect("written");
    let store = scene.open();
    let left: SampleBits = all
        .into_iter()
        .filter(|((_, time), _)| latest - time <= 20 * 500)
        .collect();
    assert_eq!(read(&store), left);
    let status = store.status();
    assert_eq!(status.set_aside.len(), 1, "the empty block: {status:?}");
    assert_eq!(status.torn_bytes, 0);
    // New segments and blocks get higher numbers than existing ones.
    store.flush_to_blocks();
    drop(store);
    fs::remove_dir_all(scene.path("log")).expect("removed");
    let store = scene.open();
    assert_eq!(read(&store), left);
}

#[test]
fn another_version_is_refused_and_nothing_is_changed() {
    let mut scene = DamageFixture::new();
    let store = scene.open();
    fill(&mut scene, &store, 2);
    drop(store);
    // Leftovers that opening would clean up.
    fs::write(scene.path("blocks/0000000001.tmp"), b"half").expect("written");
    fs::write(scene.path("blocks/0000000000.blk"), b"damaged").expect("written");
    let log = only_file(&scene.path("log"));
    let block = files_in(&scene.path("blocks")).pop().expect("a block");
    for (path, covered) in [(log, 20), (block, 16)] {
        let good = fs::read(&path).expect("a file");
        let mut other = good.clone();
        other[8..12].copy_from_slice(&7_u32.to_le_bytes());
        let crc = crc32fast::hash(&other[..covered]);
        other[covered..covered + 4].copy_from_slice(&crc.to_le_bytes());
        fs::write(&path, &other).expect("written");
        let before = contents(&scene.options.dir);
        match Store::open(scene.options.clone()) {
            Err(StoreOpenError::Version {
                path: named, found, ..
            }) => assert_eq!((named, found), (path.clone(), 7)),
            other => panic!("{other:?}"),
        }
        assert_eq!(contents(&scene.options.dir), before, "{}", path.display());
        fs::write(&path, &good).expect("written");
    }
    assert_eq!(scene.open().status().set_aside.len(), 1);
}

#[test]
fn files_set_aside_are_kept_even_under_the_same_name() {
    let scene = DamageFixture::new();
    for round in 1..4_u8 {
        drop(scene.open());
        fs::write(scene.path("blocks/0000000001.blk"), [round; 9]).expect("written");
        drop(scene.open());
        let aside = files_in(&scene.path("aside"));
        assert_eq!(
            aside.len(),
            usize::from(round),
            "the clock stands still: {aside:?}"
        );
    }
}
