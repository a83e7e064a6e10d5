//! An agent that is killed again and again while it archives.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use pegel_testkit::{Rng, TempDir, eventually_within};
use serde_json::{Value, json};

use super::{BOUND, Row, archiving_agent, count, hours_ago, read_archive, rows_of, send};

const ROUNDS: usize = 8;

#[test]
fn kill_9_at_random_moments_neither_loses_nor_doubles_a_sample() {
    let home = TempDir::new();
    let mut random = Rng::from_env();
    let (mut sent, mut acknowledged): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    let mut number = 0;
    for _ in 0..ROUNDS {
        let agent = archiving_agent(&home, "").start();
        let until = Instant::now() + Duration::from_millis(300 + random.below(2_500));
        while Instant::now() < until {
            // Any of the last three days: hours that are sealed already become late blocks.
            let start = hours_ago(2 + random.below(70) as i64);
            let batch: Vec<Value> = (0..40)
                .map(|n| {
                    number += 1;
                    json!({
                        "metric": format!("m{}", n % 4), "timestamp": start + number % 3_600_000,
                        "value": number, "tags": {"k": "v"},
                    })
                })
                .collect();
            sent.extend(batch.clone());
            if send(&agent, &batch) {
                acknowledged.extend(batch);
            }
            thread::sleep(Duration::from_millis(random.below(60)));
        }
        agent.kill();
    }
    let agent = archiving_agent(&home, "").start();
    let expected: BTreeSet<Row> = rows_of(&acknowledged).into_iter().collect();
    assert!(expected.len() > 1000, "{}", expected.len());
    let archive = home.join("archive");
    eventually_within(BOUND, "every acknowledged sample is archived", || {
        if count(&agent, "pending_blocks") > 0 {
            return Err("blocks are waiting".to_owned());
        }
        // Without the readers there is nothing to compare.
        let Some(rows) = read_archive(&archive) else {
            return Ok(());
        };
        let found: BTreeSet<Row> = rows.iter().cloned().collect();
        assert_eq!(found.len(), rows.len(), "a sample is archived twice");
        let missing = expected.difference(&found).count();
        match missing {
            0 => Ok(()),
            missing => Err(format!("{missing} of {} are missing", expected.len())),
        }
    });
    let all: BTreeSet<Row> = rows_of(&sent).into_iter().collect();
    let rows = read_archive(&archive).unwrap_or_default();
    let unknown = rows.iter().find(|row| !all.contains(*row));
    assert_eq!(unknown, None);
    assert_eq!(count(&agent, "lost_samples"), 0);
}
