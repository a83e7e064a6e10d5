//! Metrics of OpenTelemetry: `POST /v1/metrics` with protobuf or JSON, and the method `Export` of
//! gRPC's service `MetricsService`.
//!
//! The status is 200 if the request was processed; data points that a retry cannot save are counted
//! in the response (`partialSuccess`), with the reasons. It is 400 if the request is malformed, 413
//! if it has too many samples or too long labels, and 415 for other content types. With 429 (the
//! sender exceeds its bytes per second) and 503 (the store accepts nothing now) nothing of the
//! request is stored, and the client retries after `Retry-After`. Over gRPC the same outcomes are
//! codes of gRPC. The server calls the handlers on blocking threads, never on async workers.

use std::io;
use std::sync::Arc;

use pegel_metric::{DropReason, Input};
use pegel_wire::otlp::OtlpError;
use pegel_wire::otlp::messages::Message;
use pegel_wire::otlp::status::{RpcCode, RpcStatus, export_response};
use pegel_wire::{BodyEncoding, InputError, InputReply, InputRequest, RequestHandler};
use serde_json::json;

use super::write_json;
use crate::Ingest;
use crate::otlp::{OtlpMessage, OtlpResult, OtlpWriteError, OtlpWriter};

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
const CONTENT_TYPE: &str = "content-type";
const RETRY_AFTER: &str = "retry-after";
/// `Retry-After` in seconds: for a sender that exceeds its bytes per second, and for a store that
/// accepts nothing now.
const SENDER_RETRY: u32 = 30;
const STORE_RETRY: u32 = 5;

/// The parts of the agent that both handlers use.
#[derive(Debug, Clone)]
pub struct OtlpInput {
    pub ingest: Arc<Ingest>,
    pub writer: Arc<OtlpWriter>,
}

/// Handles `POST /v1/metrics`.
#[derive(Debug)]
pub struct OtlpHttp(pub OtlpInput);

/// Handles `Export` over gRPC.
#[derive(Debug)]
pub struct OtlpGrpc(pub OtlpInput);

/// The encoding of a request and of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageForm {
    Protobuf,
    Json,
}

/// The error response to a request that failed as a whole.
#[derive(Debug)]
struct ExportFailure {
    status: u16,
    message: String,
    retry_after: Option<u32>,
}

impl OtlpInput {
    fn export(
        &self,
        request: &InputRequest<'_>,
        form: MessageForm,
    ) -> Result<OtlpResult, ExportFailure> {
        let sender = self.ingest.sender(Input::Otlp, request.sender);
        let message = match form {
            MessageForm::Protobuf => OtlpMessage::Protobuf(request.body),
            MessageForm::Json => OtlpMessage::Json(request.body),
        };
        let written = self.writer.write(&sender, message, self.ingest.now());
        let written = written.map_err(|error| ExportFailure {
            status: match &error {
                OtlpWriteError::Malformed(OtlpError::TooMany(
                    "samples" | "bytes of names and labels",
                    _,
                )) => 413,
                OtlpWriteError::Malformed(_) => 400,
                OtlpWriteError::Store(_) => 503,
            },
            message: error.to_string(),
            retry_after: matches!(error, OtlpWriteError::Store(_)).then_some(STORE_RETRY),
        })?;
        if written.refused.is_temporary() {
            return Err(ExportFailure {
                status: 429,
                message: written.refused.to_string(),
                retry_after: Some(SENDER_RETRY),
            });
        }
        Ok(written)
    }

    fn count_refused(&self, sender: &str, reason: DropReason) {
        let sender = self.ingest.sender(Input::Otlp, sender);
        self.ingest.count_refused(&sender, reason);
    }
}

/// Describes the samples that were refused; empty if none was.
fn partial_message(written: &OtlpResult) -> String {
    if written.refused.is_empty() {
        return String::new();
    }
    let (kept, count) = (written.kept, written.refused.count());
    format!(
        "stored {kept} samples, refused {count}: {}",
        written.refused
    )
}

