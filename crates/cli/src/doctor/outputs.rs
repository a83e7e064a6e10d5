//! Reports the servers to which the agent cannot send, and an archive that it cannot store.

use serde_json::Value;

use super::finding::Finding;
use super::pluralize::pluralized;

/// Returns one finding for each Graphite server that fails or lost values, or one for all of them.
/// None without servers. An archive has one finding.
pub(super) fn evaluate(status: &Value) -> Vec<Finding> {
    let servers = status["graphite"].as_array().into_iter().flatten();
    let (mut findings, mut count) = (Vec::new(), 0);
    for server in servers {
        count += 1;
        findings.extend(failing(server));
    }
    if findings.is_empty() && count > 0 {
        let message = format!("{} without errors", pluralized(count, "Graphite server"));
        findings.push(Finding::ok("graphite", message));
    }
    findings.extend(evaluate_archive(status));
    findings
}

/// Returns the finding about the archive; `None` without one.
fn evaluate_archive(status: &Value) -> Option<Finding> {
    let archive = status.get("archive")?;
    let place = archive["to"].as_str().unwrap_or("?");
    let number = |key: &str| archive[key].as_u64().unwrap_or(0);
    let waiting = pluralized(number("pending_blocks"), "block");
    let lost = number("lost_samples");
    if let Some(error) = archive["last_error"].as_str() {
        let lost = pluralized(lost, "sample");
        let message = format!("{error}; {waiting} waiting, {lost} lost");
        let fix = "correct the place or its credentials (archive); what waits is stored then";
        return Some(Finding::better("archive", message, fix));
    }
    if lost > 0 {
        let lost = pluralized(lost, "sample");
        let message = format!("{place}: {lost} dropped by retention before they were archived");
        let fix = "set a larger keep.bytes, so that blocks can wait longer for the archive";
        return Some(Finding::better("archive", message, fix));
    }
    let files = pluralized(number("files"), "file");
    let message = format!("{place}: {files} since the agent started, {waiting} waiting");
    Some(Finding::ok("archive", message))
}

fn failing(server: &Value) -> Option<Finding> {
    let name = server["server"].as_str().unwrap_or("?");
    let number = |key: &str| server[key].as_u64().unwrap_or(0);
    let dropped = number("dropped");
    if let Some(error) = server["last_error"].as_str() {
        let message = format!(
            "{name}: {error}; {} wait on disk, {} lost",
            pluralized(number("spool_bytes"), "byte"),
            pluralized(dropped, "value"),
        );
        let fix =
            "start the server or correct the configuration (graphite); what waits is sent then";
        return Some(Finding::better("graphite", message, fix));
    }
    (dropped > 0).then(|| {
        let message = format!(
            "{name}: {} lost since the agent started",
            pluralized(dropped, "value")
        );
        let fix = "set a larger spool_bytes for the server in the configuration (graphite)";
        Finding::better("graphite", message, fix)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::FindingState;
    use super::*;

    #[test]
    fn an_archive_that_fails_or_lost_samples_is_reported() {
        assert_eq!(evaluate_archive(&json!({})), None);
        let archive = |error: Value, lost: u64| {
            let status = json!({"archive": {
                "to": "s3://b", "files": 2, "pending_blocks": 1, "lost_samples": lost,
                "last_error": error,
            }});
            evaluate_archive(&status).expect("a finding")
        };
        let fine = archive(Value::Null, 0);
        assert_eq!(fine.state, FindingState::Ok);
        assert_eq!(
            fine.message,
            "s3://b: 2 files since the agent started, 1 block waiting"
        );
        let failing = archive(json!("s3://b: no such bucket"), 3);
        assert_eq!(
            failing.message,
            "s3://b: no such bucket; 1 block waiting, 3 samples lost"
        );
        let lost = archive(Value::Null, 1);
        assert_ne!(lost.state, FindingState::Ok);
        assert_eq!(
            lost.message,
            "s3://b: 1 sample dropped by retention before they were archived"
        );
    }

    #[test]
    fn servers_that_fail_or_lost_values_are_reported() {
        assert_eq!(evaluate(&json!({})), []);
        assert_eq!(evaluate(&json!({"graphite": []})), []);
        let good = json!({"server": "a:2003", "dropped": 0, "spool_bytes": 0, "last_error": null});
        let fine = evaluate(&json!({"graphite": [good]}));
        assert_eq!((fine.len(), fine[0].state), (1, FindingState::Ok));
        let down = json!({
            "server": "b:2003", "dropped": 1, "spool_bytes": 400, "last_error": "refused",
        });
        let lost = json!({"server": "c:2003", "dropped": 7, "spool_bytes": 0, "last_error": null});
        let found = evaluate(&json!({"graphite": [good, down, lost]}));
        let messages: Vec<&str> = found.iter().map(|one| one.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "b:2003: refused; 400 bytes wait on disk, 1 value lost",
                "c:2003: 7 values lost since the agent started",
            ]
        );
    }
}
