//! Azure: the instance metadata service and its scheduled events.

use serde_json::Value;

use super::allowed_values::{CloudFacts, extract_values, sanitize_value, value_text};
use super::event::CloudEvent;
use super::metadata_client::MetadataError;
use super::metadata_service::MetadataService;
use super::{EVENTS_TIMEOUT, FACTS_TIMEOUT, FIRST_EVENTS_TIMEOUT};

const HEADERS: &[(&str, &str)] = &[("Metadata", "true")];
/// API versions, newest first. The last one is available everywhere.
const VERSIONS: [&str; 2] = ["2023-07-01", "2021-12-13"];

const INSTANCE_KEYS: &[(&str, &str)] = &[
    ("compute.azEnvironment", "environment"),
    ("compute.name", "name"),
    ("compute.vmId", "id"),
    ("compute.vmSize", "type"),
    ("compute.location", "region"),
    ("compute.zone", "zone"),
    ("compute.physicalZone", "physical_zone"),
    ("compute.priority", "priority"),
    ("compute.evictionPolicy", "eviction_policy"),
    ("compute.osType", "os"),
    ("compute.placementGroupId", "placement_group"),
    ("compute.platformFaultDomain", "fault_domain"),
    ("compute.platformUpdateDomain", "update_domain"),
    ("compute.resourceGroupName", "resource_group"),
    ("compute.resourceId", "resource_id"),
    ("compute.subscriptionId", "subscription"),
    ("compute.vmScaleSetName", "scale_set"),
    ("compute.securityProfile.secureBootEnabled", "secure_boot"),
    ("compute.securityProfile.virtualTpmEnabled", "virtual_tpm"),
    (
        "compute.securityProfile.encryptionAtHost",
        "encryption_at_host",
    ),
    (
        "compute.storageProfile.imageReference.publisher",
        "image_publisher",
    ),
    ("compute.storageProfile.imageReference.offer", "image_offer"),
    ("compute.storageProfile.imageReference.sku", "image_sku"),
    (
        "compute.storageProfile.imageReference.version",
        "image_version",
    ),
    ("compute.storageProfile.osDisk.diskSizeGB", "os_disk_gb"),
    ("compute.storageProfile.osDisk.caching", "os_disk_caching"),
    (
        "compute.storageProfile.osDisk.writeAcceleratorEnabled",
        "os_disk_write_accelerator",
    ),
    (
        "compute.storageProfile.osDisk.managedDisk.storageAccountType",
        "os_disk_type",
    ),
    (
        "compute.storageProfile.resourceDisk.size",
        "resource_disk_mb",
    ),
];
/// Tags that Azure Batch itself sets. Other tags may contain secrets.
const BATCH_TAGS: &[(&str, &str)] = &[
    ("BatchAccountName", "batch_account"),
    ("PoolName", "batch_pool"),
    ("FQPoolName", "batch_pool_full"),
    ("LowPriorityType", "batch_low_priority"),
];

pub(crate) fn facts(service: &MetadataService) -> Result<CloudFacts, MetadataError> {
    let version = version(service);
    let path = format!("/metadata/instance?api-version={version}");
    let document = service.json(&path, HEADERS, FACTS_TIMEOUT)?;
    match document.get("compute") {
        Some(_) => Ok(allowed_facts(&document)),
        None => Err(MetadataError::Json { path }),
    }
}

fn version(service: &MetadataService) -> &'static str {
    let offered = service.json("/metadata/versions", HEADERS, FACTS_TIMEOUT);
    let offered = offered.unwrap_or_default();
    let offers = |version: &str| {
        let offered = offered["apiVersions"].as_array();
        offered.is_some_and(|all| all.iter().any(|one| one == version))
    };
    let newest = VERSIONS.iter().find(|version| offers(version));
    newest.copied().unwrap_or(VERSIONS[1])
}

pub(crate) fn allowed_facts(document: &Value) -> CloudFacts {
    let mut facts = extract_values(document, INSTANCE_KEYS);
    let tags = document["compute"]["tagsList"].as_array();
    for tag in tags.into_iter().flatten() {
        let known = BATCH_TAGS.iter().find(|(name, _)| tag["name"] == *name);
        if let (Some((_, name)), Some(value)) = (known, value_text(&tag["value"])) {
            facts.insert((*name).to_owned(), value);
        }
    }
    let interface = &document["network"]["interface"][0]["ipv4"];
    if let Some(address) = value_text(&interface["ipAddress"][0]["privateIpAddress"]) {
        facts.insert("private_ip".to_owned(), address);
    }
    facts
}

/// Requests the scheduled events. The first response may take two minutes: the first request
/// activates the service.
pub(crate) fn events(
    service: &MetadataService,
    name: Option<&str>,
    is_first: bool,
) -> Result<Vec<CloudEvent>, MetadataError> {
    let timeout = if is_first {
        FIRST_EVENTS_TIMEOUT
    } else {
        EVENTS_TIMEOUT
    };
    let path = "/metadata/scheduledevents?api-version=2020-07-01";
    let document = service.json(path, HEADERS, timeout)?;
    match document["Events"].as_array() {
        Some(_) => Ok(parse_events(&document, name)),
        None => Err(MetadataError::Json {
            path: path.to_owned(),
        }),
    }
}

/// Returns the events of the machine `name`; the document lists those of other machines in its
/// group as well.
pub(crate) fn parse_events(document: &Value, name: Option<&str>) -> Vec<CloudEvent> {
    let events = document["Events"].as_array().into_iter().flatten();
    let is_ours = |event: &&Value| match (event["Resources"].as_array(), name) {
        (Some(resources), Some(name)) if !resources.is_empty() => {
            resources.iter().any(|resource| resource == name)
        }
        _ => true,
    };
    let of = |event: &Value, key: &str| {
        event[key]
            .as_str()
            .map(sanitize_value)
            .filter(|text| !text.is_empty())
    };
    let events = events.filter(is_ours).filter_map(|event| {
        Some(CloudEvent {
            kind: of(event, "EventType")?.to_ascii_lowercase(),
            status: of(event, "EventStatus")
                .unwrap_or_default()
                .to_ascii_lowercase(),
            not_before: of(event, "NotBefore"),
            id: of(event, "EventId"),
            source: of(event, "EventSource"),
        })
    });
    events.take(super::EVENTS_MAX).collect()
}
