//! Line protocols: the text protocol of the UNIX socket, and OpenTSDB's telnet protocol, which
//! shares its port with HTTP as in OpenTSDB.
//!
//! | | UNIX socket | telnet |
//! |---|---|---|
//! | a line | a statsd line, or `put …`; optionally preceded by `level N `; a wrapper's request | `put …`, `version`, `help`, `exit` |
//! | a reply | `ok`, or `error REASON`, for every line | errors only |
//!
//! [`serve`] runs one session per connection; an input that the agent registered handles the lines.
//! Lines that arrive together are handled together, so that a client that sends many at once waits
//! for the log once. The length of a line and the time to complete it are limited; every lost line
//! is counted.

mod protocol_detection;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::DropReason;
use pegel_wire::{LineClient, LineHandler};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::guard::{AccessRights, ConnectionInfo, PeerIdentity};
use crate::listen::unless_stopped;
use crate::refusals::ClientRefusal;
use crate::server_context::ServerContext;

pub(crate) use protocol_detection::{DetectedProtocol, detect_protocol};

/// How much is read at once.
const CHUNK_BYTES: usize = 8 << 10;

/// The accepted lines, and the form of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineProtocol {
    Socket,
    Telnet,
}

impl LineProtocol {
    /// The reply to a line that was refused.
    fn error_line(self, reason: &str) -> String {
        let reason = reason.replace(char::is_control, " ");
        match self {
            LineProtocol::Socket => format!("error {reason}\n"),
            LineProtocol::Telnet => format!("put: {reason}\n"),
        }
    }
}

/// Serves a connection to its end. `prefix` is what detection has already read of it.
pub(crate) async fn serve<S>(
    mut stream: S,
    prefix: Vec<u8>,
    dialect: LineProtocol,
    info: ConnectionInfo,
    pid: Option<u32>,
    context: Arc<ServerContext>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let write_time = context.settings.write_time;
    let rights = match context.guard.admit_lines(&info) {
        Ok(caller) => caller.rights,
        Err(denied) => {
            let text = dialect.error_line(&denied.message());
            let _ = timeout(write_time, write_all(&mut stream, &text)).await;
            return;
        }
    };
    let client = LineClient {
        sender: info.peer.sender_name(),
        uid: match info.peer {
            PeerIdentity::User(uid) => Some(uid),
            PeerIdentity::Unknown
            | PeerIdentity::Forwarded
            | PeerIdentity::Remote { .. }
            | PeerIdentity::ThroughTree
            | PeerIdentity::Tree => None,
        },
        pid,
    };
    let input = match dialect {
        LineProtocol::Socket => &context.agent.socket_lines,
        LineProtocol::Telnet => &context.agent.telnet_lines,
    };
    let mut connection = LineStream {
        stream,
        buffer: prefix,
        is_skipping: false,
        since: Instant::now(),
        dialect,
        handler: input.open(&client),
        sender: client.sender,
        rights,
    };
    let end = connection.run(&context).await;
    if let Some((refusal, reason, text)) = end.refusal(&context) {
        if let Some(refusal) = refusal {
            context.count_refusal(&connection.sender, refusal);
        }
        connection.handler.count_refused(reason);
        let text = dialect.error_line(&text);
        let _ = timeout(write_time, write_all(&mut connection.stream, &text)).await;
    }
    if let LineSessionEnd::SlowReader = end {
        context.refusals.count(ClientRefusal::SlowReader);
    }
}

struct LineStream<S> {
    stream: S,
    /// Bytes received but not yet handled: at most one incomplete line.
    buffer: Vec<u8>,
    /// Whether incoming bytes belong to a line that was too long.
    is_skipping: bool,
    /// Since when the current line is incomplete, or the client idle.
    since: Instant,
    dialect: LineProtocol,
    handler: Arc<dyn LineHandler>,
    /// The name under which the client is counted.
    sender: String,
    rights: AccessRights,
}

/// How a session ended.
#[derive(Debug, PartialEq, Eq)]
enum LineSessionEnd {
    /// The client closed the connection, or the server stops.
    Done,
    /// The connection ended within a line.
    Incomplete,
    /// A line was not completed in time.
    TimedOut,
    /// The client does not read its replies.
    SlowReader,
}

