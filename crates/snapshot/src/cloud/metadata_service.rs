//! A metadata service that answers: asked for facts once, and for events again and again.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pegel_config::Secret;
use serde_json::Value;

use super::allowed_values::{CloudFacts, sanitize_value};
use super::event::CloudEvent;
use super::metadata_client::{MetadataClient, MetadataError, MetadataRequest, MetadataResponse};
use super::{CloudProvider, FACTS_TIMEOUT, aws, azure, google};
use crate::redact;

/// How long a token is asked for, and how long it is used.
const TOKEN_TTL_SECONDS: &str = "21600";
const TOKEN_REFRESH_AFTER: Duration = Duration::from_secs(3 * 3600);

#[derive(Debug)]
pub(crate) struct MetadataService {
    client: MetadataClient,
    token: Mutex<Option<(Secret, Instant)>>,
}

impl MetadataService {
    pub fn new(client: MetadataClient) -> MetadataService {
        MetadataService {
            client,
            token: Mutex::default(),
        }
    }

    pub fn facts(&self, provider: CloudProvider) -> Result<CloudFacts, MetadataError> {
        match provider {
            CloudProvider::Azure => azure::facts(self),
            CloudProvider::Aws => aws::facts(self),
            CloudProvider::Google => google::facts(self),
        }
    }

    /// Which of the three answers, with its facts.
    pub fn detect_provider(&self) -> Result<(CloudProvider, CloudFacts), MetadataError> {
        let mut failure = None;
        for provider in [
            CloudProvider::Azure,
            CloudProvider::Aws,
            CloudProvider::Google,
        ] {
            match self.facts(provider) {
                Ok(facts) => return Ok((provider, facts)),
                // Where nobody listens, the others need not be tried.
                Err(error @ (MetadataError::Connect { .. } | MetadataError::Stopped)) => {
                    return Err(error);
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or(MetadataError::Stopped))
    }

    pub fn events(
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

    /// The token of Amazon's service, made anew before it ends.
    pub fn token(&self) -> Result<Secret, MetadataError> {
        let mut kept = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((token, made)) = &*kept
            && made.elapsed() < TOKEN_REFRESH_AFTER
        {
            return Ok(token.clone());
        }
        let path = "/latest/api/token";
        let answer = self.client.send(&MetadataRequest {
            method: "PUT",
            path,
            headers: &[("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_TTL_SECONDS)],
            timeout: FACTS_TIMEOUT,
        })?;
        let answer = check_status(path, answer)?.ok_or_else(|| missing(path))?;
        let text = std::str::from_utf8(&answer.body).ok().map(str::trim);
        let is_token = |text: &&str| {
            !text.is_empty() && text.len() < 1024 && text.bytes().all(|b| b.is_ascii_graphic())
        };
        let text = text
            .filter(is_token)
            .ok_or_else(|| MetadataError::Malformed {
                path: path.to_owned(),
            })?;
        let token = Secret::new(text);
        *kept = Some((token.clone(), Instant::now()));
        Ok(token)
    }

    pub fn json(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        patience: Duration,
    ) -> Result<Value, MetadataError> {
        self.json_or_none(path, headers, patience)?
            .ok_or_else(|| missing(path))
    }

    /// `None` for 404: so services say that there is nothing.
    pub fn json_or_none(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        patience: Duration,
    ) -> Result<Option<Value>, MetadataError> {
        let Some(answer) = self.get(path, headers, patience)? else {
            return Ok(None);
        };
        let wrong = || MetadataError::Json {
            path: path.to_owned(),
        };
        serde_json::from_slice(&answer.body)
            .map(Some)
            .map_err(|_| wrong())
    }

    /// A single value; `None` for 404, for what is empty and for what looks like a secret.
    pub fn text(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        patience: Duration,
    ) -> Result<Option<String>, MetadataError> {
        let Some(answer) = self.get(path, headers, patience)? else {
            return Ok(None);
        };
        let text = sanitize_value(&String::from_utf8_lossy(&answer.body));
        Ok(Some(text).filter(|text| !text.is_empty() && !redact::looks_like_secret(text)))
    }

    fn get(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        patience: Duration,
    ) -> Result<Option<MetadataResponse>, MetadataError> {
        let answer = self.client.send(&MetadataRequest {
            method: "GET",
            path,
            headers,
            timeout: patience,
        })?;
        // Google's answers say that they are Google's; anything else there is somebody else.
        if headers == google::HEADERS && answer.header("metadata-flavor") != Some("Google") {
            return Err(MetadataError::Malformed {
                path: path.to_owned(),
            });
        }
        if answer.status == 401 {
            *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        check_status(path, answer)
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
    answer: MetadataResponse,
) -> Result<Option<MetadataResponse>, MetadataError> {
    match answer.status {
        200 => Ok(Some(answer)),
        404 => Ok(None),
        status => Err(MetadataError::Status {
            path: path.to_owned(),
            status,
        }),
    }
}