impl RequestHandler for OtlpHttp {
    fn handle(
        &self,
        request: InputRequest<'_>,
        response: &mut dyn io::Write,
    ) -> Result<InputReply, InputError> {
        let Some(form) = message_form(request.content_type) else {
            self.0.count_refused(request.sender, DropReason::Malformed);
            let message = format!("unsupported content type {:?}", request.content_type);
            let hint = "send Content-Type: application/x-protobuf or application/json";
            return Err(InputError::refused(415, message, hint));
        };
        match self.0.export(&request, form) {
            Ok(written) => form.write_response(&written, response),
            Err(failure) => form.write_failure(&failure, response),
        }
    }

    fn count_refused(&self, sender: &str, reason: DropReason) {
        self.0.count_refused(sender, reason);
    }
}

impl RequestHandler for OtlpGrpc {
    fn body_encoding(&self) -> BodyEncoding {
        BodyEncoding::Grpc
    }

    fn handle(
        &self,
        request: InputRequest<'_>,
        response: &mut dyn io::Write,
    ) -> Result<InputReply, InputError> {
        match self.0.export(&request, MessageForm::Protobuf) {
            Ok(written) => MessageForm::Protobuf.write_response(&written, response),
            Err(failure) => {
                let error = InputError::refused(failure.status, failure.message, "");
                let retry = failure
                    .retry_after
                    .map(|after| (RETRY_AFTER, after.to_string()));
                Err(error.with_headers(retry.into_iter().collect()))
            }
        }
    }

    fn count_refused(&self, sender: &str, reason: DropReason) {
        self.0.count_refused(sender, reason);
    }
}

impl MessageForm {
    fn reply(self, status: u16) -> InputReply {
        let content_type = match self {
            MessageForm::Protobuf => PROTOBUF,
            MessageForm::Json => JSON,
        };
        let headers = vec![(CONTENT_TYPE, content_type.to_owned())];
        InputReply::new(status).with_headers(headers)
    }

    fn write_response(
        self,
        written: &OtlpResult,
        response: &mut dyn io::Write,
    ) -> Result<InputReply, InputError> {
        let (rejected, message) = (written.rejected_points, partial_message(written));
        match self {
            MessageForm::Protobuf => {
                response.write_all(&export_response(rejected, &message).encode_to_vec())?;
            }
            MessageForm::Json if message.is_empty() => write_json(response, &json!({}))?,
            MessageForm::Json => {
                // OTLP's JSON writes 64-bit numbers as strings.
                let partial = json!({
                    "rejectedDataPoints": rejected.to_string(),
                    "errorMessage": message,
                });
                write_json(response, &json!({"partialSuccess": partial}))?;
            }
        }
        Ok(self.reply(200))
    }

    fn write_failure(
        self,
        failure: &ExportFailure,
        response: &mut dyn io::Write,
    ) -> Result<InputReply, InputError> {
        let code = RpcCode::from_http(failure.status);
        match self {
            MessageForm::Protobuf => {
                let status = RpcStatus::new(code, &failure.message, failure.retry_after);
                response.write_all(&status.encode_to_vec())?;
            }
            MessageForm::Json => {
                let status = json!({"code": code as i32, "message": failure.message});
                write_json(response, &status)?;
            }
        }
        let mut reply = self.reply(failure.status);
        if let Some(after) = failure.retry_after {
            reply.headers.push((RETRY_AFTER, after.to_string()));
        }
        Ok(reply)
    }
}

/// Returns the encoding for a content type; `None` if it is not supported.
fn message_form(content_type: &str) -> Option<MessageForm> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let is = |name: &str| media_type.eq_ignore_ascii_case(name);
    if is(PROTOBUF) || is("application/protobuf") {
        Some(MessageForm::Protobuf)
    } else {
        is(JSON).then_some(MessageForm::Json)
    }
}
