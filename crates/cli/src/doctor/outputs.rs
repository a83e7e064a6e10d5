//! Reports receivers to which the agent cannot send samples, and an archive that cannot be stored.

use pegel_metric::quantity;
use serde_json::Value;

use super::finding::Finding;
use super::pluralize::pluralized;

/// Returns the findings about all outputs. None without outputs.
pub(super) fn evaluate(status: &Value) -> Vec<Finding> {
    let mut findings = evaluate_graphite(status);
    findings.extend(evaluate_otlp(status));
    findings.extend(evaluate_remote_write(status));
    findings.extend(evaluate_archive(status));
    findings
}

/// Returns one finding for each receiver that fails or refused values, or one for all of them. None
/// without receivers.
fn evaluate_otlp(status: &Value) -> Vec<Finding> {
    let receivers = status["otlp_output"].as_array();
    let receivers = receivers.map_or(&[][..], Vec::as_slice);
    let failing = receivers.iter().filter_map(|receiver| {
        let error = receiver["last_error"].as_str()?;
        let name = receiver["receiver"].as_str().unwrap_or("?");
        let number = |key: &str| receiver[key].as_u64().unwrap_or(0);
        let lost = pluralized(number("dropped") + number("rejected"), "data point");
        let fix = "start the receiver or correct the configuration (otlp)";
        let message = format!("{name}: {error}; {lost} lost");
        Some(Finding::better("otlp", message, fix))
    });
    let mut findings: Vec<Finding> = failing.collect();
    if findings.is_empty() && !receivers.is_empty() {
        let count = pluralized(receivers.len() as u64, "OTLP receiver");
        findings.push(Finding::ok("otlp", format!("{count} without errors")));
    }
    findings
}

/// Returns one finding for each Graphite server that fails or lost values, or one for all of them.
/// None without servers.
fn evaluate_graphite(status: &Value) -> Vec<Finding> {
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
        let fix = "correct the place or its credentials (archive); waiting blocks are then stored";
        return Some(Finding::better("archive", message, fix));
    }
    if lost > 0 {
        let lost = pluralized(lost, "sample");
        let message = format!("{place}: {lost} dropped by retention before being archived");
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

/// Returns one finding for each receiver of remote write that fails or did not get samples, or one
/// for all of them.
fn evaluate_remote_write(status: &Value) -> Vec<Finding> {
    let targets = status["remote_write_out"].as_array();
    let targets = targets.map_or(&[][..], Vec::as_slice);
    let mut findings: Vec<Finding> = targets.iter().filter_map(failing_target).collect();
    if findings.is_empty() && !targets.is_empty() {
        let count = targets.len() as u64;
        let message = format!("{} without errors", pluralized(count, "receiver"));
        findings.push(Finding::ok("remote write", message));
    }
    findings
}

fn failing_target(target: &Value) -> Option<Finding> {
    let name = target["target"].as_str().unwrap_or("?");
    let dropped = |reason: &str| target["dropped"][reason].as_u64().unwrap_or(0);
    let lost = dropped("lag") + dropped("damaged");
    if let Some(error) = target["last_error"].as_str() {
        let bytes = target["pending_bytes"].as_u64().unwrap_or(0);
        let message = format!(
            "{name}: {error}; {} of the log waits, {} lost",
            quantity::bytes(bytes),
            pluralized(lost, "sample"),
        );
        let fix = "start the receiver or correct the configuration (remote_write); waiting samples are then sent";
        return Some(Finding::better("remote write", message, fix));
    }
    let refused = dropped("refused");
    if refused > 0 {
        let answer = target["last_refusal"].as_str().unwrap_or("no message");
        let message = format!(
            "{name} refused {} since the agent started: {answer}",
            pluralized(refused, "sample")
        );
        let fix = "correct the cause in the message; the receiver accepts late samples only with an out-of-order window";
        return Some(Finding::better("remote write", message, fix));
    }
    (lost > 0).then(|| {
        let message = format!(
            "{name}: {} lost since the agent started",
            pluralized(lost, "sample")
        );
        let fix = "set a larger lag for the receiver in the configuration (remote_write)";
        Finding::better("remote write", message, fix)
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
            "s3://b: 1 sample dropped by retention before being archived"
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

    #[test]
    fn receivers_that_fail_are_reported() {
        let good = json!({"receiver": "http://a:4318", "last_error": null});
        let fine = evaluate(&json!({"otlp_output": [good]}));
        assert_eq!((fine.len(), fine[0].state), (1, FindingState::Ok));
        let down = json!({"receiver": "http://b:4318", "last_error": "refused", "dropped": 2, "rejected": 1});
        let found = evaluate(&json!({"otlp_output": [good, down]}));
        assert_eq!(
            found[0].message,
            "http://b:4318: refused; 3 data points lost"
        );
    }

    #[test]
    fn receivers_of_remote_write_that_fail_or_refuse_are_reported() {
        let target = |error: Value, dropped: Value| {
            json!({
                "target": "vm:8428", "last_error": error, "last_refusal": "HTTP status 400: old",
                "pending_bytes": 2048, "dropped": dropped,
            })
        };
        let messages = |targets: Value| {
            let found = evaluate(&json!({"remote_write_out": targets}));
            let messages = found.into_iter().map(|one| one.message);
            messages.collect::<Vec<String>>()
        };
        let none = json!({"lag": 0, "damaged": 0, "refused": 0});
        let fine = target(Value::Null, none.clone());
        assert_eq!(messages(json!([fine])), ["1 receiver without errors"]);
        let down = target(json!("refused"), none);
        let full = target(Value::Null, json!({"lag": 7}));
        let picky = target(Value::Null, json!({"lag": 7, "refused": 1}));
        assert_eq!(
            messages(json!([down, full, picky, fine])),
            [
                "vm:8428: refused; 2 KiB of the log waits, 0 samples lost",
                "vm:8428: 7 samples lost since the agent started",
                "vm:8428 refused 1 sample since the agent started: HTTP status 400: old",
            ]
        );
    }
}
