//! Fetches pages of other servers: bounded in time and size, without redirects.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use pegel_http_client::{
    Authorization, HttpConnection, HttpRequest, HttpResponse, ServerTrust, WaitLimit, connect_tcp,
    tls_config,
};

use super::PullError;
use super::endpoint::EndpointUrl;
use super::pull_context::PullContext;
use super::settings::HttpSettings;

/// A page that is fetched at each interval.
#[derive(Debug)]
pub(crate) struct HttpSource {
    settings: HttpSettings,
}

/// A response with the status 200.
#[derive(Debug)]
pub(crate) struct FetchedPage {
    pub content_type: String,
    pub body: Vec<u8>,
}

impl HttpSource {
    pub(crate) fn new(settings: &HttpSettings) -> HttpSource {
        HttpSource {
            settings: settings.clone(),
        }
    }

    /// Fetches the page within the limits of an attempt.
    pub(crate) fn fetch(
        &self,
        context: &PullContext<'_>,
        accept: &str,
    ) -> Result<FetchedPage, PullError> {
        let url = self.settings.url.as_ref();
        let url = url.ok_or_else(|| PullError::new("no URL is configured"))?;
        let authorization = self.authorization()?;
        let mut headers = vec![
            ("Accept", accept),
            ("Accept-Encoding", "gzip"),
            ("User-Agent", concat!("pegel/", env!("CARGO_PKG_VERSION"))),
        ];
        headers.extend(
            authorization
                .as_deref()
                .map(|value| ("Authorization", value)),
        );
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => timed_out(context),
            _ => PullError::new(error),
        };
        let connection = self.connect(url, context).map_err(failed)?;
        let host = match url {
            EndpointUrl::Tcp(url) => url.host_header(),
            EndpointUrl::Unix { .. } => "localhost",
        };
        let request = HttpRequest {
            method: "GET",
            target: &url.target(),
            host,
            headers: &headers,
        };
        let response = connection
            .send(&request, wait_limit(context))
            .map_err(failed)?;
        match response.status {
            200 => self.read_body(response, context),
            status @ 300..400 => Err(PullError::new(format!(
                "HTTP status {status}: redirects are not followed"
            ))),
            status => Err(PullError::new(format!("HTTP status {status}"))),
        }
    }

    fn connect(&self, url: &EndpointUrl, context: &PullContext<'_>) -> io::Result<HttpConnection> {
        match url {
            EndpointUrl::Unix { socket, .. } => {
                HttpConnection::over_unix(UnixStream::connect(socket)?)
            }
            EndpointUrl::Tcp(url) => {
                let stream = connect_tcp(&url.host, url.port, context.deadline)?;
                if !url.is_encrypted {
                    return HttpConnection::over_tcp(stream);
                }
                let config = tls_config(&ServerTrust {
                    ca_file: self.settings.ca_file.clone(),
                    accept_any: !self.settings.verify_peer,
                })?;
                let left = context.time_left().max(Duration::from_millis(1));
                HttpConnection::over_tls(stream, &url.host, config, left)
            }
        }
    }

    fn read_body(
        &self,
        mut response: HttpResponse,
        context: &PullContext<'_>,
    ) -> Result<FetchedPage, PullError> {
        let max = self.settings.body_max.as_usize();
        let header = |name| response.header(name).unwrap_or_default().to_owned();
        let (content_type, encoding) = (header("content-type"), header("content-encoding"));
        let mut raw = Vec::new();
        let mut buffer = [0; 16 << 10];
        loop {
            if context.time_left().is_zero() {
                return Err(timed_out(context));
            }
            // A server that sends little by little does not extend the deadline.
            response.body.limit = wait_limit(context);
            match response.body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) if raw.len() + count > max => return Err(too_large(max)),
                Ok(count) => raw.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(timed_out(context));
                }
                Err(error) => return Err(PullError::new(error)),
            }
        }
        let body = match encoding.to_ascii_lowercase().as_str() {
            "" | "identity" => raw,
            "gzip" | "x-gzip" => gunzip(&raw, max)?,
            other => {
                let message = format!("unsupported content encoding {other:?}");
                return Err(PullError::malformed(message));
            }
        };
        Ok(FetchedPage { content_type, body })
    }

    fn authorization(&self) -> Result<Option<String>, PullError> {
        let settings = &self.settings;
        let authorization = Authorization {
            bearer_token_file: settings.bearer_token_file.as_deref(),
            user: settings.user.as_deref(),
            password_file: settings.password_file.as_deref(),
        };
        authorization.header().map_err(PullError::new)
    }
}

fn wait_limit(context: &PullContext<'_>) -> WaitLimit {
    WaitLimit {
        timeout: Some(context.time_left().max(Duration::from_millis(1))),
        stop: Some(context.stop.clone()),
    }
}

fn timed_out(context: &PullContext<'_>) -> PullError {
    let seconds = context.timeout.as_secs_f64();
    PullError::new(format!("no complete response within {seconds} s"))
}

fn too_large(max: usize) -> PullError {
    PullError::malformed(format!("the response exceeds {max} bytes (body_max)"))
}

fn gunzip(raw: &[u8], max: usize) -> Result<Vec<u8>, PullError> {
    let mut body = Vec::new();
    let mut decoder = MultiGzDecoder::new(raw).take(max as u64 + 1);
    let read = decoder.read_to_end(&mut body);
    read.map_err(|error| PullError::malformed(format!("the response is not gzip: {error}")))?;
    if body.len() > max {
        return Err(too_large(max));
    }
    Ok(body)
}
