//! Checks the counters of `/status` for lost samples.

use serde_json::Value;

/// Checks that for every input in `/status` received = kept + dropped by reason.
///
/// The error names the first input for which it is not. An agent that is sampling may have a tick
/// on its way to the store at that moment; see `AgentProcess::assert_conserved`.
pub fn check_conserved(status: &Value) -> Result<(), String> {
    let inputs = status["inputs"]
        .as_array()
        .filter(|inputs| !inputs.is_empty());
    for input in inputs.ok_or_else(|| format!("no inputs in {status}"))? {
        let number = |value: &Value| value.as_u64().ok_or_else(|| format!("{value} in {input}"));
        let (received, kept) = (number(&input["received"])?, number(&input["kept"])?);
        let dropped = input["dropped"]
            .as_object()
            .ok_or_else(|| format!("dropped in {input}"))?;
        let dropped = dropped.values().map(number).sum::<Result<u64, String>>()?;
        if received != kept + dropped {
            return Err(format!(
                "received {received}, but kept {kept} + dropped {dropped}: {input}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conservation_is_checked_for_every_input() {
        let ledger = |received: u64, kept: u64, dropped: Value| {
            let push =
                serde_json::json!({"input": "push", "received": 0, "kept": 0, "dropped": {}});
            let collect = serde_json::json!(
                {"input": "collect", "received": received, "kept": kept, "dropped": dropped}
            );
            check_conserved(&serde_json::json!({"inputs": [push, collect]}))
        };
        let dropped = || serde_json::json!({"queue_full": 2, "memory": 1});
        assert_eq!(ledger(10, 7, dropped()), Ok(()));
        let lost = ledger(11, 7, dropped()).expect_err("one is lost");
        assert!(
            lost.starts_with("received 11, but kept 7 + dropped 3"),
            "{lost}"
        );
        assert!(ledger(9, 7, dropped()).is_err(), "more than was received");
        assert!(check_conserved(&serde_json::json!({"inputs": []})).is_err());
        assert!(check_conserved(&serde_json::json!({})).is_err());
    }
}
