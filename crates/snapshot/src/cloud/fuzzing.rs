//! Runs every parser of metadata documents over the body of one response.

use serde_json::Value;

use super::{aws, azure, google};

pub(crate) fn extract_all(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    let document: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut events = azure::parse_events(&document, Some("n1"));
    events.extend(aws::interruption(&document));
    events.extend(aws::rebalance(&document));
    events.extend(aws::maintenance(&document));
    events.extend(google::parse_events(Some(&text), None));
    let mut found: Vec<String> = azure::allowed_facts(&document).into_values().collect();
    for event in events {
        found.extend(
            [
                Some(event.kind),
                Some(event.status),
                event.not_before,
                event.id,
                event.source,
            ]
            .into_iter()
            .flatten(),
        );
    }
    found
}
