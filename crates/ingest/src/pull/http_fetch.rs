//! Fetches pages of other servers: bounded in time and size, without redirects.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use pegel_http_client::{
    HttpConnection, HttpRequest, HttpResponse, ServerTrust, WaitLimit, connect_tcp, tls_config,
};

use super::PullError;
use super::endpoint::EndpointUrl;
use super::pull_context::PullContext;
use super::settings::HttpSettings;

/// The most bytes of a file with a password or a token.
const SECRET_BYTES_MAX: u64 = 16 << 10;

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
        if let Some(file) = &self.settings.bearer_token_file {
            return Ok(Some(format!("Bearer {}", read_secret(file)?)));
        }
        match (&self.settings.user, &self.settings.password_file) {
            (Some(user), Some(file)) => {
                let credentials = format!("{user}:{}", read_secret(file)?);
                Ok(Some(format!(
                    "Basic {}",
                    encode_base64(credentials.as_bytes())
                )))
            }
            _ => Ok(None),
        }
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

/// Reads a secret, without the line break at its end. It is read each time, so that a renewed one
/// is used.
fn read_secret(path: &Path) -> Result<String, PullError> {
    let unusable = |problem: &dyn ToString| {
        PullError::new(format!("{}: {}", path.display(), problem.to_string()))
    };
    let bytes = pegel_plain_file::read_plain(path, SECRET_BYTES_MAX);
    let bytes = bytes.map_err(|error| unusable(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| unusable(&"not UTF-8"))?;
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() || secret.contains(|c: char| c.is_control()) {
        return Err(unusable(&"not one line of text"));
    }
    Ok(secret.to_owned())
}

fn encode_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for at in 0..4 {
            let digit = DIGITS[((bits >> (18 - 6 * at)) & 63) as usize];
            text.push(if at <= chunk.len() { digit.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_encoded_as_base64() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
            ("Aladdin:open sesame", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            ("ÿ?~", "w78/fg=="),
        ] {
            assert_eq!(encode_base64(plain.as_bytes()), encoded, "{plain}");
        }
    }
}
