//! Damage to blocks: truncation, and changes of single bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use pegel_store::Store;

use super::fixture::{
    DamageFixture, SampleBits, contents, files_in, missing, only_file, read, restore,
};

const HOUR: u64 = 3_600_000;

struct BlockFixture {
    scene: DamageFixture,
    files: BTreeMap<PathBuf, Vec<u8>>,
    block: PathBuf,
    all: SampleBits,
}

impl BlockFixture {
    /// One block, fresh or sealed.
    fn new(is_sealed: bool) -> BlockFixture {
        let mut scene = DamageFixture::new();
        let store = scene.open();
        let mut all = SampleBits::new();
        for n in 0..30 {
            scene.advance(500);
            all.extend(scene.tick(&store, &[0, 1]));
            if n % 5 == 0 {
                all.extend(scene.push(&store, &["a", "b"]).expect("taken"));
            }
        }
        store.flush_to_blocks();
        if is_sealed {
            scene.advance(3 * HOUR);
            store.flush_to_blocks();
        }
        store.close();
        drop(store);
        let block = only_file(&scene.path("blocks"));
        BlockFixture {
            files: contents(&scene.options.dir),
            scene,
            block,
            all,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.files[&self.block]
    }

    fn open_with(&self, block: &[u8]) -> Store {
        restore(&self.scene.options.dir, &self.files);
        fs::write(&self.block, block).expect("a block");
        self.scene.open()
    }
}

/// Series that are lost together: members of a group, or an ungrouped series by itself.
fn owner(text: &str) -> &str {
    let label = text
        .trim_start_matches("depth{at=\"")
        .trim_end_matches("\"}");
    label.trim_end_matches(|c: char| c.is_ascii_digit())
}

fn check_flips(stored: &BlockFixture, settle_every: usize) {
    let (mut set_aside, mut partly) = (0, 0);
    for at in 0..stored.bytes().len() {
        let context = format!("byte {at}");
        let mut damaged = stored.bytes().to_owned();
        damaged[at] ^= 1 << (at % 8);
        let store = stored.open_with(&damaged);
        let found = read(&store);
        let lost = missing(&stored.all, &found, &context);
        let aside = store.status().set_aside;
        if aside.is_empty() {
            let owners: BTreeSet<&str> = lost.keys().map(|(text, _)| owner(text)).collect();
            assert_eq!(
                owners.len(),
                1,
                "{context}: a change costs a column or a run, not {owners:?}"
            );
            let status = store.status();
            assert_eq!(status.damaged_blocks, 1, "{context}");
            // Damage is reported, but does not degrade the store: new samples are safe.
            assert!(status.degraded.is_none(), "{context}");
            partly += 1;
        } else {
            assert_eq!(fs::read(&aside[0]).expect("kept"), damaged, "{context}");
            assert_eq!(lost.len(), stored.all.len(), "{context}");
            set_aside += 1;
        }
        assert_eq!(read(&store), found, "{context}: second query");
        if at % settle_every == 0 {
            // Sealing finds the damage, keeps the intact parts, and sets the file aside.
            stored.scene.advance(3 * HOUR);
            store.flush_to_blocks();
            assert_eq!(read(&store), found, "{context}: sealed");
            stored.scene.clock.step(-3 * HOUR as i64);
        }
    }
    assert!(
        set_aside > 100 && partly > 100,
        "{set_aside} set aside, {partly} read in part"
    );
}

#[test]
fn one_changed_byte_in_a_fresh_block_costs_at_most_a_run() {
    check_flips(&BlockFixture::new(false), 17);
}

#[test]
fn one_changed_byte_in_a_sealed_block_costs_at_most_a_run() {
    check_flips(&BlockFixture::new(true), usize::MAX);
}

#[test]
fn a_damaged_fresh_block_is_set_aside_when_it_is_sealed() {
    let stored = BlockFixture::new(false);
    let mut damaged = stored.bytes().to_owned();
    damaged[30] ^= 0xff;
    let store = stored.open_with(&damaged);
    let lost = missing(&stored.all, &read(&store), "before");
    assert!(!lost.is_empty() && lost.len() < stored.all.len());
    stored.scene.advance(3 * HOUR);
    store.flush_to_blocks();
    assert_eq!(missing(&stored.all, &read(&store), "sealed"), lost);
    let aside = store.status().set_aside;
    assert_eq!(aside.len(), 1);
    assert_eq!(fs::read(&aside[0]).expect("kept"), damaged);
    drop(store);
    let store = stored.scene.open();
    assert_eq!(missing(&stored.all, &read(&store), "reopened"), lost);
    assert_eq!(files_in(&stored.scene.path("aside")), aside);
}

#[test]
fn a_block_cut_anywhere_is_set_aside_whole() {
    let stored = BlockFixture::new(false);
    for len in (0..stored.bytes().len()).step_by(7) {
        let store = stored.open_with(&stored.bytes()[..len]);
        assert_eq!(read(&store), SampleBits::new(), "cut at {len}");
        let aside = store.status().set_aside;
        assert_eq!(aside.len(), 1, "cut at {len}");
        assert_eq!(fs::read(&aside[0]).expect("kept"), stored.bytes()[..len]);
        assert!(files_in(&stored.scene.path("blocks")).is_empty());
    }
}

#[test]
fn a_block_damaged_while_the_store_is_open_never_answers_wrong() {
    let stored = BlockFixture::new(false);
    for at in (0..stored.bytes().len()).step_by(11) {
        let store = stored.open_with(stored.bytes());
        let mut damaged = stored.bytes().to_owned();
        damaged[at] ^= 0x55;
        fs::write(&stored.block, &damaged).expect("written");
        missing(&stored.all, &read(&store), &format!("byte {at}"));
        fs::write(&stored.block, &damaged[..at]).expect("written");
        missing(&stored.all, &read(&store), &format!("cut at {at}"));
        stored.scene.advance(3 * HOUR);
        store.flush_to_blocks();
        let lost = missing(&stored.all, &read(&store), &format!("cut at {at}, sealed"));
        assert_eq!(
            store.status().degraded,
            None,
            "damage does not keep hours from being sealed"
        );
        stored.scene.clock.step(-3 * HOUR as i64);
        let kept = contents(&stored.scene.options.dir);
        let is_kept = kept.values().any(|bytes| *bytes == damaged[..at]);
        assert!(
            is_kept || lost.is_empty(),
            "cut at {at}: the damaged file is kept"
        );
    }
}
