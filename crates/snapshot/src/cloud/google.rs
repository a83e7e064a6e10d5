//! Google Compute Engine. Values are asked for one by one: the whole document would bring along the attributes,
//! in which people keep scripts and keys.

use super::event::Event;
use super::http::AskError;
use super::pick::{Facts, pick};
use super::service::Service;
use super::{EVENTS_TIME, FACTS_TIME};

pub(crate) const HEADERS: &[(&str, &str)] = &[("Metadata-Flavor", "Google")];

const SINGLE: &[(&str, &str)] = &[
    ("instance/id", "id"),
    ("instance/name", "name"),
    ("instance/machine-type", "type"),
    ("instance/zone", "zone"),
    ("instance/cpu-platform", "cpu_platform"),
    ("instance/image", "image"),
    ("instance/hostname", "host_name"),
    ("project/project-id", "project"),
];
const SCHEDULING: &[(&str, &str)] = &[
    ("preemptible", "preemptible"),
    ("provisioningModel", "provisioning_model"),
    ("onHostMaintenance", "on_host_maintenance"),
    ("automaticRestart", "automatic_restart"),
];

pub(crate) fn facts(service: &Service) -> Result<Facts, AskError> {
    let mut facts = Facts::new();
    for (path, name) in SINGLE {
        let path = format!("/computeMetadata/v1/{path}");
        if let Some(text) = service.text(&path, HEADERS, FACTS_TIME)? {
            facts.insert((*name).to_owned(), last_part(name, text));
        }
    }
    let path = "/computeMetadata/v1/instance/scheduling/?recursive=true";
    if let Some(document) = service.json_or_none(path, HEADERS, FACTS_TIME)? {
        facts.extend(pick(&document, SCHEDULING));
    }
    match facts.contains_key("id") {
        true => Ok(facts),
        false => Err(AskError::Status {
            path: SINGLE[0].0.to_owned(),
            status: 404,
        }),
    }
}

/// `projects/7/machineTypes/n2-standard-4`: only the end is of use.
fn last_part(name: &str, text: String) -> String {
    match text.rsplit_once('/') {
        Some((_, last)) if ["type", "zone"].contains(&name) => last.to_owned(),
        _ => text,
    }
}

pub(crate) fn events(service: &Service) -> Result<Vec<Event>, AskError> {
    let ask = |path: &str| {
        service.text(
            &format!("/computeMetadata/v1/instance/{path}"),
            HEADERS,
            EVENTS_TIME,
        )
    };
    let preempted = ask("preempted")?;
    let maintenance = ask("maintenance-event")?;
    Ok(events_of(preempted.as_deref(), maintenance.as_deref()))
}

pub(crate) fn events_of(preempted: Option<&str>, maintenance: Option<&str>) -> Vec<Event> {
    let event = |kind: &str, status: &str| Event {
        kind: kind.to_ascii_lowercase(),
        status: status.to_owned(),
        not_before: None,
        id: None,
        source: None,
    };
    let preempted = preempted.filter(|is| is.eq_ignore_ascii_case("true"));
    let maintenance = maintenance.filter(|what| *what != "NONE");
    let preempted = preempted.map(|_| event("preempt", "started"));
    preempted
        .into_iter()
        .chain(maintenance.map(|what| event(what, "scheduled")))
        .collect()
}
