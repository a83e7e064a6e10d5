//! docs/metrics.md: every metric there is. Made from the registry of collectors, the first words of
//! each collector's file, the golden texts (which labels a series has) and the measured costs.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use pegel_collect::{DIFFERENT, Entry, LEFT_OUT, REGISTRY, Tier};
use pegel_metric::Family;
use serde_json::Value;

use crate::golden_labels::GoldenLabels;

const GOLDEN: &str = "tests/golden/collect";
const COLLECTORS: &str = "crates/collect/src/collectors";
const COSTS: &str = "docs/metrics-cost.json";

const INTRODUCTION: &str = "\
# Metrics

Written by `cargo xtask tidy --fix`; do not edit.

An agent at level N keeps what is at most N: 1 programs' own metrics, 2 the node's basics, 3 GPUs,
interconnects, energy, sensors and parallel file systems, 4 processes and protocols in detail. The
default is 3. A name with `<…>` in it stands for many; its parts come from the file that is read.

A collector runs at the agent's rate (every 500 ms by default) unless it says otherwise here. Its
cost is the time of one pass at level 4 on a virtual machine with two CPUs (`cargo run --release -p
pegel-bench --bin collector_cost`); with a star, on the recorded machine in `tests/fixtures/basic`,
because the virtual one has no such thing. What is absent from a node costs nothing and is quiet.
";

pub fn page() -> Result<String> {
    let labels = GoldenLabels::read(Path::new(GOLDEN))?;
    let costs = fs::read_to_string(COSTS).with_context(|| format!("cannot read {COSTS}"))?;
    let costs: Value =
        serde_json::from_str(&costs).with_context(|| format!("{COSTS} is not JSON"))?;
    let mut page = INTRODUCTION.to_owned();
    for entry in REGISTRY {
        section(&mut page, entry, &labels, &costs)?;
    }
    table(
        &mut page,
        "What node_exporter has and Pegel has not",
        "names that begin with",
        LEFT_OUT,
    );
    table(
        &mut page,
        "What both have and differs",
        "series that begin with",
        DIFFERENT,
    );
    Ok(page)
}

fn section(page: &mut String, entry: &Entry, labels: &GoldenLabels, costs: &Value) -> Result<()> {
    let about = collector_description(entry.name)?;
    let every = match entry.tier {
        Tier::Fast => "",
        Tier::FiveSeconds => " Every 5 s.",
        Tier::Minute => " Every 60 s.",
    };
    let cost = cost(&costs[entry.name]);
    writeln!(page, "\n## {}\n\n{about}{every}{cost}\n", entry.name)?;
    page.push_str("| name | type | unit | labels | level | |\n|---|---|---|---|---|---|\n");
    for family in entry.families {
        let Family {
            name,
            kind,
            unit,
            level,
            help,
            ..
        } = family;
        let labels = labels.of_family(name).join(", ");
        let kind = kind.as_str();
        writeln!(
            page,
            "| `{name}` | {kind} | {unit} | {labels} | {level} | {} |",
            help.replace('|', "\\|")
        )?;
    }
    Ok(())
}

fn table(page: &mut String, title: &str, what: &str, rows: &[(&str, &str)]) {
    let _ = write!(page, "\n## {title}\n\n| {what} | why |\n|---|---|\n");
    for (start, reason) in rows {
        let _ = writeln!(page, "| `{start}` | {reason} |");
    }
}

/// Two digits are as much as such a measurement is worth.
fn cost(measured: &Value) -> String {
    let Some(microseconds) = measured["microseconds"].as_f64() else {
        return String::new();
    };
    let star = if measured["machine"] == "recorded" {
        "*"
    } else {
        ""
    };
    let series = &measured["series"];
    let rounded = if microseconds < 10.0 {
        format!("{microseconds:.1}")
    } else {
        format!("{microseconds:.0}")
    };
    format!(" Cost: {rounded} µs{star} for {series} series.")
}

/// What the collector's file says about itself: it must name its source.
fn collector_description(collector: &str) -> Result<String> {
    let path = format!("{COLLECTORS}/{collector}.rs");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let about = first_paragraph(&text).ok_or_else(|| anyhow!("{path} does not say what it is"))?;
    ensure!(
        about.contains('`'),
        "{path}: its first paragraph does not name the source in backticks"
    );
    Ok(about)
}

fn first_paragraph(text: &str) -> Option<String> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let lines = lines.map(str::trim).take_while(|line| !line.is_empty());
    let about = lines.collect::<Vec<&str>>().join(" ");
    (!about.is_empty()).then_some(about)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_paragraph_ends_at_an_empty_line() {
        let text = "//! One,\n//! two.\n//!\n//! Three.\n\nuse x;\n";
        assert_eq!(first_paragraph(text).as_deref(), Some("One, two."));
        assert_eq!(first_paragraph("use x;\n"), None);
    }

    #[test]
    fn costs_have_two_digits() {
        let measured = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        let text = r#"{"machine": "recorded", "microseconds": 153.94, "series": 13}"#;
        assert_eq!(cost(&measured(text)), " Cost: 154 µs* for 13 series.");
        let text = r#"{"machine": "this", "microseconds": 1.26, "series": 2}"#;
        assert_eq!(cost(&measured(text)), " Cost: 1.3 µs for 2 series.");
        assert_eq!(cost(&Value::Null), "", "not measured yet");
    }
}
