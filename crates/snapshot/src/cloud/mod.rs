//! The cloud that hosts the machine: facts about the instance and scheduled events, from its
//! metadata service.
//!
//! A metadata service is queried only if the firmware's strings name a cloud, or `$PEGEL_IMDS_URL`
//! gives an address. Queries run on a thread of their own, with 300 ms to connect. Only the values
//! listed in `azure.rs`, `aws.rs` and `google.rs` are extracted.

mod allowed_values;
mod aws;
mod azure;
mod event;
pub(crate) mod fuzzing;
mod google;
mod metadata_client;
mod metadata_service;
mod watcher;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pegel_metric::with_causes;
use serde::Serialize;

use crate::environment::ProcessEnvironment;
use crate::firmware::Firmware;
pub use allowed_values::CloudFacts;
pub use event::CloudEvent;
use metadata_client::MetadataClient;
pub(crate) use metadata_client::MetadataError;
use metadata_service::MetadataService;
pub(crate) use watcher::CloudWatcher;

/// Timeout of one request for facts.
const FACTS_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of one request for events.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the first request for events to Azure, which activates the service.
const FIRST_EVENTS_TIMEOUT: Duration = Duration::from_secs(180);
const EVENTS_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CloudProvider {
    Azure,
    Aws,
    Google,
}

impl CloudProvider {
    pub fn as_str(self) -> &'static str {
        match self {
            CloudProvider::Azure => "azure",
            CloudProvider::Aws => "aws",
            CloudProvider::Google => "google",
        }
    }

    /// Interval between requests for events. Azure gives at least 30 s notice, Amazon 2 min, Google
    /// 30 s.
    fn events_interval(self) -> Duration {
        match self {
            CloudProvider::Azure => Duration::from_secs(1),
            CloudProvider::Aws | CloudProvider::Google => Duration::from_secs(5),
        }
    }
}

/// The cloud's part of the snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CloudInfo {
    pub provider: Option<CloudProvider>,
    /// How the cloud was found: `firmware` or `address`.
    pub known_by: &'static str,
    pub facts: CloudFacts,
    /// Scheduled events of this machine.
    pub events: Vec<CloudEvent>,
    /// Whether a request for events has succeeded.
    pub are_events_watched: bool,
    /// Error of the last request, if it failed.
    pub trouble: Option<String>,
}

/// The metadata service to query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetadataTarget {
    provider: Option<CloudProvider>,
    /// Address that overrides the link-local default.
    url: Option<String>,
}

impl MetadataTarget {
    /// Returns the service to query, if any. A fixture tree has none unless `$PEGEL_IMDS_URL` is
    /// set.
    pub(crate) fn new(
        firmware: &Firmware,
        environment: &ProcessEnvironment,
        is_local: bool,
    ) -> Option<MetadataTarget> {
        let url = environment.get("PEGEL_IMDS_URL");
        if url == Some("none") {
            return None;
        }
        let provider = provider_from_firmware(firmware);
        let is_disabled = environment
            .get("AWS_EC2_METADATA_DISABLED")
            .is_some_and(|text| text.eq_ignore_ascii_case("true"));
        if url.is_none() && provider == Some(CloudProvider::Aws) && is_disabled {
            return None;
        }
        let is_enabled = url.is_some() || (provider.is_some() && is_local);
        let url = url.map(str::to_owned);
        is_enabled.then_some(MetadataTarget { provider, url })
    }

    fn known_by(&self) -> &'static str {
        if self.provider.is_some() {
            "firmware"
        } else {
            "address"
        }
    }

    fn service(&self, stop: Arc<AtomicBool>) -> Result<MetadataService, MetadataError> {
        Ok(MetadataService::new(match &self.url {
            Some(url) => MetadataClient::at(url, stop)?,
            None => MetadataClient::link_local(stop),
        }))
    }

    /// Queries the facts once, without retry.
    pub(crate) fn fetch_facts(&self) -> CloudInfo {
        let result = self
            .service(Arc::default())
            .and_then(|service| self.facts(&service));
        self.cloud(result)
    }

    fn facts(
        &self,
        service: &MetadataService,
    ) -> Result<(CloudProvider, CloudFacts), MetadataError> {
        match self.provider {
            Some(provider) => Ok((provider, service.facts(provider)?)),
            None => service.detect_provider(),
        }
    }

    fn cloud(&self, result: Result<(CloudProvider, CloudFacts), MetadataError>) -> CloudInfo {
        let mut cloud = CloudInfo {
            provider: self.provider,
            known_by: self.known_by(),
            ..CloudInfo::default()
        };
        match result {
            Ok((provider, facts)) => (cloud.provider, cloud.facts) = (Some(provider), facts),
            Err(error) => cloud.trouble = Some(with_causes(&error)),
        }
        cloud
    }
}

/// Returns the cloud that the firmware's strings name.
pub(crate) fn provider_from_firmware(firmware: &Firmware) -> Option<CloudProvider> {
    let is = |text: &Option<String>, value: &str| text.as_deref() == Some(value);
    let has =
        |text: &Option<String>, part: &str| text.as_deref().is_some_and(|text| text.contains(part));
    // Hyper-V outside Azure has the same vendor, but not the asset tag.
    if is(&firmware.vendor, "Microsoft Corporation") && firmware.has_azure_tag {
        return Some(CloudProvider::Azure);
    }
    // The last condition is for older instances, on Xen.
    let is_amazon = is(&firmware.vendor, "Amazon EC2")
        || is(&firmware.bios_vendor, "Amazon EC2")
        || (is(&firmware.vendor, "Xen") && has(&firmware.bios_version, "amazon"));
    if is_amazon {
        return Some(CloudProvider::Aws);
    }
    is(&firmware.product, "Google Compute Engine").then_some(CloudProvider::Google)
}
