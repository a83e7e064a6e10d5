//! `kill -9` of the agent at random moments, many times on one directory, while it samples hundreds
//! of times a second and writes blocks. Readers record every value that they received.
//!
//! `PEGEL_KILLS=1000 cargo test -p pegel --test agent kills` does it more often.

#![allow(clippy::print_stderr)] // A failing test shows what it measured; a passing one does not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pegel_testkit::{AgentProcess, Rng, StoredSamples, TempDir, eventually, get, now_millis};
use serde_json::Value;

use crate::PEGEL;

const KILLS: u64 = 100;
/// Gauges and counters, of several groups; some hardly change, some change with each sample.
const WATCHED: [&str; 4] = [
    "node_load1",
    "node_context_switches_total",
    "node_memory_Mem*",
    "pegel_kept_total",
];

fn start(dir: &TempDir, rng: &mut Rng) -> AgentProcess {
    // The head is short, so that kills hit the writing of blocks too.
    let rate = rng.between(1..6);
    let memory = rng.pick(&["50ms", "200ms", "1s"]);
    PEGEL
        .agent()
        .dir(dir.join("store"))
        .config(&format!("rate: {rate}ms\nkeep: {{memory: {memory}}}\n"))
        .start()
}

fn watched() -> String {
    WATCHED.join("&match=")
}

/// Reads until `is_over` or the end of the agent; returns the samples of complete responses.
fn remember(agent: &AgentProcess, is_over: &AtomicBool) -> StoredSamples {
    let mut shown = StoredSamples::default();
    while !is_over.load(Ordering::Relaxed) {
        for path in ["values?match=", "range?start=-2s&match="] {
            // A truncated response does not count.
            let Ok(answer) = get(agent.http(), &format!("/api/v1/{path}{}", watched())) else {
                continue;
            };
            assert_eq!(answer.status, 200, "{}", answer.text());
            let answer = answer.json();
            for series in answer.as_array().expect("a list") {
                match &series["points"] {
                    Value::Array(points) => {
                        let text = text(&series["name"], &series["labels"]);
                        for point in points {
                            let time = point[0].as_i64().expect("milliseconds");
                            shown.insert(text.clone(), time, point[1].as_f64().expect("a number"));
                        }
                    }
                    _ => {
                        let (name, labels) = split(series["name"].as_str().expect("a name"));
                        let time =
                            (series["ts"].as_f64().expect("seconds") * 1000.0).round() as i64;
                        let value = series["value"].as_f64().expect("a number");
                        shown.insert(text(&name, &labels), time, value);
                    }
                }
            }
        }
    }
    shown
}

/// Formats a series like [`StoredSamples`].
fn text(name: &Value, labels: &Value) -> String {
    format!("{name}{labels}")
}

/// Splits `name{input="push"}` into the name and the labels of a range. No watched series has two
/// labels.
fn split(series: &str) -> (Value, Value) {
    let Some((name, label)) = series.split_once('{') else {
        return (series.into(), serde_json::json!({}));
    };
    let (key, value) = label.split_once('=').expect("a label");
    let value = value.trim_matches(['"', '}']);
    (name.into(), serde_json::json!({key: value}))
}

#[test]
fn nothing_that_was_shown_is_lost_changed_or_doubled_by_kill_9() {
    let kills = match std::env::var("PEGEL_KILLS") {
        Ok(text) => text.parse().expect("PEGEL_KILLS is a whole number"),
        Err(_) => KILLS,
    };
    let mut rng = Rng::from_env();
    let dir = TempDir::new();
    let mut remembered = StoredSamples::default();
    let (mut blocks, mut torn) = (0, 0);
    let begun = now_millis();
    for kill in 0..kills {
        let agent = start(&dir, &mut rng);
        let store = agent.status()["store"].clone();
        assert_eq!(
            store["set_aside"],
            serde_json::json!([]),
            "kill {kill}: {store}"
        );
        assert_eq!(store["degraded"], Value::Null, "kill {kill}: {store}");
        blocks = blocks.max(store["blocks"].as_u64().expect("a number"));
        torn += u64::from(store["torn_bytes"] != 0);
        // Everything at every tenth kill, otherwise the last seconds: reading everything takes
        // long.
        if kill % 10 == 9 {
            remembered.assert_all_in(&agent.samples(&watched()));
        } else {
            let recent = now_millis() - 5_000;
            let found = StoredSamples::since(&agent, &watched(), "-6s");
            remembered.from(recent).assert_all_in(&found);
        }
        let life = Duration::from_millis(100 + rng.below(200));
        let is_over = AtomicBool::new(false);
        let shown = std::thread::scope(|scope| {
            let readers = [(); 2].map(|()| scope.spawn(|| remember(&agent, &is_over)));
            std::thread::sleep(life);
            // Readers and agent are busy at this moment.
            agent.signal(rustix::process::Signal::KILL);
            std::thread::sleep(Duration::from_millis(1));
            is_over.store(true, Ordering::Relaxed);
            readers.map(|reader| reader.join().expect("shown"))
        });
        shown.into_iter().for_each(|shown| remembered.extend(shown));
    }
    let last = start(&dir, &mut rng);
    let found = last.samples(&watched());
    remembered.assert_all_in(&found);
    let now = now_millis();
    assert!(
        found.times().all(|time| begun <= time && time <= now),
        "made up"
    );
    eprintln!(
        "{kills} kills, {} samples remembered, {} found, {blocks} blocks, {torn} torn logs",
        remembered.len(),
        found.len()
    );
    assert!(
        remembered.len() as u64 > kills * 100 && blocks > 3,
        "too little happened: {} samples, {blocks} blocks",
        remembered.len()
    );
    eventually("it goes on sampling", || {
        let now = last.samples("node_load1").len();
        if now > 10 { Ok(()) } else { Err(now) }
    });
    last.assert_conserved();
}
