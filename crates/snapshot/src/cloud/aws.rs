//! Amazon EC2: version 2 of the metadata service, which requires a token with each request.

use serde_json::Value;

use super::allowed_values::{CloudFacts, extract_values, sanitize_value};
use super::event::CloudEvent;
use super::metadata_client::MetadataError;
use super::metadata_service::MetadataService;
use super::{EVENTS_MAX, EVENTS_TIMEOUT, FACTS_TIMEOUT};

const DOCUMENT_KEYS: &[(&str, &str)] = &[
    ("instanceId", "id"),
    ("instanceType", "type"),
    ("region", "region"),
    ("availabilityZone", "zone"),
    ("imageId", "image"),
    ("architecture", "architecture"),
    ("accountId", "account"),
    ("privateIp", "private_ip"),
    ("pendingTime", "started"),
];
/// Values that are not in the document and have a path of their own.
const SINGLE_VALUES: &[(&str, &str)] = &[
    ("instance-life-cycle", "life_cycle"),
    ("placement/availability-zone-id", "zone_id"),
    ("placement/group-name", "placement_group"),
    ("placement/partition-number", "placement_partition"),
    ("placement/host-id", "host"),
];

pub(crate) fn facts(service: &MetadataService) -> Result<CloudFacts, MetadataError> {
    let token = service.token()?;
    let headers = [("X-aws-ec2-metadata-token", token.reveal())];
    let path = "/latest/dynamic/instance-identity/document";
    let document = service.json(path, &headers, FACTS_TIMEOUT)?;
    let mut facts = extract_values(&document, DOCUMENT_KEYS);
    for (path, name) in SINGLE_VALUES {
        let path = format!("/latest/meta-data/{path}");
        if let Some(text) = service.text(&path, &headers, FACTS_TIMEOUT)? {
            facts.insert((*name).to_owned(), text);
        }
    }
    Ok(facts)
}

pub(crate) fn events(service: &MetadataService) -> Result<Vec<CloudEvent>, MetadataError> {
    let token = service.token()?;
    let headers = [("X-aws-ec2-metadata-token", token.reveal())];
    let request = |path: &str| {
        service.json_or_none(
            &format!("/latest/meta-data/{path}"),
            &headers,
            EVENTS_TIMEOUT,
        )
    };
    let mut events = Vec::new();
    events.extend(
        request("spot/instance-action")?
            .as_ref()
            .and_then(interruption),
    );
    events.extend(
        request("events/recommendations/rebalance")?
            .as_ref()
            .and_then(rebalance),
    );
    events.extend(
        request("events/maintenance/scheduled")?
            .iter()
            .flat_map(maintenance),
    );
    events.truncate(EVENTS_MAX);
    Ok(events)
}

fn string_at(value: &Value, key: &str) -> Option<String> {
    value[key]
        .as_str()
        .map(sanitize_value)
        .filter(|text| !text.is_empty())
}

/// Parses a spot interruption: `{"action": "terminate", "time": "…"}`.
pub(crate) fn interruption(document: &Value) -> Option<CloudEvent> {
    Some(CloudEvent {
        kind: string_at(document, "action")?.to_ascii_lowercase(),
        status: "scheduled".to_owned(),
        not_before: string_at(document, "time"),
        id: None,
        source: Some("spot".to_owned()),
    })
}

/// Parses a rebalance recommendation: `{"noticeTime": "…"}`.
pub(crate) fn rebalance(document: &Value) -> Option<CloudEvent> {
    Some(CloudEvent {
        kind: "rebalance".to_owned(),
        status: "scheduled".to_owned(),
        not_before: Some(string_at(document, "noticeTime")?),
        id: None,
        source: Some("spot".to_owned()),
    })
}

/// Parses scheduled maintenance: `[{"NotBefore", "Code", "EventId", "State": "active"}]`.
pub(crate) fn maintenance(document: &Value) -> Vec<CloudEvent> {
    let events = document.as_array().into_iter().flatten();
    let active = events.filter(|event| event["State"] == "active");
    let events = active.filter_map(|event| {
        Some(CloudEvent {
            kind: string_at(event, "Code")?.to_ascii_lowercase(),
            status: "scheduled".to_owned(),
            not_before: string_at(event, "NotBefore"),
            id: string_at(event, "EventId"),
            source: Some("maintenance".to_owned()),
        })
    });
    events.take(EVENTS_MAX).collect()
}
