//! Reports the samples that an agent received and dropped, with a fix per reason.

use serde_json::Value;

use super::finding::Finding;
use super::pluralize;

/// The fix for each drop reason.
const FIXES: [(&str, &str); 18] = [
    (
        "queue_full",
        "disk or CPU is too slow: increase `rate`, or put the store on a faster disk",
    ),
    (
        "series_limit",
        "raise limits.series, or find the sender of unbounded names: pegel list",
    ),
    (
        "sender_limit",
        "raise limits.series_per_sender, or find the sender of unbounded names: pegel list",
    ),
    (
        "sender_rate",
        "a sender exceeds limits.sender_bytes: raise it, or find the sender in /status (senders)",
    ),
    (
        "too_old",
        "timestamps are older than keep.disk: raise it, or correct the senders' clocks",
    ),
    (
        "future",
        "correct the sender's clock: it is more than 10 minutes ahead",
    ),
    ("memory", "free space on the store's disk"),
    ("degraded", "free space on the store's disk"),
    (
        "malformed",
        "correct the sender: its messages violate the protocol",
    ),
    (
        "bad_value",
        "correct the sender: its values are not numbers",
    ),
    (
        "bad_name",
        "correct the sender: its names or labels are too long, contain invalid characters, or are \
         reserved for the node, such as node_load1 (docs/metrics.md)",
    ),
    (
        "kernel",
        "enlarge the receive buffer: sudo sysctl net.core.rmem_max=8388608 (uses memory)",
    ),
    (
        "overrun",
        "points arrive faster than they are read: lower `rate`, or send fewer",
    ),
    (
        "denied",
        "add the sender's user to allow_users, or give it the token",
    ),
    (
        "too_large",
        "send points in smaller requests, or raise limits.body",
    ),
    (
        "busy",
        "send fewer requests at once, or raise limits.bodies (uses memory)",
    ),
    (
        "unsupported",
        "nothing to fix: DogStatsD service checks, and texts in InfluxDB's lines, are not stored",
    ),
    (
        "closed",
        "nothing to fix: they arrived while the agent was stopping",
    ),
];
/// Reasons that the configuration asks for; not reported.
const INTENDED_REASONS: [&str; 2] = ["rule", "level"];

pub(super) fn evaluate(status: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for input in status["inputs"].as_array().into_iter().flatten() {
        let name = input["input"].as_str().unwrap_or("?");
        findings.extend(drop_finding("dropped", name, input));
    }
    for sender in status["senders"].as_array().into_iter().flatten() {
        let name = ["sender", "name", "who"]
            .iter()
            .find_map(|key| sender[*key].as_str());
        findings.extend(drop_finding(
            "dropped by sender",
            name.unwrap_or("?"),
            sender,
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("dropped", "no samples since the agent started"));
    }
    findings
}

/// Returns a finding if samples were dropped; `dropped` is a count, or an object of counts by
/// reason.
fn drop_finding(check: &'static str, name: &str, account: &Value) -> Option<Finding> {
    let mut reasons: Vec<(&str, u64)> = match &account["dropped"] {
        Value::Object(reasons) => reasons
            .iter()
            .filter_map(|(reason, count)| Some((reason.as_str(), count.as_u64()?)))
            .filter(|(reason, count)| *count > 0 && !INTENDED_REASONS.contains(reason))
            .collect(),
        count => vec![("", count.as_u64().filter(|count| *count > 0)?)],
    };
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let (worst, _) = *reasons.first()?;
    let total: u64 = reasons.iter().map(|(_, count)| count).sum();
    let received = account["received"].as_u64();
    let of_total = received.map_or(String::new(), |received| format!(" of {received}"));
    let by_reason: Vec<String> = reasons
        .iter()
        .filter(|(reason, _)| !reason.is_empty())
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    let by_reason = if by_reason.is_empty() {
        String::new()
    } else {
        format!(": {}", by_reason.join(", "))
    };
    let fix = FIXES.iter().find(|(reason, _)| *reason == worst);
    let fix = fix.map_or("see the agent's log", |(_, fix)| fix);
    let message = format!(
        "{name}: {}{of_total} dropped{by_reason}",
        pluralize::pluralized(total, "sample")
    );
    Some(Finding::better(check, message, fix))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::FindingState;

    #[test]
    fn no_drops_yield_one_finding() {
        let status = json!({"inputs": [{"input": "collect", "received": 9, "dropped": {"future": 0}}], "senders": []});
        assert_eq!(
            evaluate(&status),
            [Finding::ok("dropped", "no samples since the agent started")]
        );
        assert_eq!(evaluate(&json!({}))[0].state, FindingState::Ok);
    }

    #[test]
    fn the_most_frequent_reason_determines_the_fix() {
        let status = json!({
            "inputs": [{"input": "push", "received": 100, "dropped": {"future": 2, "series_limit": 40, "closed": 0}}],
            "senders": [{"sender": "uid 1000", "dropped": 42}, {"sender": "uid 0", "dropped": {"future": 0, "rule": 9}}],
        });
        let findings = evaluate(&status);
        assert_eq!(findings.len(), 2);
        assert_eq!(
            findings[0].message,
            "push: 42 samples of 100 dropped: series_limit 40, future 2"
        );
        assert!(
            findings[0]
                .fix
                .as_deref()
                .expect("a fix")
                .contains("limits.series")
        );
        assert_eq!(findings[1].message, "uid 1000: 42 samples dropped");
        assert!(
            findings
                .iter()
                .all(|finding| finding.state == FindingState::Better)
        );
    }
}
