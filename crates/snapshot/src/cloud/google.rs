//! Google Compute Engine. Values are requested one by one: the whole document would include the
//! attributes, in which users keep scripts and keys.

use super::allowed_values::{CloudFacts, extract_values};
use super::event::CloudEvent;
use super::metadata_client::MetadataError;
use super::metadata_service::MetadataService;
use super::{EVENTS_TIMEOUT, FACTS_TIMEOUT};

pub(crate) const HEADERS: &[(&str, &str)] = &[("Metadata-Flavor", "Google")];

const SINGLE_VALUES: &[(&str, &str)] = &[
    ("instance/id", "id"),
    ("instance/name", "name"),
    ("instance/machine-type", "type"),
    ("instance/zone", "zone"),
    ("instance/cpu-platform", "cpu_platform"),
    ("instance/image", "image"),
    ("instance/hostname", "host_name"),
    ("project/project-id", "project"),
];
const SCHEDULING_KEYS: &[(&str, &str)] = &[
    ("preemptible", "preemptible"),
    ("provisioningModel", "provisioning_model"),
    ("onHostMaintenance", "on_host_maintenance"),
    ("automaticRestart", "automatic_restart"),
];

pub(crate) fn facts(service: &MetadataService) -> Result<CloudFacts, MetadataError> {
    let mut facts = CloudFacts::new();
    for (path, name) in SINGLE_VALUES {
        let path = format!("/computeMetadata/v1/{path}");
        if let Some(text) = service.text(&path, HEADERS, FACTS_TIMEOUT)? {
            facts.insert((*name).to_owned(), last_part(name, text));
        }
    }
    let path = "/computeMetadata/v1/instance/scheduling/?recursive=true";
    if let Some(document) = service.json_or_none(path, HEADERS, FACTS_TIMEOUT)? {
        facts.extend(extract_values(&document, SCHEDULING_KEYS));
    }
    if facts.contains_key("id") {
        Ok(facts)
    } else {
        Err(MetadataError::Status {
            path: SINGLE_VALUES[0].0.to_owned(),
            status: 404,
        })
    }
}

/// Returns the last part of a resource path such as `projects/7/machineTypes/n2-standard-4`.
fn last_part(name: &str, text: String) -> String {
    match text.rsplit_once('/') {
        Some((_, last)) if ["type", "zone"].contains(&name) => last.to_owned(),
        _ => text,
    }
}

pub(crate) fn events(service: &MetadataService) -> Result<Vec<CloudEvent>, MetadataError> {
    let request = |path: &str| {
        service.text(
            &format!("/computeMetadata/v1/instance/{path}"),
            HEADERS,
            EVENTS_TIMEOUT,
        )
    };
    let preempted = request("preempted")?;
    let maintenance = request("maintenance-event")?;
    Ok(parse_events(preempted.as_deref(), maintenance.as_deref()))
}

pub(crate) fn parse_events(preempted: Option<&str>, maintenance: Option<&str>) -> Vec<CloudEvent> {
    let event = |kind: &str, status: &str| CloudEvent {
        kind: kind.to_ascii_lowercase(),
        status: status.to_owned(),
        not_before: None,
        id: None,
        source: None,
    };
    let preempted = preempted.filter(|value| value.eq_ignore_ascii_case("true"));
    let maintenance = maintenance.filter(|kind| *kind != "NONE");
    let preempted = preempted.map(|_| event("preempt", "started"));
    preempted
        .into_iter()
        .chain(maintenance.map(|kind| event(kind, "scheduled")))
        .collect()
}
