//! Runs the examples of docs/archive.md.

use std::process::Command;

use pegel_testkit::{TempDir, eventually_within, need_peer};

use super::{BOUND, archiving_agent, count, hours_ago, points, send};

#[test]
fn the_examples_of_the_documentation_run() {
    let Some(python) = need_peer("analysis/bin/python3") else {
        return;
    };
    let home = TempDir::new();
    let agent = archiving_agent(&home, "").start();
    let batch = points((0..100).map(|n| hours_ago(5) + n * 10_000));
    assert!(send(&agent, &batch));
    eventually_within(BOUND, "the points are archived", || {
        let samples = count(&agent, "samples");
        (samples == batch.len() as u64).then_some(()).ok_or(samples)
    });
    let text = include_str!("../../../docs/archive.md");
    let blocks: Vec<&str> = { text.split("```python\n").skip(1) }
        .filter_map(|block| Some(block.split_once("```")?.0))
        .collect();
    assert_eq!(blocks.len(), 4);
    for block in blocks {
        let output = Command::new(&python)
            .args(["-c", block])
            .current_dir(home.path())
            .output()
            .expect("started");
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{block}\n{stderr}");
        // Every example prints values of the points.
        assert!(
            stdout.contains("queue") || stdout.contains("b c"),
            "{block}\n{stdout}"
        );
    }
}