impl LineSessionEnd {
    /// The refusal to count and the reply to send, if a line was lost.
    fn refusal(
        &self,
        context: &ServerContext,
    ) -> Option<(Option<ClientRefusal>, DropReason, String)> {
        match self {
            LineSessionEnd::Done | LineSessionEnd::SlowReader => None,
            LineSessionEnd::Incomplete => {
                let text = "the line is incomplete; end it with a newline".to_owned();
                Some((None, DropReason::Malformed, text))
            }
            LineSessionEnd::TimedOut => {
                let text = format!("the line took longer than {:?}", context.settings.head_time);
                Some((Some(ClientRefusal::LineTime), DropReason::Malformed, text))
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> LineStream<S> {
    async fn run(&mut self, context: &ServerContext) -> LineSessionEnd {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut stage = context.stage.clone();
        loop {
            if let Some(end) = self.handle_complete_lines(context).await {
                return end;
            }
            let is_idle = self.buffer.is_empty() && !self.is_skipping;
            let time_limit: Duration = if is_idle {
                context.settings.idle_time
            } else {
                context.settings.head_time
            };
            let read = timeout_at(self.since + time_limit, self.stream.read(&mut chunk));
            match unless_stopped(read, &mut stage).await {
                None => return LineSessionEnd::Done,
                Some(Err(_)) if is_idle => return LineSessionEnd::Done,
                Some(Err(_)) => return LineSessionEnd::TimedOut,
                Some(Ok(Ok(0))) if is_idle => return LineSessionEnd::Done,
                Some(Ok(Ok(0))) => return LineSessionEnd::Incomplete,
                Some(Ok(Err(_))) => return LineSessionEnd::Done,
                Some(Ok(Ok(count))) => {
                    if is_idle {
                        self.since = Instant::now();
                    }
                    self.buffer.extend_from_slice(&chunk[..count]);
                }
            }
        }
    }

    /// Handles all complete lines in the buffer.
    async fn handle_complete_lines(&mut self, context: &ServerContext) -> Option<LineSessionEnd> {
        if self.is_skipping {
            let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
                self.buffer.clear();
                return None;
            };
            self.buffer.drain(..=end);
            self.is_skipping = false;
            self.since = Instant::now();
        }
        if let Some(last) = self.buffer.iter().rposition(|byte| *byte == b'\n') {
            let rest = self.buffer.split_off(last + 1);
            let mut lines = std::mem::replace(&mut self.buffer, rest);
            let is_over = self.dialect == LineProtocol::Telnet && truncate_at_exit(&mut lines);
            let (handler, dialect) = (self.handler.clone(), self.dialect);
            let done = context.executor.write(self.rights, move || {
                let replies = handler.handle(&lines).into_iter();
                Ok(replies
                    .map(|reply| reply.unwrap_or_else(|reason| dialect.error_line(&reason).into()))
                    .collect::<String>())
            });
            let (text, is_over) = match done.await {
                Ok(text) => (text, is_over),
                Err(failure) => (self.dialect.error_line(failure.message()), true),
            };
            let written = write_all(&mut self.stream, &text);
            match timeout(context.settings.write_time, written).await {
                Err(_) => return Some(LineSessionEnd::SlowReader),
                Ok(Err(_)) => return Some(LineSessionEnd::Done),
                Ok(Ok(())) if is_over => return Some(LineSessionEnd::Done),
                Ok(Ok(())) => {}
            }
            self.since = Instant::now();
        }
        let bytes_max = context.settings.line_bytes_max;
        if self.buffer.len() > bytes_max {
            self.buffer = Vec::new();
            self.is_skipping = true;
            context.count_refusal(&self.sender, ClientRefusal::LineSize);
            self.handler.count_refused(DropReason::TooLarge);
            let text = format!("the line exceeds {bytes_max} bytes");
            let text = self.dialect.error_line(&text);
            let written = write_all(&mut self.stream, &text);
            if timeout(context.settings.write_time, written).await.is_err() {
                return Some(LineSessionEnd::SlowReader);
            }
        }
        None
    }
}

async fn write_all<S: AsyncWrite + Unpin>(stream: &mut S, text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes()).await?;
    // TLS buffers writes until they are flushed.
    stream.flush().await
}

/// Removes `exit`, with which a telnet client ends its session, and what follows it. Returns
/// whether it was there.
fn truncate_at_exit(lines: &mut Vec<u8>) -> bool {
    let mut start = 0;
    let exit = lines.split(|byte| *byte == b'\n').find_map(|line| {
        let at = start;
        start += line.len() + 1;
        (line.trim_ascii() == b"exit").then_some(at)
    });
    if let Some(at) = exit {
        lines.truncate(at);
    }
    exit.is_some()
}
