//! The cloud that the machine is rented from: what it says about the machine, and what it is about to do.
//!
//! Nobody is asked unless the firmware's strings name a cloud, or $PEGEL_IMDS_URL an address. Asking happens on
//! a thread of its own, with 300 ms to connect. Only values that are named in `azure.rs`, `aws.rs` and
//! `google.rs` are taken.

mod allowed_values;
mod aws;
mod azure;
mod event;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod google;
mod metadata_client;
mod metadata_service;
mod watcher;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pegel_config::with_causes;
use serde::Serialize;

use crate::environment::ProcessEnvironment;
use crate::firmware::Firmware;
pub use allowed_values::CloudFacts;
pub use event::CloudEvent;
use metadata_client::MetadataClient;
pub use metadata_client::MetadataError;
use metadata_service::MetadataService;
pub use watcher::CloudWatcher;

/// For one fact.
const FACTS_TIMEOUT: Duration = Duration::from_secs(2);
/// For one question about events; the first one to Azure wakes the service.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(10);
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

    /// How often it is asked for events. Azure's notice is 30 s at least, Amazon's 2 min, Google's 30 s.
    fn events_interval(self) -> Duration {
        match self {
            CloudProvider::Azure => Duration::from_secs(1),
            CloudProvider::Aws | CloudProvider::Google => Duration::from_secs(5),
        }
    }
}

/// What is known of the cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CloudInfo {
    pub provider: Option<CloudProvider>,
    /// `firmware` or `address`: why it was asked.
    pub known_by: &'static str,
    pub facts: CloudFacts,
    /// What it is about to do.
    pub events: Vec<CloudEvent>,
    /// Whether it was asked for events and answered.
    pub are_events_watched: bool,
    /// Why it does not answer.
    pub trouble: Option<String>,
}

/// Whom to ask, if anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetadataTarget {
    provider: Option<CloudProvider>,
    /// Another address than the usual one.
    url: Option<String>,
}

impl MetadataTarget {
    /// A machine made of files has no service of its own.
    pub fn new(
        firmware: &Firmware,
        environment: &ProcessEnvironment,
        is_this_one: bool,
    ) -> Option<MetadataTarget> {
        let url = environment.get("PEGEL_IMDS_URL");
        if url == Some("none") {
            return None;
        }
        let provider = provider_from_firmware(firmware);
        let is_refused = environment
            .get("AWS_EC2_METADATA_DISABLED")
            .is_some_and(|text| text.eq_ignore_ascii_case("true"));
        if url.is_none() && provider == Some(CloudProvider::Aws) && is_refused {
            return None;
        }
        let is_wanted = url.is_some() || (provider.is_some() && is_this_one);
        let url = url.map(str::to_owned);
        is_wanted.then_some(MetadataTarget { provider, url })
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

    /// Asks for facts, once.
    pub fn fetch_facts(&self) -> CloudInfo {
        let answer = self
            .service(Arc::default())
            .and_then(|service| self.facts(&service));
        self.cloud(answer)
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

    fn cloud(&self, answer: Result<(CloudProvider, CloudFacts), MetadataError>) -> CloudInfo {
        let mut cloud = CloudInfo {
            provider: self.provider,
            known_by: self.known_by(),
            ..CloudInfo::default()
        };
        match answer {
            Ok((provider, facts)) => (cloud.provider, cloud.facts) = (Some(provider), facts),
            Err(error) => cloud.trouble = Some(with_causes(&error)),
        }
        cloud
    }
}

/// Which cloud the firmware's strings name.
pub(crate) fn provider_from_firmware(firmware: &Firmware) -> Option<CloudProvider> {
    let is = |text: &Option<String>, what: &str| text.as_deref() == Some(what);
    let has =
        |text: &Option<String>, what: &str| text.as_deref().is_some_and(|text| text.contains(what));
    // Hyper-V elsewhere has the same maker, but not the tag.
    if is(&firmware.vendor, "Microsoft Corporation") && firmware.has_azure_tag {
        return Some(CloudProvider::Azure);
    }
    // The last one is for older instances, on Xen.
    let names_amazon = is(&firmware.vendor, "Amazon EC2")
        || is(&firmware.bios_vendor, "Amazon EC2")
        || (is(&firmware.vendor, "Xen") && has(&firmware.bios_version, "amazon"));
    if names_amazon {
        return Some(CloudProvider::Aws);
    }
    is(&firmware.product, "Google Compute Engine").then_some(CloudProvider::Google)
}
