//! Sends one request to a receiver, over HTTP or gRPC. Every wait is bounded.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use flate2::Compression;
use flate2::write::GzEncoder;
use pegel_http_client::{
    HttpConnection, HttpRequest, ServerTrust, WaitLimit, call_http2, connect_tcp, tls_config,
};
use pegel_wire::otlp::messages::Message;
use pegel_wire::otlp::messages::collector::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use pegel_wire::otlp::status::RpcStatus;

use super::settings::{OtlpProtocol, OtlpSettings};
use crate::remote_write::parse_retry_after;

const GRPC_PATH: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const USER_AGENT: &str = concat!("pegel/", env!("CARGO_PKG_VERSION"));
/// The largest response that is read.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// The most characters of an error response that are logged.
const MESSAGE_CHARS_MAX: usize = 300;
/// The longest wait that a receiver can request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// The response to a request that was accepted, at least in part.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    pub rejected: u64,
    pub message: String,
}

/// The reason why a request was not accepted.
#[derive(Debug)]
pub(super) enum ExportError {
    /// The same request may be accepted later, not before the time that the receiver requested.
    Retry(String, Option<Duration>),
    /// A retry would be refused again.
    Refused(String),
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> ExportError {
        ExportError::Retry(error.to_string(), None)
    }
}

/// Sends a request and waits for its response. The wait ends soon after `stop` is set.
pub(super) fn export(
    settings: &OtlpSettings,
    request: &ExportMetricsServiceRequest,
    timeout: Duration,
    stop: Option<Arc<AtomicBool>>,
) -> Result<Accepted, ExportError> {
    let url = &settings.url.0;
    let deadline = Instant::now() + timeout;
    let stream = connect_tcp(&url.host, url.port, deadline)?;
    match settings.protocol {
        OtlpProtocol::Http => export_http(settings, request, stream, deadline, stop),
        OtlpProtocol::Grpc => {
            let limit = WaitLimit {
                timeout: Some(time_left(deadline)),
                stop,
            };
            export_grpc(settings, request, stream, &limit)
        }
    }
}

fn time_left(deadline: Instant) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now());
    left.max(Duration::from_millis(1))
}

fn trust(settings: &OtlpSettings) -> ServerTrust {
    ServerTrust {
        ca_file: settings.ca_file.clone(),
        accept_any: !settings.verify_peer,
    }
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// The headers of a request: those of the protocol, then the configured ones.
fn headers<'a>(
    settings: &'a OtlpSettings,
    of_protocol: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let configured = settings.headers.iter();
    let configured = configured.map(|(name, value)| (&**name, value.reveal()));
    of_protocol.iter().copied().chain(configured).collect()
}

fn export_http(
    settings: &OtlpSettings,
    request: &ExportMetricsServiceRequest,
    stream: TcpStream,
    deadline: Instant,
    stop: Option<Arc<AtomicBool>>,
) -> Result<Accepted, ExportError> {
    let url = &settings.url.0;
    let mut body = request.encode_to_vec();
    let mut own = vec![
        ("Content-Type", "application/x-protobuf"),
        ("User-Agent", USER_AGENT),
        ("Connection", "close"),
    ];
    if settings.gzip {
        body = gzip(&body)?;
        own.push(("Content-Encoding", "gzip"));
    }
    let mut connection = match url.is_encrypted {
        true => {
            let config = tls_config(&trust(settings))?;
            HttpConnection::over_tls(stream, &url.host, config, time_left(deadline))
        }
        false => HttpConnection::over_tcp(stream),
    }?;
    let headers = headers(settings, &own);
    let request = HttpRequest {
        method: "POST",
        target: settings.http_path(),
        host: url.host_header(),
        headers: &headers,
    };
    let limit = WaitLimit {
        timeout: Some(time_left(deadline)),
        stop,
    };
    // The limit applies to the whole response: a receiver cannot hold the thread by sending it
    // slowly.
    let response = connection.exchange(&request, body.into(), RESPONSE_BYTES_MAX, &limit)?;
    let message = || {
        let text = error_text(&response.body);
        format!("HTTP status {}: {text}", response.status)
    };
    match response.status {
        200..=299 => accepted(&response.body),
        429 | 502..=504 => {
            let after = response.header("retry-after");
            let after = after.and_then(|text| parse_retry_after(text, SystemTime::now()));
            Err(ExportError::Retry(message(), after))
        }
        _ => Err(ExportError::Refused(message())),
    }
}

fn accepted(message: &[u8]) -> Result<Accepted, ExportError> {
    let response = ExportMetricsServiceResponse::decode(message)
        .map_err(|_| ExportError::Refused("the response is not an OTLP response".to_owned()))?;
    let partial = response.partial_success.unwrap_or_default();
    Ok(Accepted {
        rejected: u64::try_from(partial.rejected_data_points).unwrap_or(0),
        message: shortened(&partial.error_message),
    })
}

/// Returns the message of an error response: that of a `google.rpc.Status`, otherwise the text of
/// the body.
fn error_text(bytes: &[u8]) -> String {
    match RpcStatus::decode(bytes) {
        Ok(status) if !status.message.is_empty() => shortened(&status.message),
        _ => shortened(&String::from_utf8_lossy(bytes)),
    }
}

