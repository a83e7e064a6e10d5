//! Reports the inputs that the agent cannot read.

use serde_json::Value;

use super::finding::Finding;
use super::pluralize::pluralized;

/// Returns one finding for each failing input, or one for all of them. None without inputs.
pub(super) fn evaluate(status: &Value) -> Vec<Finding> {
    let inputs = status["pull"].as_array().into_iter().flatten();
    let (mut findings, mut count) = (Vec::new(), 0);
    for input in inputs {
        count += 1;
        if input["state"] == "failing" {
            findings.push(failing(input));
        }
    }
    if findings.is_empty() && count > 0 {
        let message = format!("{} read without errors", pluralized(count, "input"));
        findings.push(Finding::ok("inputs", message));
    }
    findings
}

fn failing(input: &Value) -> Finding {
    let text = |key: &str| input[key].as_str().unwrap_or("?").to_owned();
    let message = format!(
        "{} {}: failed {}: {}",
        text("kind"),
        text("name"),
        pluralized(input["consecutive_failures"].as_u64().unwrap_or(0), "time"),
        text("error"),
    );
    let fix = "correct the input in the configuration (inputs), or its source; it is read again by itself";
    Finding::better("inputs", message, fix)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::FindingState;
    use super::*;

    #[test]
    fn failing_inputs_are_reported() {
        assert_eq!(evaluate(&json!({})), []);
        let up = json!({"name": "a", "kind": "exec", "state": "up"});
        let fine = evaluate(&json!({"pull": [up.clone()]}));
        assert_eq!(fine[0].state, FindingState::Ok);
        let failing = json!({
            "name": "web", "kind": "prometheus", "state": "failing",
            "consecutive_failures": 3, "error": "HTTP status 500",
        });
        let found = evaluate(&json!({"pull": [up, failing]}));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].message,
            "prometheus web: failed 3 times: HTTP status 500"
        );
    }
}
