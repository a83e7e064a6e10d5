//! Pushgateway's routes: `PUT`, `POST` and `DELETE /metrics/job/JOB{/LABEL/VALUE}`.
//!
//! The metrics of a group stay until they are replaced or deleted: `PUT` replaces the group, `POST`
//! the metrics with the pushed names, `DELETE` removes the group. Bodies are in Prometheus' text
//! format and have no timestamps, as in Pushgateway.

use std::io;
use std::sync::Arc;

use pegel_metric::{DropReason, Input};
use pegel_wire::exposition::{self, TextFormat};
use pegel_wire::{InputError, InputReply, InputRequest, RequestHandler, RequestMethods};

use crate::push_groups::{GroupLabels, PushGroups, PushOutcome};

const JOB: &str = "job";
const BASE64_SUFFIX: &str = "@base64";

/// Handles the routes below `/metrics/job`.
#[derive(Debug)]
pub struct Pushgateway(pub Arc<PushGroups>);

impl RequestHandler for Pushgateway {
    fn handle(
        &self,
        request: InputRequest<'_>,
        _: &mut dyn io::Write,
    ) -> Result<InputReply, InputError> {
        let labels = parse_group(request.path).map_err(|message| {
            self.count_refused(request.sender, DropReason::Malformed);
            let hint =
                "use /metrics/job/JOB{/LABEL/VALUE}, or LABEL@base64 with a value in base64url";
            InputError::bad_request(message, hint)
        })?;
        if request.method == "DELETE" {
            let deleted = self.0.delete(request.sender, &labels);
            deleted.map_err(unavailable)?;
            return Ok(InputReply::new(202));
        }
        let format = TextFormat::from_content_type(request.content_type);
        let refused = |message: String, hint| {
            self.count_refused(request.sender, DropReason::Malformed);
            InputError::bad_request(message, hint)
        };
        if request.content_type.contains("protobuf") {
            let message = "protocol buffers are not supported".to_owned();
            return Err(refused(message, "send Prometheus' text format"));
        }
        let batch = exposition::parse(request.body, format)
            .map_err(|error| refused(error.to_string(), "send Prometheus' text format"))?;
        if batch
            .points
            .iter()
            .flatten()
            .any(|point| point.time.is_some())
        {
            let message = "pushed metrics must not have timestamps".to_owned();
            return Err(refused(message, "omit the timestamps"));
        }
        let replaces_all = request.method == "PUT";
        let outcome = self.0.push(request.sender, labels, &batch, replaces_all);
        match outcome.map_err(unavailable)? {
            PushOutcome::Stored => Ok(InputReply::new(200)),
            PushOutcome::Refused(message) => Err(InputError::bad_request(
                message,
                "the other metrics were stored",
            )),
            PushOutcome::TooMuch(message) => {
                self.count_refused(request.sender, DropReason::SenderLimit);
                let hint = "delete groups that are not used any more";
                Err(InputError::bad_request(message, hint))
            }
            PushOutcome::TooOften => {
                self.count_refused(request.sender, DropReason::SenderRate);
                Err(InputError::refused(
                    429,
                    "the sender exceeds limits.sender_bytes",
                    "retry later, or push smaller groups",
                ))
            }
        }
    }

    fn methods(&self) -> RequestMethods {
        RequestMethods::PostPutDelete
    }

    fn count_refused(&self, sender: &str, reason: DropReason) {
        let ingest = self.0.ingest();
        let sender = ingest.sender(Input::Pushgateway, sender);
        ingest.count_refused(&sender, reason);
    }
}

fn unavailable(error: impl ToString) -> InputError {
    InputError::unavailable(error, "nothing was stored; retry later")
}

/// Parses the labels of a group from a path: `job/JOB`, then pairs of names and values.
fn parse_group(path: &str) -> Result<GroupLabels, String> {
    let path = path.strip_prefix("/metrics/").unwrap_or(path);
    let mut parts = path.split('/');
    let mut labels = GroupLabels::new();
    while let Some(name) = parts.next() {
        let Some(value) = parts.next() else {
            return Err(format!("the label {name:?} has no value"));
        };
        let name = decode_percent(name)?;
        let (name, value) = match name.strip_suffix(BASE64_SUFFIX) {
            Some(name) => (name.to_owned(), decode_base64(value)?),
            None => (name, decode_percent(value)?),
        };
        let is_label = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_label) {
            return Err(format!("{name:?} is not the name of a label"));
        }
        if labels.insert(name.clone(), value).is_some() {
            return Err(format!("duplicate label {name:?}"));
        }
    }
    if labels.get(JOB).is_none_or(String::is_empty) {
        return Err("the job is missing".to_owned());
    }
    Ok(labels)
}

fn decode_percent(text: &str) -> Result<String, String> {
    let malformed = || format!("{text:?} is not percent-encoded UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(malformed)?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

/// Decodes base64url, padded or not; `=` alone is an empty value.
fn decode_base64(text: &str) -> Result<String, String> {
    let malformed = || format!("{text:?} is not base64url of UTF-8");
    let digits = decode_percent(text)?;
    let digits = digits.trim_end_matches('=');
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return Err(malformed()),
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(((bits >> count) & 0xff) as u8);
        }
    }
    if digits.len() % 4 == 1 {
        return Err(malformed());
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_groups() {
        let show = |path: &str| {
            let labels = parse_group(path)?;
            let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
            Ok::<String, String>(labels.collect::<Vec<_>>().join(","))
        };
        for (path, expected) in [
            ("/metrics/job/backup", "job=backup"),
            (
                "/metrics/job/backup/instance/a%20b",
                "instance=a b,job=backup",
            ),
            // The examples of Pushgateway's manual.
            (
                "/metrics/job/directory_cleaner/path@base64/L3Zhci90bXA",
                "job=directory_cleaner,path=/var/tmp",
            ),
            (
                "/metrics/job/titan/name@base64/zqDPgc6_zrzOt864zrXPjc-C",
                "job=titan,name=Προμηθεύς",
            ),
            ("/metrics/job@base64/L3Zhci90bXA=/a/b", "a=b,job=/var/tmp"),
            ("/metrics/job/x/empty@base64/=", "empty=,job=x"),
        ] {
            assert_eq!(show(path).as_deref(), Ok(expected), "{path}");
        }
        for wrong in [
            "/metrics/job/",
            "/metrics/job/a/b",
            "/metrics/job/a/b-c/d",
            "/metrics/job/a/job/b",
            "/metrics/job/a/b/%zz",
            "/metrics/job/a/b/%ff",
            "/metrics/job/a/b@base64/!",
            "/metrics/job/a/b@base64/AAAAA",
            "/metrics/instance/a",
        ] {
            assert!(show(wrong).is_err(), "{wrong}");
        }
    }
}