fn shortened(text: &str) -> String {
    let text = text.trim().replace(char::is_control, " ");
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

fn export_grpc(
    settings: &OtlpSettings,
    request: &ExportMetricsServiceRequest,
    stream: TcpStream,
    limit: &WaitLimit,
) -> Result<Accepted, ExportError> {
    let url = &settings.url.0;
    let mut message = request.encode_to_vec();
    let mut own = vec![
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("user-agent", USER_AGENT),
    ];
    if settings.gzip {
        message = gzip(&message)?;
        own.push(("grpc-encoding", "gzip"));
    }
    let mut body = Vec::with_capacity(message.len() + 5);
    body.push(u8::from(settings.gzip));
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.append(&mut message);
    let config = match url.is_encrypted {
        true => Some(tls_config(&trust(settings))?),
        false => None,
    };
    let headers = headers(settings, &own);
    let request = HttpRequest {
        method: "POST",
        target: GRPC_PATH,
        host: url.host_header(),
        headers: &headers,
    };
    let response = call_http2(stream, (&url.host, config), &request, body, limit)?;
    let code: Option<u32> = response
        .header("grpc-status")
        .and_then(|code| code.parse().ok());
    match code {
        Some(0) => match response.body.get(5..) {
            Some(message) if response.body[0] == 0 => accepted(message),
            _ => Err(ExportError::Refused(
                "the response is not a gRPC response".to_owned(),
            )),
        },
        Some(code) => {
            let details = response.header("grpc-status-details-bin");
            let text = response.header("grpc-message").unwrap_or_default();
            Err(grpc_error(code, text, details))
        }
        None => {
            let message = format!("HTTP status {} without a gRPC status", response.status);
            Err(match response.status {
                429 | 502..=504 => ExportError::Retry(message, None),
                _ => ExportError::Refused(message),
            })
        }
    }
}

/// Returns whether a retry may succeed, as OTLP specifies for each status of gRPC.
fn grpc_error(code: u32, text: &str, details: Option<&str>) -> ExportError {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let details = details.and_then(|text| GeneralPurpose::new(&STANDARD, config).decode(text).ok());
    let status = details.and_then(|bytes| RpcStatus::decode(&*bytes).ok());
    let retry_after = status.and_then(|status| status.retry_after());
    let message = format!("gRPC status {code}: {}", shortened(text));
    let is_retryable = matches!(code, 1 | 4 | 10 | 11 | 14 | 15);
    if is_retryable || (code == 8 && retry_after.is_some()) {
        let after = retry_after.map(|seconds| Duration::from_secs(seconds.into()));
        ExportError::Retry(message, after.map(|after| after.min(RETRY_AFTER_MAX)))
    } else {
        ExportError::Refused(message)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::thread;

    use base64::engine::general_purpose::STANDARD as BASE64;
    use pegel_wire::otlp::status::RpcCode;

    use super::*;

    #[test]
    fn only_transient_errors_are_retried() {
        let after = |code: u32, details: Option<&str>| match grpc_error(code, "x", details) {
            ExportError::Retry(_, after) => Some(after),
            ExportError::Refused(_) => None,
        };
        let busy = RpcStatus::new(RpcCode::ResourceExhausted, "busy", Some(7)).encode_to_vec();
        let busy = BASE64.encode(busy);
        let seconds = Duration::from_secs;
        assert_eq!(after(8, Some(&busy)), Some(Some(seconds(7))));
        let unpadded = busy.trim_end_matches('=');
        assert_eq!(after(8, Some(unpadded)), Some(Some(seconds(7))));
        assert_eq!(after(8, None), None, "too large: not transient");
        assert_eq!(after(14, None), Some(None));
        assert_eq!(after(14, Some("not base64!")), Some(None));
        for code in [2, 3, 7, 12, 13, 16] {
            assert_eq!(after(code, None), None, "{code}");
        }
    }

    /// Sends a request to a receiver that answers with `head`, and then with one byte every 50 ms,
    /// for ten seconds at most.
    fn export_to_slow_receiver(head: &'static str, timeout: Duration) -> Result<Accepted, String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let receiver = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("connected");
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).expect("a request") > 0);
            let mut is_open = stream.write_all(head.as_bytes()).is_ok();
            for _ in 0..200 {
                thread::sleep(Duration::from_millis(50));
                is_open = is_open && stream.write_all(b"x").is_ok();
                if !is_open {
                    break;
                }
            }
        });
        let settings = OtlpSettings {
            url: format!("http://{address}").parse().expect("a URL"),
            ..OtlpSettings::default()
        };
        let exported = export(
            &settings,
            &ExportMetricsServiceRequest::default(),
            timeout,
            None,
        );
        receiver.join().expect("it ends");
        exported.map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn a_receiver_that_answers_slowly_has_the_time_of_one_request() {
        let began = Instant::now();
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
        let exported = export_to_slow_receiver(head, Duration::from_secs(1));
        assert!(exported.is_err_and(|error| error.contains("Retry")));
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{:?}",
            began.elapsed()
        );
    }

    #[test]
    fn messages_of_responses_are_shortened_and_printable() {
        assert_eq!(accepted(b"").expect("accepted"), Accepted::default());
        let partial = accepted(b"\x0a\x07\x08\x02\x12\x03a\nb").expect("accepted");
        assert_eq!((partial.rejected, &*partial.message), (2, "a b"));
        assert!(accepted(b"<html>").is_err());
        assert_eq!(error_text(b"\x08\x03\x12\x02no"), "no");
        assert_eq!(error_text(b"plain\n"), "plain");
    }
}
