//! Sessions of S3 Express directory buckets: requests are signed with keys that `CreateSession`
//! returns and that are valid for 5 minutes.

use std::time::{Duration, Instant};

use super::sigv4::SigningKeys;
use super::{S3Request, send_signed};
use crate::response::xml_values;
use crate::server::StorageServer;
use crate::{REPLY_BYTES_MAX, StorageProblem, StorageProblemKind};

/// How long the keys of a session are used.
const SESSION_LIFE: Duration = Duration::from_secs(240);

/// The session of a bucket, created when it is needed.
#[derive(Debug, Default)]
pub(super) struct ExpressSession {
    current: Option<(SigningKeys, Instant)>,
}

impl ExpressSession {
    /// Discards keys that were rejected.
    pub(super) fn discard(&mut self) {
        self.current = None;
    }

    /// Returns the keys of the session, which is created with `keys`.
    pub(super) fn keys(
        &mut self,
        server: &mut StorageServer,
        bucket: &str,
        region: &str,
        keys: &SigningKeys,
    ) -> Result<SigningKeys, StorageProblem> {
        match &self.current {
            Some((keys, end)) if Instant::now() < *end => return Ok(keys.clone()),
            _ => {}
        }
        let request = S3Request {
            query: vec![("session", String::new())],
            headers: vec![("x-amz-create-session-mode", "ReadWrite".to_owned())],
            bytes_max: REPLY_BYTES_MAX,
            ..S3Request::default()
        };
        let path = format!("{bucket}/");
        let scope = (keys, (region, "s3express"));
        let response = send_signed(server, "CreateSession", scope, &path, "GET", request)?;
        if response.status != 200 {
            return Err(response.problem(server.label(), "CreateSession"));
        }
        let value = |name: &str| {
            let value = xml_values(&response.body, name).pop()?;
            let is_plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
            is_plain.then_some(value)
        };
        let (Some(id), Some(secret), Some(token)) = (
            value("AccessKeyId"),
            value("SecretAccessKey"),
            value("SessionToken"),
        ) else {
            let text = format!("{}: CreateSession returned no keys", server.label());
            return Err(StorageProblem::new(StorageProblemKind::ServerError, text));
        };
        let keys = SigningKeys {
            access_key_id: id,
            secret_access_key: secret,
            session_token: Some(("x-amz-s3session-token", token)),
        };
        self.current = Some((keys.clone(), Instant::now() + SESSION_LIFE));
        Ok(keys)
    }
}
