//! A small blocking HTTP client over TCP and UNIX sockets. One request per connection.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::assert_token_absent;

const TIMEOUT: Duration = Duration::from_secs(20);

/// The address of an HTTP server.
#[derive(Debug, Clone)]
pub enum AgentAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentAddress::Tcp(address) => write!(f, "{address}"),
            AgentAddress::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[derive(Debug)]
pub struct TestResponse {
    pub status: u16,
    /// Names in lower case, in the order of the response.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl TestResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the response is UTF-8")
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("the response is not JSON: {e}\n{}", self.text()))
    }
}

/// Sends these bytes over TCP and returns the whole response.
#[track_caller]
pub fn send_raw(address: &AgentAddress, raw: &str) -> String {
    let AgentAddress::Tcp(address) = address else {
        panic!("{address} is not TCP")
    };
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    stream.write_all(raw.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

pub fn get(address: &AgentAddress, path: &str) -> io::Result<TestResponse> {
    get_with(address, path, &[])
}

pub fn get_with(
    address: &AgentAddress,
    path: &str,
    headers: &[(&str, &str)],
) -> io::Result<TestResponse> {
    send_request(address, "GET", path, headers, b"")
}

/// Sends a POST request with a body.
pub fn post(
    address: &AgentAddress,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<TestResponse> {
    let length = body.len().to_string();
    let headers = [headers, &[("Content-Length", length.as_str())]].concat();
    send_request(address, "POST", path, &headers, body)
}

fn send_request(
    address: &AgentAddress,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<TestResponse> {
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    let request = [request.as_bytes(), body].concat();
    let raw = match address {
        AgentAddress::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            exchange(stream, &request)?
        }
        AgentAddress::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            exchange(stream, &request)?
        }
    };
    parse(&raw).ok_or_else(|| {
        let shown = String::from_utf8_lossy(&raw).into_owned();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("malformed or truncated HTTP response: {shown:?}"),
        )
    })
}

fn exchange(mut stream: impl Read + Write, request: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request)?;
    let mut raw = Vec::new();
    stream.read_to_end(&mut raw)?;
    assert_token_absent("a response", &raw);
    Ok(raw)
}

/// Parses a response; None if it is truncated or not HTTP.
fn parse(raw: &[u8]) -> Option<TestResponse> {
    let end = raw.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&raw[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines
        .next()?
        .strip_prefix("HTTP/1.1 ")?
        .get(..3)?
        .parse()
        .ok()?;
    let headers = lines
        .map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        })
        .collect::<Option<Vec<_>>>()?;
    let mut answer = TestResponse {
        status,
        headers,
        body: raw[end + 4..].to_vec(),
    };
    if answer.header("transfer-encoding") == Some("chunked") {
        answer.body = unchunk(&answer.body)?;
    } else if let Some(length) = answer.header("content-length") {
        let length: usize = length.parse().ok()?;
        if answer.body.len() != length {
            return None;
        }
    }
    Some(answer)
}

fn unchunk(mut raw: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = raw.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&raw[..line]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        raw = &raw[line + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(raw.get(..size)?);
        raw = raw.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_plain_and_chunked_answers() {
        let plain = parse(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nX-A: b\r\n\r\nno");
        let plain = plain.expect("whole");
        assert_eq!(
            (plain.status, plain.text(), plain.header("x-a")),
            (404, "no", Some("b"))
        );
        let chunked =
            parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n");
        assert_eq!(chunked.expect("whole").text(), "abc0123456789");
    }

    #[test]
    fn a_truncated_response_is_an_error() {
        for raw in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"",
        ] {
            assert!(parse(raw).is_none(), "{:?}", String::from_utf8_lossy(raw));
        }
    }
}
