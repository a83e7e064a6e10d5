//! Access tokens (OAuth 2.0), kept until shortly before they expire, and the metadata services of
//! clouds that issue them to the virtual machine.

use std::time::{Duration, Instant};

use serde::Deserialize;

use super::response::StorageResponse;
use super::server::{StorageRequest, StorageServer};
use super::{StorageProblem, StorageProblemKind};

/// A token is renewed this long before it expires, or after half of a shorter lifetime.
const RENEWAL_MARGIN: Duration = Duration::from_secs(300);
/// The longest lifetime that is accepted; longer ones are shortened to it.
const LIFETIME_SECONDS_MAX: u64 = 86_400;
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// A token and its end.
pub(super) struct AccessToken {
    secret: String,
    renewed_at: Instant,
}

#[derive(Deserialize)]
struct AccessTokenReply {
    access_token: String,
    /// Azure writes the number as a string.
    expires_in: serde_json::Value,
}

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessToken").finish_non_exhaustive()
    }
}

impl AccessToken {
    /// Returns the token unless it expires soon.
    pub(super) fn current(&self) -> Option<&str> {
        (Instant::now() < self.renewed_at).then_some(&self.secret)
    }

    /// Parses the response of a token service.
    pub(super) fn parse(
        response: &StorageResponse,
        label: &str,
    ) -> Result<AccessToken, StorageProblem> {
        let reply: Option<AccessTokenReply> = serde_json::from_slice(&response.body).ok();
        let is_header_value = |token: &str| token.bytes().all(|byte| byte.is_ascii_graphic());
        let reply = reply.filter(|reply| is_header_value(&reply.access_token));
        let Some(reply) = reply else {
            let text = format!("{label}: the response contains no access token");
            return Err(StorageProblem::new(StorageProblemKind::Credentials, text));
        };
        let seconds = match &reply.expires_in {
            serde_json::Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        };
        let life = Duration::from_secs(seconds.unwrap_or_default().min(LIFETIME_SECONDS_MAX));
        Ok(AccessToken {
            secret: reply.access_token,
            renewed_at: Instant::now() + life.saturating_sub(RENEWAL_MARGIN).max(life / 2),
        })
    }
}

/// Tokens of a metadata service. A token is requested only when a block is stored and no other
/// credentials are set.
#[derive(Debug)]
pub(super) struct MetadataTokens {
    service: StorageServer,
    target: String,
    header: (&'static str, &'static str),
    /// The variables that the user may set instead, for messages.
    alternative: &'static str,
    token: Option<AccessToken>,
}

impl MetadataTokens {
    pub(super) fn new(
        service: StorageServer,
        path: &str,
        header: (&'static str, &'static str),
        alternative: &'static str,
    ) -> MetadataTokens {
        MetadataTokens {
            target: format!("{}{path}", service.url.path),
            service,
            header,
            alternative,
            token: None,
        }
    }

    /// Discards a token that was rejected.
    pub(super) fn discard(&mut self) {
        self.token = None;
    }

    pub(super) fn token(&mut self) -> Result<String, StorageProblem> {
        if let Some(token) = self.token.as_ref().and_then(AccessToken::current) {
            return Ok(token.to_owned());
        }
        let (name, value) = self.header;
        let sent = self.service.send(&StorageRequest {
            operation: "request for a token",
            method: "GET",
            target: self.target.clone(),
            headers: vec![(name, value.to_owned())],
            body: &[],
            bytes_max: TOKEN_BYTES_MAX,
        });
        let response = sent.map_err(|problem| self.no_credentials(&problem.text))?;
        let label = self.service.label();
        match response.status {
            200 => {}
            // The service or the identity is not ready yet: the next attempt is soon.
            404 | 410 => {
                let problem = response.problem(label, "request for a token");
                let kind = StorageProblemKind::ServerError;
                return Err(StorageProblem { kind, ..problem });
            }
            408 | 429 | 500.. => return Err(response.problem(label, "request for a token")),
            _ => {
                let problem = response.problem(label, "request for a token");
                return Err(self.no_credentials(&problem.text));
            }
        }
        let token = AccessToken::parse(&response, label)?;
        Ok(self.token.insert(token).secret.clone())
    }

    fn no_credentials(&self, text: &str) -> StorageProblem {
        let text = format!("{text}; {} not set either", self.alternative);
        StorageProblem::new(StorageProblemKind::Credentials, text)
    }
}
