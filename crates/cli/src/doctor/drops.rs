//! Samples that an agent was given and did not keep.

use serde_json::Value;

use super::finding::Finding;
use super::pluralize;

/// What to do about each reason.
const FIXES: [(&str, &str); 18] = [
    (
        "queue_full",
        "the disk or the processor does not keep up: raise `rate`, or give the store a faster disk",
    ),
    (
        "series_limit",
        "raise limits.series, or find who sends names without end: pegel list",
    ),
    (
        "sender_limit",
        "raise limits.series_per_sender, or find who sends names without end: pegel list",
    ),
    (
        "sender_rate",
        "a sender exceeds limits.sender_bytes: raise it, or find the sender in /status (senders)",
    ),
    (
        "too_old",
        "senders back-fill further than keep.disk reaches: raise it, or correct their clocks",
    ),
    (
        "future",
        "correct the sender's clock: it is more than 10 minutes ahead",
    ),
    ("memory", "make room on the store's disk"),
    ("degraded", "make room on the store's disk"),
    (
        "malformed",
        "correct the sender: what it sends is not in the protocol's form",
    ),
    (
        "bad_value",
        "correct the sender: what it sends as values are no numbers",
    ),
    (
        "bad_name",
        "correct the sender: its names or labels are too long or not allowed",
    ),
    (
        "kernel",
        "let the kernel hold more: sudo sysctl net.core.rmem_max=8388608 (takes memory)",
    ),
    (
        "overrun",
        "points come faster than they are read: lower `rate`, or send fewer",
    ),
    (
        "denied",
        "name the sender's user in allow_users, or give it the token",
    ),
    (
        "too_large",
        "send points in smaller parts, or raise limits.body",
    ),
    (
        "busy",
        "send less at once, or raise limits.bodies (takes memory)",
    ),
    (
        "unsupported",
        "nothing: events and service checks of DogStatsD are not kept; send them elsewhere",
    ),
    ("closed", "nothing: they came while the agent stopped"),
];
/// Dropped because the configuration says so.
const INTENDED_REASONS: [&str; 2] = ["rule", "level"];

pub fn evaluate(status: &Value) -> Vec<Finding> {
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
        findings.push(Finding::ok("dropped", "nothing since the agent started"));
    }
    findings
}

/// A finding when something was dropped: `dropped` is a count, or counts by reason.
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
    let of = received.map_or(String::new(), |received| format!(" of {received}"));
    let by_reason: Vec<String> = reasons
        .iter()
        .filter(|(reason, _)| !reason.is_empty())
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    let by_reason = match by_reason.is_empty() {
        true => String::new(),
        false => format!(": {}", by_reason.join(", ")),
    };
    let fix = FIXES.iter().find(|(reason, _)| *reason == worst);
    let fix = fix.map_or("see what the agent's log says", |(_, fix)| fix);
    let says = format!(
        "{name}: {}{of} dropped{by_reason}",
        pluralize::pluralized(total, "sample")
    );
    Some(Finding::better(check, says, fix))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::FindingState;

    #[test]
    fn nothing_dropped_is_said_once() {
        let status = json!({"inputs": [{"input": "collect", "received": 9, "dropped": {"future": 0}}], "senders": []});
        assert_eq!(
            evaluate(&status),
            [Finding::ok("dropped", "nothing since the agent started")]
        );
        assert_eq!(evaluate(&json!({}))[0].state, FindingState::Ok);
    }

    #[test]
    fn the_worst_reason_gives_the_advice() {
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
