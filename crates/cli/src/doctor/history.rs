//! Reports requests to the engine of the history that fail.

use serde_json::Value;

use super::finding::Finding;
use super::pluralize::pluralized;

/// Returns one finding if an engine is configured.
pub(super) fn evaluate(status: &Value) -> Vec<Finding> {
    let history = &status["history"];
    let Some(url) = history["url"].as_str() else {
        return Vec::new();
    };
    let number = |key: &str| history[key].as_u64().unwrap_or(0);
    if let Some(error) = history["last_error"].as_str() {
        let message = format!("the last request failed: {error}");
        let fix = match history["last_error_kind"].as_str() {
            // The engine works; the answer is larger than the agent or the engine permits.
            Some("too_large") => {
                "raise history.bytes, or use a recording rule for queries over long times"
            }
            _ => {
                "start the engine or correct the configuration (history); queries lack what is \
                 older than the store"
            }
        };
        return vec![Finding::better("history", message, fix)];
    }
    let message = match number("requests") {
        0 => format!("{url}: no query has needed it yet"),
        requests => format!("{url}: {}", pluralized(requests, "request")),
    };
    vec![Finding::ok("history", message)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::FindingState;
    use super::*;

    #[test]
    fn an_engine_that_fails_is_reported() {
        assert_eq!(evaluate(&json!({})), []);
        let fine = json!({"history": {"url": "http://vm:8428", "requests": 3, "last_error": null}});
        let found = evaluate(&fine);
        assert_eq!(found[0].state, FindingState::Ok);
        assert_eq!(found[0].message, "http://vm:8428: 3 requests");
        let down = json!({"history": {
            "url": "http://vm:8428", "requests": 3, "last_error": "http://vm:8428: refused",
        }});
        let found = evaluate(&down);
        assert_ne!(found[0].state, FindingState::Ok);
        assert!(found[0].message.contains("refused"));
        let large = json!({"history": {
            "url": "http://vm:8428", "requests": 3, "last_error": "http://vm:8428: too large",
            "last_error_kind": "too_large",
        }});
        let fix = evaluate(&large).remove(0).fix.expect("a fix");
        assert!(fix.starts_with("raise history.bytes"), "{fix}");
    }
}
