//! The output of each collector on a fixture tree, compared with `tests/golden/collect/`.
//! `PEGEL_BLESS=1` overwrites the golden files instead.

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use crate::support::{TestClock, fixture, open, repository};
use pegel_collect::{CollectSettings, CollectorEntry, CollectorState, Host, REGISTRY};
use pegel_metric::{GroupRow, Input, Series, Tick, format_value};

/// One line per present series: `name{…} value kind`. The series of `agent` about the other
/// collectors are left out: no golden text lists every collector.
fn render(row: &GroupRow) -> String {
    let is_of_another = |series: &Series| {
        let mut labels = series.labels();
        labels.any(|(key, value)| key == "collector" && value != "agent")
    };
    let mut text = String::new();
    for (index, series) in row.members.series.iter().enumerate() {
        if row.is_present(index) && !is_of_another(series) {
            let _ = write!(text, "{series} ");
            // The cost of a pass is measured and varies.
            let is_measured = series.name() == "pegel_collector_seconds_total";
            let value = if is_measured { 0.0 } else { row.values[index] };
            format_value(&mut text, value);
            let _ = writeln!(text, " {}", series.family().kind.as_str());
        }
    }
    text
}

fn difference(expected: &str, found: &str) -> String {
    let mut text = String::new();
    for line in expected
        .lines()
        .filter(|line| !found.lines().any(|other| other == *line))
    {
        let _ = writeln!(text, "- {line}");
    }
    for line in found
        .lines()
        .filter(|line| !expected.lines().any(|other| other == *line))
    {
        let _ = writeln!(text, "+ {line}");
    }
    text
}

/// A collector without a golden text is absent from that machine.
fn compare(host: Host, folder: &str) {
    let clock = TestClock::at(1_794_775_476_520);
    let mut set = open(&CollectSettings::default(), host, 4, &clock);
    let mut tick = Tick::new(Input::Collect);
    set.wait_for_threaded(Duration::from_secs(30));
    set.sample_all(0, &mut tick);
    let golden = repository().join("tests/golden/collect").join(folder);
    let is_bless = std::env::var_os("PEGEL_BLESS").is_some();
    let mut differences = String::new();
    for status in set.status() {
        let is_expected = golden.join(format!("{}.txt", status.name)).exists();
        let expected_state = if is_expected {
            CollectorState::Active
        } else {
            CollectorState::Absent
        };
        let is_known = matches!(
            status.state,
            CollectorState::Active | CollectorState::Absent
        );
        assert!(
            status.state == expected_state || is_bless && is_known,
            "{status:?}"
        );
        let row = tick
            .rows()
            .iter()
            .find(|row| *row.members.group == *status.name);
        let Some(row) = row else { continue };
        let found = render(row);
        let path = golden.join(format!("{}.txt", status.name));
        if is_bless {
            fs::create_dir_all(&golden).expect("create the folder");
            fs::write(&path, found).expect("write");
            continue;
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if expected != found {
            let lines = difference(&expected, &found);
            let _ = writeln!(differences, "{}:\n{lines}", path.display());
        }
    }
    assert!(
        differences.is_empty(),
        "{differences}PEGEL_BLESS=1 accepts what was found"
    );
}

#[test]
fn a_recorded_machine_gives_the_golden_text() {
    compare(fixture("basic"), "");
}

#[test]
fn a_recorded_node_of_a_job_gives_the_golden_text() {
    compare(fixture("h200"), "h200/node");
}

#[test]
fn an_old_kernel_gives_what_it_has() {
    compare(fixture("old"), "old");
}

#[test]
fn every_series_belongs_to_a_family_that_its_entry_lists() {
    let clock = TestClock::at(0);
    let mut set = open(&CollectSettings::default(), fixture("basic"), 4, &clock);
    let mut tick = Tick::new(Input::Collect);
    set.wait_for_threaded(Duration::from_secs(30));
    set.sample_all(0, &mut tick);
    for row in tick.rows() {
        let of_row = |entry: &&&CollectorEntry| *entry.name == *row.members.group;
        let entry = REGISTRY
            .iter()
            .find(of_row)
            .expect("a group is a collector's");
        for series in &row.members.series {
            let family = series.family();
            let is_listed = entry.families.iter().any(|listed| {
                let (before, after) = match listed.name.split_once("<key>") {
                    Some(parts) => parts,
                    None => (&*listed.name, ""),
                };
                let is_named = if listed.name.contains("<key>") {
                    family.name.starts_with(before) && family.name.ends_with(after)
                } else {
                    listed.name == family.name
                };
                is_named && listed.kind == family.kind && listed.level == family.level
            });
            assert!(is_listed, "{series} of {}", entry.name);
            assert!(family.level >= entry.level, "{series}");
            assert!(family.help.ends_with('.'), "{series}: {}", family.help);
            let stem = family.name.strip_suffix("_total").unwrap_or(&family.name);
            assert!(
                stem.ends_with(&*family.unit),
                "{series} is not named by its unit"
            );
        }
    }
}
