use serde_json::Value;

/// Adds up the books in `/status`: for every input, received = kept + dropped by reason.
///
/// A sample may be in the queue at the moment of asking, so ask an agent that is at rest, or give the
/// number of samples that may be under way as `in_flight_max`.
#[track_caller]
pub fn assert_conserved(status: &Value, in_flight_max: u64) {
    let inputs = status["inputs"]
        .as_array()
        .unwrap_or_else(|| panic!("no inputs in {status}"));
    assert!(!inputs.is_empty(), "no inputs in {status}");
    for input in inputs {
        let number = |value: &Value| {
            value
                .as_u64()
                .unwrap_or_else(|| panic!("{value} in {input}"))
        };
        let (received, kept) = (number(&input["received"]), number(&input["kept"]));
        let dropped = input["dropped"]
            .as_object()
            .unwrap_or_else(|| panic!("dropped in {input}"));
        let dropped: u64 = dropped.values().map(number).sum();
        let settled = kept + dropped;
        assert!(
            settled <= received && received - settled <= in_flight_max,
            "received {received}, but kept {kept} + dropped {dropped} = {settled}: {input}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_that_add_up_pass() {
        let status = serde_json::json!({"inputs": [
            {"input": "collect", "received": 10, "kept": 7, "dropped": {"queue_full": 2, "memory": 1}},
            {"input": "push", "received": 5, "kept": 3, "dropped": {}},
        ]});
        assert_conserved(&status, 2);
    }

    #[test]
    #[should_panic(expected = "received 10, but kept 7 + dropped 2 = 9")]
    fn a_lost_sample_is_found() {
        let status = serde_json::json!({"inputs": [
            {"input": "collect", "received": 10, "kept": 7, "dropped": {"queue_full": 2}},
        ]});
        assert_conserved(&status, 0);
    }

    #[test]
    #[should_panic(expected = "kept 11")]
    fn more_than_was_received_is_found() {
        let status = serde_json::json!({"inputs": [
            {"input": "collect", "received": 10, "kept": 11, "dropped": {}},
        ]});
        assert_conserved(&status, 100);
    }
}
