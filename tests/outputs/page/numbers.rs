//! The numbers of the page, compared with those of other programs and with what was stored.

use std::process::Command;
use std::time::Duration;

use pegel_testkit::{BrowserPage, eventually, eventually_within, need};
use serde_json::Value;

use super::{agent, url};

/// Returns an expression that evaluates `body` with a module of the page as `m`.
fn with_module(module: &str, body: &str) -> String {
    format!("import(new URL('page/{module}', document.baseURI)).then(m => {{ {body} }})")
}

/// The text of a row of the Overview.
fn row_text(card: &str, label: &str) -> String {
    format!(
        "[...document.querySelectorAll('.cards .card')].find(card => card.querySelector('h2').textContent === '{card}')\
         ?.querySelectorAll('.row').values().find(row => row.querySelector('.row-label').textContent === '{label}')\
         ?.querySelector('.row-text').textContent ?? ''"
    )
}

fn bytes_of(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let power = ["B", "KiB", "MiB", "GiB", "TiB"]
        .iter()
        .position(|known| *known == unit)?;
    Some(number.parse::<f64>().ok()? * 1024f64.powi(power as i32))
}

#[test]
fn memory_in_use_is_the_total_minus_the_available_and_shared_memory_is_no_cache() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.open(&url(&agent));
    page.until_live();
    let value = |name: &str| {
        let path = format!("/api/v1/values?match=node_memory_{name}_bytes");
        agent.get(&path).json()[0]["value"]
            .as_f64()
            .expect("a value")
    };
    let near = |shown: Option<f64>, expected: f64| {
        shown.is_some_and(|shown| (shown - expected).abs() <= expected * 0.05 + 64e6)
    };
    eventually("the numbers of free", || {
        let shown = page.eval(
            "[document.querySelectorAll('.cards .card')[1].querySelector('.row-text')?.textContent ?? '', \
              document.querySelectorAll('.cards .card')[1].querySelector('.note').textContent]",
        );
        let note = shown[1].as_str().unwrap_or_default().to_owned();
        let part = |name: &str| {
            let mut parts = note.split(" · ").filter_map(|part| part.split_once(' '));
            bytes_of(parts.find(|(key, _)| *key == name)?.1)
        };
        let used = bytes_of(shown[0].as_str().unwrap_or_default());
        let shared = value("Shmem");
        let cache = value("Cached") + value("SReclaimable") + value("Buffers") - shared;
        let is_right = near(used, value("MemTotal") - value("MemAvailable"))
            && near(part("cache"), cache)
            && near(part("shared"), shared);
        if is_right { Ok(()) } else { Err(shown) }
    });
}

#[test]
fn file_systems_are_as_full_as_df_says() {
    let (Some(chromium), Some(df)) = (need("chromium"), need("df")) else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.open(&url(&agent));
    page.until_live();
    eventually("the same percentage", || {
        let output = Command::new(&df).args(["-P", "/"]).output().expect("df");
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        let expected = table
            .split_whitespace()
            .filter_map(|word| word.strip_suffix('%')?.parse::<f64>().ok())
            .next()
            .expect("a percentage");
        let shown = page.eval(&row_text("File systems", "/"));
        let percent = shown
            .as_str()
            .and_then(|text| text.split_once(" %")?.0.parse::<f64>().ok());
        // df rounds up.
        match percent {
            Some(percent) if expected - percent > -0.5 && expected - percent < 1.5 => Ok(()),
            _ => Err((shown, table)),
        }
    });
}

#[test]
fn a_number_is_the_mean_of_some_seconds_and_not_the_last_sample() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    page.open(&url(&agent));
    page.until_live();
    // 4000 at once, every two seconds: 2000 per second, although most samples show no increase.
    let shown = page.eval(&with_module(
        "frame.js",
        "const frame = new m.Frame([{ name: 'c', rate: true, by: [] }]);
         frame.reset(0, 60000, 2000, 500);
         const entry = { text: 'c', name: 'c', labels: {}, value: 0, ts: 60000 };
         frame.meet(entry);
         const seen = [];
         for (let tick = 1; tick <= 80; tick += 1) {
           entry.ts = 60000 + tick * 500;
           if (tick % 4 === 0) entry.value += 4000;
           frame.tick(entry.ts);
           if (tick > 40) seen.push(frame.recent().lines()[0].data[0]);
         }
         return [Math.min(...seen), Math.max(...seen)];",
    ));
    let [least, most] = [0, 1].map(|at| shown[at].as_f64().expect("a number"));
    assert!(least >= 1500.0 && most <= 2500.0, "{shown}");
}

#[test]
fn the_baseline_of_changes_is_no_longer_than_the_history() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    eventually_within(Duration::from_secs(60), "some history", || {
        let store = agent.status()["store"].clone();
        let span = store["newest"].as_i64().zip(store["oldest"].as_i64());
        span.filter(|(newest, oldest)| newest - oldest > 25_000)
            .ok_or(store)
    });
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.open(&format!("{}#/overview?span=60", url(&agent)));
    page.until_live();
    let note = "document.querySelector('.changes-card .note').textContent";
    page.until(&format!("/before\\.$/.test({note})"));
    let note = page.eval(note);
    let store = agent.status()["store"].clone();
    let history =
        store["newest"].as_i64().expect("a time") - store["oldest"].as_i64().expect("a time");
    let text = note.as_str().expect("text");
    let seconds: Vec<i64> = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(
        seconds.len() == 2 && seconds.iter().sum::<i64>() * 1000 <= history + 1000,
        "{text}: {history} ms"
    );
    // A series that was there before is not new, however large the change.
    let factor = page.eval(&with_module(
        "changes.js",
        "return m.changeText(11.9, 14700)",
    ));
    assert_eq!(factor, "× 1.24 k");
    let from_zero = page.eval(&with_module("changes.js", "return m.changeText(0, 5)"));
    assert_eq!(from_zero, Value::from("from 0"));
}
