//! Metric names: compatibility with node_exporter and its dashboards.

use std::fs;

use crate::support::repository;
use pegel_collect::{DIVERGENT_METRICS, OMITTED_METRICS, REGISTRY};
use pegel_metric::Family;

fn families() -> impl Iterator<Item = &'static Family> {
    REGISTRY.iter().flat_map(|entry| entry.families).copied()
}

/// Returns whether a family has this name or covers it with a `<…>`.
fn is_covered(name: &str) -> bool {
    families().any(|family| {
        let parts = family.name.split_once('<').and_then(|(before, rest)| {
            let (_, after) = rest.split_once('>')?;
            Some((before, after))
        });
        match parts {
            Some((before, after)) => {
                let rest = name.strip_prefix(before);
                let key = rest.and_then(|rest| rest.strip_suffix(after));
                key.is_some_and(|key| !key.is_empty())
            }
            None => family.name == name,
        }
    })
}

#[test]
fn metrics_of_the_dashboard_are_present_or_documented() {
    let path = repository().join("tests/golden/node-exporter-full-names.txt");
    let names = fs::read_to_string(path).expect("read");
    let is_explained = |name: &str| {
        OMITTED_METRICS
            .iter()
            .any(|(start, _)| name.starts_with(start))
    };
    let unknown: Vec<&str> = names
        .lines()
        .filter(|name| !is_covered(name) && !is_explained(name))
        .collect();
    assert!(
        unknown.is_empty(),
        "neither covered nor explained: {unknown:?}"
    );
    assert!(names.lines().count() > 200, "the list is there");
}

#[test]
fn documented_omissions_are_absent() {
    for family in families() {
        let stale = OMITTED_METRICS
            .iter()
            .find(|(start, _)| family.name.starts_with(start));
        assert_eq!(stale, None, "{}", family.name);
    }
    for (start, reason) in OMITTED_METRICS.iter().chain(DIVERGENT_METRICS) {
        assert!(reason.ends_with('.'), "{start}: {reason}");
        // Metrics that a reason names as a replacement must exist.
        let quoted = reason.split('`').skip(1).step_by(2);
        for name in quoted.filter(|name| name.starts_with("pegel_") || name.starts_with("node_")) {
            let is_there = match name.strip_suffix('*') {
                Some(start) => families().any(|family| family.name.starts_with(start)),
                None => is_covered(name),
            };
            assert!(is_there, "{start}: there is no {name}");
        }
    }
    for (start, _) in DIVERGENT_METRICS {
        assert!(is_covered(start), "{start}");
    }
}
