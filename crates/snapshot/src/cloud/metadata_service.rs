//! Typed access to a metadata service: facts and events per provider, JSON and text values,
//! Amazon's session token. Called by the cloud watcher and by `pegel snapshot`.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pegel_config::Secret;
use serde_json::Value;

use super::allowed_values::{CloudFacts, sanitize_value};
use super::event::CloudEvent;
use super::metadata_client::{MetadataClient, MetadataError, MetadataRequest, MetadataResponse};
use super::{CloudProvider, FACTS_TIMEOUT, aws, azure, google};
use pegel_machine::redact;

/// Lifetime requested for a token. It is replaced after half of it.
const TOKEN_TTL_SECONDS: &str = "21600";
const TOKEN_REFRESH_AFTER: Duration = Duration::from_secs(3 * 3600);

#[derive(Debug)]
pub(crate) struct MetadataService {
    client: MetadataClient,
    token: Mutex<Option<(Secret, Instant)>>,
}

impl MetadataService {
    pub(super) fn new(client: MetadataClient) -> MetadataService {
        MetadataService {
            client,
            token: Mutex::default(),
        }
    }

    pub(super) fn facts(&self, provider: CloudProvider) -> Result<CloudFacts, MetadataError> {
        match provider {
            CloudProvider::Azure => azure::facts(self),
            CloudProvider::Aws => aws::facts(self),
            CloudProvider::Google => google::facts(self),
        }
    }

    /// Tries the three providers in turn and returns the first that answers, with its facts.
    pub(super) fn detect_provider(&self) -> Result<(CloudProvider, CloudFacts), MetadataError> {
        let mut failure = None;
        for provider in [
            CloudProvider::Azure,
            CloudProvider::Aws,
            CloudProvider::Google,
        ] {
            match self.facts(provider) {
                Ok(facts) => return Ok((provider, facts)),
                // Nothing listens at the address: the other providers would fail the same way.
                Err(error @ (MetadataError::Connect { .. } | MetadataError::Stopped)) => {
                    return Err(error);
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or(MetadataError::Stopped))
    }

    pub(super) fn events(
        &self,
        provider: CloudProvider,
        name: Option<&str>,
        is_first: bool,
    ) -> Result<Vec<CloudEvent>, MetadataError> {
        match provider {
            CloudProvider::Azure => azure::events(self, name, is_first),
            CloudProvider::Aws => aws::events(self),
            CloudProvider::Google => google::events(self),
        }
    }

    /// Returns the token of Amazon's service, and requests a new one before the old one expires.
    pub(super) fn token(&self) -> Result<Secret, MetadataError> {
        let mut cached = self.token.lock();
        if let Some((token, created)) = &*cached
            && created.elapsed() < TOKEN_REFRESH_AFTER
        {
            return Ok(token.clone());
        }
        let path = "/latest/api/token";
        let response = self.client.send(&MetadataRequest {
            method: "PUT",
            path,
            headers: &[
                ("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_TTL_SECONDS),
                ("Content-Length", "0"),
            ],
            timeout: FACTS_TIMEOUT,
        })?;
        let response = check_status(path, response)?.ok_or_else(|| missing(path))?;
        let text = std::str::from_utf8(&response.body).ok().map(str::trim);
        let is_token = |text: &&str| {
            !text.is_empty() && text.len() < 1024 && text.bytes().all(|b| b.is_ascii_graphic())
        };
        let text = text
            .filter(is_token)
            .ok_or_else(|| MetadataError::Malformed {
                path: path.to_owned(),
            })?;
        let token = Secret::new(text);
        *cached = Some((token.clone(), Instant::now()));
        Ok(token)
    }

    pub(super) fn json(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        timeout: Duration,
    ) -> Result<Value, MetadataError> {
        self.json_or_none(path, headers, timeout)?
            .ok_or_else(|| missing(path))
    }

    /// Requests a JSON document; `None` for status 404, which means that there is no value.
    pub(super) fn json_or_none(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        timeout: Duration,
    ) -> Result<Option<Value>, MetadataError> {
        let Some(response) = self.get(path, headers, timeout)? else {
            return Ok(None);
        };
        serde_json::from_slice(&response.body)
            .map(Some)
            .map_err(|_| MetadataError::Json {
                path: path.to_owned(),
            })
    }

    /// Requests a single value; `None` for status 404, and for values that are empty or look like a
    /// secret.
    pub(super) fn text(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        timeout: Duration,
    ) -> Result<Option<String>, MetadataError> {
        let Some(response) = self.get(path, headers, timeout)? else {
            return Ok(None);
        };
        let text = sanitize_value(&String::from_utf8_lossy(&response.body));
        Ok(Some(text).filter(|text| !text.is_empty() && !redact::looks_like_secret(text)))
    }

    fn get(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        timeout: Duration,
    ) -> Result<Option<MetadataResponse>, MetadataError> {
        let response = self.client.send(&MetadataRequest {
            method: "GET",
            path,
            headers,
            timeout,
        })?;
        // Google's service marks its responses; without the mark it is another service.
        if headers == google::HEADERS && response.flavor.as_deref() != Some("Google") {
            return Err(MetadataError::Malformed {
                path: path.to_owned(),
            });
        }
        if response.status == 401 {
            *self.token.lock() = None;
        }
        check_status(path, response)
    }
}

fn missing(path: &str) -> MetadataError {
    MetadataError::Status {
        path: path.to_owned(),
        status: 404,
    }
}

fn check_status(
    path: &str,
    response: MetadataResponse,
) -> Result<Option<MetadataResponse>, MetadataError> {
    match response.status {
        200 => Ok(Some(response)),
        404 => Ok(None),
        status => Err(MetadataError::Status {
            path: path.to_owned(),
            status,
        }),
    }
}
