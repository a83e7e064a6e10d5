//! The continuous archive of one agent.

use std::fs;

use pegel_testkit::{SmallDisk, TempDir, eventually_within};

use super::{
    BOUND, answered_rows, archiving_agent, assert_rows, count, files_below, hours_ago, points,
    read_archive, rows_of, send,
};
use crate::PEGEL;

#[test]
fn pyarrow_and_duckdb_read_every_sample_once_and_to_the_bit() {
    let home = TempDir::new();
    let agent = archiving_agent(&home, "").start();
    // Three days: the newest hour is sealed, the others arrive later and become late blocks.
    let mut sent = Vec::new();
    for hour in [3, 4, 30, 60] {
        let start = hours_ago(hour);
        let batch = points((0..50).map(|n| start + n * 60_001));
        assert!(send(&agent, &batch));
        sent.extend(batch);
        let expected = sent.len() as u64;
        eventually_within(BOUND, "the points are archived", || {
            match count(&agent, "samples") {
                samples if samples == expected => Ok(()),
                samples => Err(format!("{samples} of {expected}")),
            }
        });
    }
    let Some(rows) = read_archive(&home.join("archive")) else {
        return;
    };
    assert_rows(&rows, &rows_of(&sent));
    // The same as the agent answers.
    let answered = answered_rows(&agent, hours_ago(70)).expect("the readers are there");
    assert_rows(&rows, &answered);

    // A sender repeats old points: nothing is archived twice. A new one and a correction are.
    let start = hours_ago(30);
    let repeated = points((0..20).map(|n| start + n * 60_001));
    let mut later = points([start + 59 * 60_001].into_iter());
    later.truncate(1);
    let mut correction = repeated[0].clone();
    correction["value"] = 77.5.into();
    assert!(send(
        &agent,
        &[&repeated[1..], &later[..], &[correction.clone()][..]].concat()
    ));
    let expected = sent.len() as u64 + 2;
    eventually_within(BOUND, "the new points are archived", || {
        match count(&agent, "samples") {
            samples if samples == expected => Ok(()),
            samples => Err(format!("{samples} of {expected}")),
        }
    });
    assert_eq!(count(&agent, "repeated"), repeated.len() as u64 - 1);
    sent.push(later[0].clone());
    sent.push(correction);
    let rows = read_archive(&home.join("archive")).expect("the readers are there");
    assert_rows(&rows, &rows_of(&sent));
    assert_eq!(count(&agent, "errors"), 0);
    let text = agent.get("/metrics").text().to_owned();
    assert!(text.contains("pegel_archive_pending_blocks 0"), "{text}");
    agent.stop();
    // Without the state, the files that exist are recognised.
    fs::remove_file(home.join("store/archive.json")).expect("the state");
    let before = files_below(&home.join("archive")).len();
    let agent = archiving_agent(&home, "").start();
    eventually_within(BOUND, "all blocks are checked", || {
        let found = count(&agent, "existing_files");
        let text = format!("{found} of {before}");
        (found == before as u64).then_some(()).ok_or(text)
    });
    assert_eq!(files_below(&home.join("archive")).len(), before);
}

#[test]
fn a_place_that_fails_is_reported_and_gets_everything_later() {
    let home = TempDir::new();
    // A file where the directory should be.
    fs::write(home.join("archive"), "").expect("written");
    let agent = archiving_agent(&home, ", names: [queue_*]").start();
    let batch = points((0..10).map(|n| hours_ago(5) + n));
    assert!(send(&agent, &batch));
    // Before the block is finished, the check of the place fails.
    let status = eventually_within(BOUND, "the block cannot be archived", || {
        let status = agent.status()["archive"].clone();
        let error = status["last_error"].as_str().unwrap_or_default();
        let is_block = error.contains("archive/date=");
        if is_block { Ok(status) } else { Err(status) }
    });
    assert!(status["errors"].as_u64() >= Some(1), "{status}");
    assert!(status["pending_blocks"].as_u64() >= Some(1), "{status}");
    let doctor = agent.client(&["doctor"]);
    assert!(doctor.stdout.contains("archive"), "{doctor}");
    assert!(
        doctor.stdout.contains("block waiting, 0 samples lost"),
        "{doctor}"
    );
    fs::remove_file(home.join("archive")).expect("removed");
    let expected = batch
        .iter()
        .filter(|point| point["metric"] == "queue_depth");
    let expected: Vec<_> = expected.cloned().collect();
    eventually_within(BOUND, "the points are archived", || {
        let samples = count(&agent, "samples");
        (samples == expected.len() as u64)
            .then_some(())
            .ok_or(samples)
    });
    assert!(agent.status()["archive"]["last_error"].is_null());
    if let Some(rows) = read_archive(&home.join("archive")) {
        assert_rows(&rows, &rows_of(&expected));
    }
}

#[test]
fn a_full_disk_keeps_no_part_of_a_file_and_gets_everything_later() {
    let Some(disk) = SmallDisk::mount("1m") else {
        return;
    };
    disk.fill();
    let (home, place) = (TempDir::new(), disk.path.join("archive"));
    let config = format!(
        "node: n1\nkeep: {{memory: 1s, disk: 20d}}\narchive: {{to: \"file://{}\"}}\n",
        place.display()
    );
    let agent = { PEGEL.agent().dir(home.join("store")) }
        .config(&config)
        .start();
    let batch = points((0..10).map(|n| hours_ago(5) + n));
    assert!(send(&agent, &batch));
    eventually_within(BOUND, "the full disk is reported", || {
        let error = agent.status()["archive"]["last_error"].clone();
        let is_full = { error.as_str() }.is_some_and(|text| text.contains("No space left"));
        is_full.then_some(()).ok_or(error)
    });
    eventually_within(BOUND, "no part of a file is left", || {
        let files = files_below(&place);
        files.is_empty().then_some(()).ok_or(files)
    });
    disk.free_space();
    eventually_within(BOUND, "the points are archived", || {
        let samples = count(&agent, "samples");
        (samples == batch.len() as u64).then_some(()).ok_or(samples)
    });
    agent.stop();
    if let Some(rows) = read_archive(&place) {
        assert_rows(&rows, &rows_of(&batch));
    }
}

#[test]
fn without_an_archive_there_is_neither_a_thread_nor_a_metric() {
    let agent = PEGEL.agent().start();
    let status = agent.status();
    assert!(status.get("archive").is_none());
    assert!(
        !status["threads"].to_string().contains("archive"),
        "{status}"
    );
    assert!(!agent.get("/metrics").text().contains("pegel_archive"));
}
