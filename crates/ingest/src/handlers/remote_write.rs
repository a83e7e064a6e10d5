//! `POST /api/v1/write`: Prometheus' remote write, versions 1.0 and 2.0.
//!
//! 204 if everything was stored. 400 if samples were refused for good: the others are stored, and
//! the response counts the refused ones by reason. 429 if all refused ones exceed the sender's
//! bytes per second, 503 if nothing can be stored now: in both cases a retry is useful.

use std::io;
use std::sync::Arc;

use pegel_metric::{DropReason, Input};
use pegel_wire::{BodyEncoding, InputError, InputReply, InputRequest, RequestHandler};

use super::not_stored;
use crate::Ingest;
use crate::remote_write::{RemoteMessage, RemoteWriteError};

const CONTENT_TYPE: &str = "application/x-protobuf";
const MESSAGE_V1: &str = "prometheus.WriteRequest";
const MESSAGE_V2: &str = "io.prometheus.write.v2.Request";
const CONTENT_TYPE_HINT: &str = "send Content-Type: application/x-protobuf, optionally with ;proto=prometheus.WriteRequest or ;proto=io.prometheus.write.v2.Request";

/// Handles `POST /api/v1/write`.
#[derive(Debug)]
pub struct RemoteWrite(pub Arc<Ingest>);

/// The version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageVersion {
    V1,
    V2,
}

impl RequestHandler for RemoteWrite {
    fn body_encoding(&self) -> BodyEncoding {
        BodyEncoding::Snappy
    }

    fn handle(
        &self,
        request: InputRequest<'_>,
        _: &mut dyn io::Write,
    ) -> Result<InputReply, InputError> {
        let sender = self.0.sender(Input::RemoteWrite, request.sender);
        let version = message_version(request.content_type).ok_or_else(|| {
            self.0.count_refused(&sender, DropReason::Malformed);
            let message = format!("unsupported content type {:?}", request.content_type);
            InputError::refused(415, message, CONTENT_TYPE_HINT)
        })?;
        let message = match version {
            MessageVersion::V1 => RemoteMessage::V1(request.body),
            MessageVersion::V2 => RemoteMessage::V2(request.body),
        };
        let writer = self.0.remote_writer();
        let written = writer.write(&sender, message, request.node_instance, self.0.now());
        let written = written.map_err(|error| match error {
            RemoteWriteError::Store(error) => not_stored(error),
            RemoteWriteError::Malformed(_) => InputError::bad_request(
                error,
                "send a snappy-compressed message of the type that Content-Type names",
            ),
        })?;
        let headers = match version {
            MessageVersion::V1 => Vec::new(),
            MessageVersion::V2 => written_headers(written.kept),
        };
        let (kept, refused) = (written.kept, written.refused);
        if refused.is_empty() {
            return Ok(InputReply::new(204).with_headers(headers));
        }
        let count = refused.count();
        let message = format!("stored {kept} samples, refused {count}: {refused}");
        let error = if refused.is_temporary() {
            InputError::refused(429, message, "retry later, or raise limits.sender_bytes")
        } else {
            let hint = "the refused samples would be refused again: do not retry";
            InputError::bad_request(message, hint)
        };
        Err(error.with_headers(headers))
    }

    fn count_refused(&self, sender: &str, reason: DropReason) {
        let sender = self.0.sender(Input::RemoteWrite, sender);
        self.0.count_refused(&sender, reason);
    }
}

/// The headers by which version 2.0 reports what was stored.
fn written_headers(samples: u64) -> Vec<(&'static str, String)> {
    let header = |name, count: u64| (name, count.to_string());
    vec![
        header("x-prometheus-remote-write-samples-written", samples),
        header("x-prometheus-remote-write-histograms-written", 0),
        header("x-prometheus-remote-write-exemplars-written", 0),
    ]
}

/// Returns the version that a content type names; `None` if it names something else. Without a
/// parameter `proto`, or without a content type at all, it is 1.0.
fn message_version(content_type: &str) -> Option<MessageVersion> {
    let mut parts = content_type.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    if media_type.is_empty() {
        return Some(MessageVersion::V1);
    }
    if !media_type.eq_ignore_ascii_case(CONTENT_TYPE) {
        return None;
    }
    for part in parts {
        let Some((name, value)) = part.split_once('=') else {
            continue;
        };
        if name.trim_end().eq_ignore_ascii_case("proto") {
            return match value.trim_start().trim_matches('"') {
                MESSAGE_V1 => Some(MessageVersion::V1),
                MESSAGE_V2 => Some(MessageVersion::V2),
                _ => None,
            };
        }
    }
    Some(MessageVersion::V1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_names_the_version() {
        let v1 = Some(MessageVersion::V1);
        let v2 = Some(MessageVersion::V2);
        for (content_type, expected) in [
            ("", v1),
            ("application/x-protobuf", v1),
            ("Application/X-Protobuf; charset=utf-8", v1),
            ("application/x-protobuf;proto=prometheus.WriteRequest", v1),
            (
                "application/x-protobuf;proto=io.prometheus.write.v2.Request",
                v2,
            ),
            (
                "application/x-protobuf; Proto = \"io.prometheus.write.v2.Request\"",
                v2,
            ),
            (
                "application/x-protobuf;proto=io.prometheus.write.v3.Request",
                None,
            ),
            ("application/json", None),
            ("application/x-protobufs", None),
        ] {
            assert_eq!(message_version(content_type), expected, "{content_type}");
        }
    }
}
