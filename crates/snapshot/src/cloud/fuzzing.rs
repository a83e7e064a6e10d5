//! Runs every parser of metadata documents over one response.

use serde_json::Value;

use super::metadata_client::parse;
use super::{aws, azure, google};

pub(crate) fn extract_all(response: &[u8]) -> Vec<String> {
    // Input without valid headers is taken as a body, so that the document parsers are reached either way.
    let body = parse(response).map_or_else(|| response.to_vec(), |response| response.body);
    let text = String::from_utf8_lossy(&body);
    let document: Value = serde_json::from_slice(&body).unwrap_or_default();
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
