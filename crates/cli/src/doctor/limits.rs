//! Checks limits that are reached or nearly reached: open files, series, memory.

use std::fs;

use serde_json::Value;

use super::finding::Finding;
use super::pluralize;

/// Files that an agent opens besides connections.
const OTHER_FILES: u64 = 400;

#[derive(Debug, Clone, Default)]
pub(super) struct LimitsProbe {
    /// Limit on open files, of the running agent or of one started by this user.
    pub open_files: Option<u64>,
    pub connections: u64,
    /// Current value and limit, from a running agent.
    pub series: Option<(u64, u64)>,
    pub memory: Option<(u64, u64)>,
}

pub(super) fn probe(status: Option<&Value>, connections: u64) -> LimitsProbe {
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

/// Parses the hard limit: an agent raises its soft limit at startup.
fn parse_open_files(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

pub(super) fn evaluate(facts: &LimitsProbe) -> Vec<Finding> {
    let mut findings = Vec::new();
    let required = facts.connections.saturating_add(OTHER_FILES);
    findings.extend(facts.open_files.map(|limit| {
        if limit >= required {
            return Finding::ok(
                "open files",
                format!("enough for {} connections", facts.connections),
            );
        }
        Finding::better(
            "open files",
            format!(
                "limit {limit} is too low for {} connections",
                facts.connections
            ),
            format!(
                "ulimit -Hn {required} as root before starting the agent, or LimitNOFILE={required} in the unit"
            ),
        )
    }));
    findings.extend(facts.series.map(|(now, limit)| {
        let message = format!("{now} of {limit}");
        match (now >= limit, is_nearly_reached(now, limit)) {
            (true, _) => Finding::broken(
                "series",
                format!("{message}: limit reached, new series are dropped"),
                "raise limits.series, or find the sender of unbounded names: pegel list",
            ),
            (_, true) => Finding::better(
                "series",
                format!("{message}: limit nearly reached"),
                "raise limits.series",
            ),
            _ => Finding::ok("series", message),
        }
    }));
    findings.extend(facts.memory.map(|(now, limit)| {
        let message = format!(
            "samples use {} of {}",
            pluralize::format_bytes(now),
            pluralize::format_bytes(limit)
        );
        if is_nearly_reached(now, limit) {
            Finding::better(
                "memory",
                format!("{message}: limit nearly reached"),
                "raise limits.memory, or lower keep.memory",
            )
        } else {
            Finding::ok("memory", message)
        }
    }));
    findings
}

/// Returns whether at least 90 % of the limit is used.
fn is_nearly_reached(now: u64, limit: u64) -> bool {
    u128::from(now) * 10 >= u128::from(limit) * 9
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::FindingState;

    #[test]
    fn the_hard_limit_on_open_files_is_parsed() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(parse_open_files(text), Some(524_288));
        assert_eq!(
            parse_open_files("Max open files   1   unlimited   files"),
            Some(u64::MAX)
        );
        assert_eq!(parse_open_files(""), None);
    }

    #[test]
    fn limits_are_ok_nearly_reached_or_reached() {
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
    fn limits_missing_from_the_status_yield_no_findings() {
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
