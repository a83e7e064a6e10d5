//! A metadata service that answers: asked for facts once, and for events again and again.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pegel_config::Secret;
use serde_json::Value;

use super::event::Event;
use super::http::{Answer, AskError, Client, Request};
use super::pick::{Facts, plain};
use super::{FACTS_TIME, Provider, aws, azure, google};
use crate::redact;

/// How long a token is asked for, and how long it is used.
const TOKEN_SECONDS: &str = "21600";
const TOKEN_TIME: Duration = Duration::from_secs(3 * 3600);

#[derive(Debug)]
pub(crate) struct Service {
    client: Client,
    token: Mutex<Option<(Secret, Instant)>>,
}

impl Service {
    pub fn new(client: Client) -> Service {
        Service {
            client,
            token: Mutex::default(),
        }
    }

    pub fn facts(&self, provider: Provider) -> Result<Facts, AskError> {
        match provider {
            Provider::Azure => azure::facts(self),
            Provider::Aws => aws::facts(self),
            Provider::Google => google::facts(self),
        }
    }

    /// Which of the three answers, with its facts.
    pub fn find(&self) -> Result<(Provider, Facts), AskError> {
        let mut failure = None;
        for provider in [Provider::Azure, Provider::Aws, Provider::Google] {
            match self.facts(provider) {
                Ok(facts) => return Ok((provider, facts)),
                // Where nobody listens, the others need not be tried.
                Err(error @ (AskError::Connect { .. } | AskError::Stopped)) => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or(AskError::Stopped))
    }

    pub fn events(
        &self,
        provider: Provider,
        name: Option<&str>,
        is_first: bool,
    ) -> Result<Vec<Event>, AskError> {
        match provider {
            Provider::Azure => azure::events(self, name, is_first),
            Provider::Aws => aws::events(self),
            Provider::Google => google::events(self),
        }
    }

    /// The token of Amazon's service, made anew before it ends.
    pub fn token(&self) -> Result<Secret, AskError> {
        let mut kept = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((token, made)) = &*kept
            && made.elapsed() < TOKEN_TIME
        {
            return Ok(token.clone());
        }
        let path = "/latest/api/token";
        let answer = self.client.ask(&Request {
            method: "PUT",
            path,
            headers: &[("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS)],
            patience: FACTS_TIME,
        })?;
        let answer = ok(path, answer)?.ok_or_else(|| missing(path))?;
        let text = std::str::from_utf8(&answer.body).ok().map(str::trim);
        let is_token = |text: &&str| {
            !text.is_empty() && text.len() < 1024 && text.bytes().all(|b| b.is_ascii_graphic())
        };
        let text = text.filter(is_token).ok_or_else(|| AskError::Form {
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
    ) -> Result<Value, AskError> {
        self.json_or_none(path, headers, patience)?
            .ok_or_else(|| missing(path))
    }

    /// `None` for 404: so services say that there is nothing.
    pub fn json_or_none(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        patience: Duration,
    ) -> Result<Option<Value>, AskError> {
        let Some(answer) = self.get(path, headers, patience)? else {
            return Ok(None);
        };
        let wrong = || AskError::Json {
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
    ) -> Result<Option<String>, AskError> {
        let Some(answer) = self.get(path, headers, patience)? else {
            return Ok(None);
        };
        let text = plain(&String::from_utf8_lossy(&answer.body));
        Ok(Some(text).filter(|text| !text.is_empty() && !redact::looks_secret(text)))
    }

    fn get(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        patience: Duration,
    ) -> Result<Option<Answer>, AskError> {
        let answer = self.client.ask(&Request {
            method: "GET",
            path,
            headers,
            patience,
        })?;
        // Google's answers say that they are Google's; anything else there is somebody else.
        if headers == google::HEADERS && answer.header("metadata-flavor") != Some("Google") {
            return Err(AskError::Form {
                path: path.to_owned(),
            });
        }
        if answer.status == 401 {
            *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        ok(path, answer)
    }
}

fn missing(path: &str) -> AskError {
    AskError::Status {
        path: path.to_owned(),
        status: 404,
    }
}

fn ok(path: &str, answer: Answer) -> Result<Option<Answer>, AskError> {
    match answer.status {
        200 => Ok(Some(answer)),
        404 => Ok(None),
        status => Err(AskError::Status {
            path: path.to_owned(),
            status,
        }),
    }
}
