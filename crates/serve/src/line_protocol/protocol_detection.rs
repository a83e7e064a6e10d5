//! Detects the protocol of a client by the first bytes that it sends.

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};

use super::LineProtocol;
use crate::listen::unless_stopped;
use crate::server_context::ServerContext;

/// Enough for the head of most requests.
const FIRST_BYTES: usize = 1024;
/// The beginning of an HTTP/2 connection; HTTP/1 has no such method.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
/// No HTTP method is longer.
const METHOD_BYTES_MAX: usize = 16;
/// The words with which a session of OpenTSDB's telnet protocol may begin.
const TELNET_COMMANDS: [&[u8]; 8] = [
    b"put ", b"put\t", b"put\r", b"put\n", b"version", b"help", b"stats", b"exit",
];

/// The protocol of a connection, with the bytes read so far.
#[derive(Debug)]
pub(crate) enum DetectedProtocol {
    Http(Vec<u8>),
    Http2(Vec<u8>),
    Lines(LineProtocol, Vec<u8>),
    /// The client closed the connection, or the server stops.
    Closed,
    /// Too few bytes arrived in time.
    TimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProtocolGuess {
    Http,
    Http2,
    Lines,
    /// More bytes are needed.
    Undecided,
}

/// Reads as many bytes as detection needs.
pub(crate) async fn detect_protocol<S: AsyncRead + Unpin>(
    stream: &mut S,
    is_socket: bool,
    since: Instant,
    context: &ServerContext,
) -> DetectedProtocol {
    let (mut bytes, mut chunk) = (Vec::new(), [0; FIRST_BYTES]);
    let mut stage = context.stage.clone();
    let deadline = since + context.settings.head_time;
    loop {
        let read = timeout_at(deadline, stream.read(&mut chunk));
        match unless_stopped(read, &mut stage).await {
            Some(Ok(Ok(count))) if count > 0 => bytes.extend_from_slice(&chunk[..count]),
            Some(Err(_)) => return DetectedProtocol::TimedOut,
            // On TCP, too few bytes for detection are no request.
            None | Some(Ok(_)) if bytes.is_empty() || !is_socket => {
                return DetectedProtocol::Closed;
            }
            None | Some(Ok(_)) => return DetectedProtocol::Lines(LineProtocol::Socket, bytes),
        }
        let (guess, dialect) = if let Some(guess) = guess_http2(&bytes) {
            (guess, LineProtocol::Socket)
        } else if is_socket {
            (guess_on_socket(&bytes), LineProtocol::Socket)
        } else {
            (guess_on_tcp(&bytes), LineProtocol::Telnet)
        };
        match guess {
            ProtocolGuess::Http => return DetectedProtocol::Http(bytes),
            ProtocolGuess::Http2 => return DetectedProtocol::Http2(bytes),
            ProtocolGuess::Lines => return DetectedProtocol::Lines(dialect, bytes),
            ProtocolGuess::Undecided => {}
        }
    }
}

/// Returns a guess if the bytes are, or may become, the beginning of HTTP/2.
fn guess_http2(bytes: &[u8]) -> Option<ProtocolGuess> {
    if bytes.starts_with(HTTP2_PREFACE) {
        return Some(ProtocolGuess::Http2);
    }
    let may_become = !bytes.is_empty() && HTTP2_PREFACE.starts_with(bytes);
    may_become.then_some(ProtocolGuess::Undecided)
}

/// On the UNIX socket, an HTTP request begins with a method in capitals, a space, and a path or
/// URL. Everything else is lines.
fn guess_on_socket(bytes: &[u8]) -> ProtocolGuess {
    let method = bytes.iter().take_while(|b| b.is_ascii_uppercase()).count();
    match (bytes.get(method), bytes.get(method + 1)) {
        (None, _) if method < METHOD_BYTES_MAX => ProtocolGuess::Undecided,
        (Some(b' '), None) if method > 0 => ProtocolGuess::Undecided,
        (Some(b' '), Some(b'/' | b'*' | b'h')) if method > 0 => ProtocolGuess::Http,
        _ => ProtocolGuess::Lines,
    }
}

/// On TCP, only the commands of OpenTSDB are lines: no browser can begin a request like that.
fn guess_on_tcp(bytes: &[u8]) -> ProtocolGuess {
    let mut guess = ProtocolGuess::Http;
    for command in TELNET_COMMANDS {
        if bytes.starts_with(command) {
            return ProtocolGuess::Lines;
        }
        if command.starts_with(bytes) {
            guess = ProtocolGuess::Undecided;
        }
    }
    guess
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_lines_are_told_apart_on_the_socket() {
        for http in [
            "GET / HTTP/1.1",
            "POST /api/put",
            "OPTIONS * HTTP/1.1",
            "GET http://a/",
        ] {
            assert_eq!(
                guess_on_socket(http.as_bytes()),
                ProtocolGuess::Http,
                "{http}"
            );
        }
        for lines in [
            "put a 1 2",
            "a:1|c",
            "GETS:1|c",
            "GET:1|c",
            "MY NAME:1|c",
            "\n",
            " GET /",
            "7",
            "ABCDEFGHIJKLMNOPQ",
            "\u{0}",
        ] {
            assert_eq!(
                guess_on_socket(lines.as_bytes()),
                ProtocolGuess::Lines,
                "{lines:?}"
            );
        }
        for open in ["", "G", "GET", "GET "] {
            assert_eq!(
                guess_on_socket(open.as_bytes()),
                ProtocolGuess::Undecided,
                "{open:?}"
            );
        }
    }

    #[test]
    fn only_commands_of_opentsdb_are_lines_on_tcp() {
        for lines in [
            "put a 1 2 b=c\n",
            "put ",
            "put\n",
            "put\r\n",
            "put\ta 1 2",
            "version\n",
            "help\r\n",
            "exit",
            "stats\n",
        ] {
            assert_eq!(
                guess_on_tcp(lines.as_bytes()),
                ProtocolGuess::Lines,
                "{lines:?}"
            );
        }
        for http in ["GET / HTTP/1.1", "PUT /", "what is this", "a:1|c", "putt "] {
            assert_eq!(
                guess_on_tcp(http.as_bytes()),
                ProtocolGuess::Http,
                "{http:?}"
            );
        }
        for open in ["", "p", "put", "v", "versio", "he", "ex"] {
            assert_eq!(
                guess_on_tcp(open.as_bytes()),
                ProtocolGuess::Undecided,
                "{open:?}"
            );
        }
    }
}
