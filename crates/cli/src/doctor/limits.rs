//! Limits that were hit, or soon will be.

use std::fs;

use serde_json::Value;

use super::finding::Finding;
use super::pluralize;

/// What an agent opens beside connections.
const OTHER_FILES: u64 = 400;

#[derive(Debug, Clone, Default)]
pub struct LimitsProbe {
    /// How many files the agent may open: the running one, or one that this user starts.
    pub open_files: Option<u64>,
    pub connections: u64,
    /// What an agent has of what it may have.
    pub series: Option<(u64, u64)>,
    pub memory: Option<(u64, u64)>,
}

pub fn probe(status: Option<&Value>, connections: u64) -> LimitsProbe {
    let pid = status.and_then(|status| status["pid"].as_u64());
    let file = pid.map_or("/proc/self/limits".to_owned(), |pid| {
        format!("/proc/{pid}/limits")
    });
    let pair = |part: &Value, limit: &Value| Some((part.as_u64()?, limit.as_u64()?));
    LimitsProbe {
        open_files: fs::read_to_string(file)
            .ok()
            .and_then(|text| parse_open_files(&text)),
        connections: status
            .and_then(|status| status["limits"]["connections"].as_u64())
            .unwrap_or(connections),
        series: status.and_then(|s| pair(&s["store"]["series"], &s["limits"]["series"])),
        memory: status
            .and_then(|s| pair(&s["store"]["memory_bytes"], &s["limits"]["memory_bytes"])),
    }
}

/// The hard limit: an agent raises the other one by itself.
fn parse_open_files(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

pub fn evaluate(facts: &LimitsProbe) -> Vec<Finding> {
    let mut findings = Vec::new();
    let wanted = facts.connections.saturating_add(OTHER_FILES);
    findings.extend(facts.open_files.map(|limit| match limit >= wanted {
        true => Finding::ok(
            "open files",
            format!("enough for {} connections", facts.connections),
        ),
        false => Finding::better(
            "open files",
            format!(
                "at most {limit}: too few for {} connections",
                facts.connections
            ),
            format!(
                "ulimit -Hn {wanted} as root before the start, or LimitNOFILE={wanted} in the unit"
            ),
        ),
    }));
    findings.extend(facts.series.map(|(now, limit)| {
        let says = format!("{now} of {limit}");
        match (now >= limit, is_nearly_reached(now, limit)) {
            (true, _) => Finding::broken(
                "series",
                format!("{says}: new series are dropped"),
                "raise limits.series, or find who sends names without end: pegel list",
            ),
            (_, true) => Finding::better(
                "series",
                format!("{says}: nearly all"),
                "raise limits.series",
            ),
            _ => Finding::ok("series", says),
        }
    }));
    findings.extend(facts.memory.map(|(now, limit)| {
        let says = format!(
            "samples take {} of {}",
            pluralize::bytes(now),
            pluralize::bytes(limit)
        );
        match is_nearly_reached(now, limit) {
            true => Finding::better(
                "memory",
                format!("{says}: nearly all"),
                "raise limits.memory, or lower keep.memory",
            ),
            false => Finding::ok("memory", says),
        }
    }));
    findings
}

/// Nine tenths and more.
fn is_nearly_reached(now: u64, limit: u64) -> bool {
    u128::from(now) * 10 >= u128::from(limit) * 9
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::FindingState;

    #[test]
    fn the_hard_limit_on_files_counts() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(parse_open_files(text), Some(524_288));
        assert_eq!(
            parse_open_files("Max open files   1   unlimited   files"),
            Some(u64::MAX)
        );
        assert_eq!(parse_open_files(""), None);
    }

    #[test]
    fn limits_are_far_near_or_hit() {
        let states = |files, series, memory| {
            let facts = LimitsProbe {
                open_files: Some(files),
                connections: 512,
                series: Some((series, 100)),
                memory: Some((memory, 1000)),
            };
            evaluate(&facts)
                .into_iter()
                .map(|finding| finding.state)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            states(1024, 10, 10),
            [FindingState::Ok, FindingState::Ok, FindingState::Ok]
        );
        assert_eq!(
            states(256, 90, 950),
            [
                FindingState::Better,
                FindingState::Better,
                FindingState::Better
            ]
        );
        assert_eq!(states(u64::MAX, 100, 10)[1], FindingState::Broken);
    }

    #[test]
    fn an_agent_that_does_not_say_its_limits_is_not_judged_by_them() {
        let facts = probe(Some(&json!({"pid": 0, "store": {"series": 5}})), 512);
        assert_eq!(
            (facts.series, facts.memory, facts.connections),
            (None, None, 512)
        );
        let status = json!({"store": {"series": 5, "memory_bytes": 7}, "limits": {"series": 10, "memory_bytes": 70, "connections": 3}});
        let facts = probe(Some(&status), 512);
        assert_eq!((facts.series, facts.memory), (Some((5, 10)), Some((7, 70))));
        assert_eq!(facts.connections, 3);
    }
}
