//! Line protocols: the text protocol of the UNIX socket, and OpenTSDB's telnet protocol, which
//! shares its port with HTTP as in OpenTSDB.
//!
//! | | UNIX socket | telnet |
//! |---|---|---|
//! | a line | a statsd line, or `put …`; optionally preceded by `level N `; a wrapper's request (`pegel_run::CountingService`) | `put …`, `version`, `help`, `exit` |
//! | a reply | `ok`, or `error REASON`, for every line | errors only |
//!
//! [`serve`] runs one session per connection. Lines that arrive together are handled together, so
//! that a client that sends many at once waits for the log once. The length of a line and the time
//! to complete it are limited; every lost line is counted.

mod line_handler;
mod protocol_detection;

use std::io;
use std::time::Duration;

use pegel_metric::{DropReason, Input};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::ConnectionContext;
use crate::guard::ConnectionInfo;
use crate::listen::unless_stopped;
use crate::refusals::ClientRefusal;

use line_handler::LineHandler;
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
    fn input(self) -> Input {
        match self {
            LineProtocol::Socket => Input::Push,
            LineProtocol::Telnet => Input::Put,
        }
    }

    /// The reply to a line that was refused.
    fn error_line(self, reason: &str) -> String {
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
    shared: ConnectionContext,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let write_time = shared.settings.write_time;
    let caller = match shared.guard.admit_lines(&info) {
        Ok(caller) => caller,
        Err(denied) => {
            let text = dialect.error_line(&denied.message());
            let _ = timeout(write_time, write_all(&mut stream, &text)).await;
            return;
        }
    };
    let work = LineHandler::new(&shared.site, dialect, &caller.peer, pid);
    let mut client = LineClient {
        stream,
        buffer: prefix,
        is_skipping: false,
        since: Instant::now(),
        dialect,
    };
    let end = client.run(&work, &shared).await;
    if let Some((refusal, reason, text)) = end.refusal(&shared) {
        if let Some(refusal) = refusal {
            shared.refusals.count(refusal);
            shared
                .site
                .sender_refusals
                .count(&caller.peer.sender_name(), refusal);
        }
        shared.site.agent.ingest.count_refused(&work.sender, reason);
        let text = dialect.error_line(&text);
        let _ = timeout(write_time, write_all(&mut client.stream, &text)).await;
    }
    if let LineSessionEnd::SlowReader = end {
        shared.refusals.count(ClientRefusal::SlowReader);
    }
}

struct LineClient<S> {
    stream: S,
    /// Bytes received but not yet handled: at most one incomplete line.
    buffer: Vec<u8>,
    /// Whether incoming bytes belong to a line that was too long.
    is_skipping: bool,
    /// Since when the current line is incomplete, or the client idle.
    since: Instant,
    dialect: LineProtocol,
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
        shared: &ConnectionContext,
    ) -> Option<(Option<ClientRefusal>, DropReason, String)> {
        match self {
            LineSessionEnd::Done | LineSessionEnd::SlowReader => None,
            LineSessionEnd::Incomplete => {
                let text = "the line is incomplete; end it with a newline".to_owned();
                Some((None, DropReason::Malformed, text))
            }
            LineSessionEnd::TimedOut => {
                let text = format!("the line took longer than {:?}", shared.settings.head_time);
                Some((Some(ClientRefusal::LineTime), DropReason::Malformed, text))
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> LineClient<S> {
    async fn run(&mut self, work: &LineHandler, shared: &ConnectionContext) -> LineSessionEnd {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut stage = shared.stage.clone();
        loop {
            if let Some(end) = self.handle_complete_lines(work, shared).await {
                return end;
            }
            let is_idle = self.buffer.is_empty() && !self.is_skipping;
            let time_limit: Duration = if is_idle {
                shared.settings.idle_time
            } else {
                shared.settings.head_time
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
    async fn handle_complete_lines(
        &mut self,
        work: &LineHandler,
        shared: &ConnectionContext,
    ) -> Option<LineSessionEnd> {
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
            let lines = std::mem::replace(&mut self.buffer, rest);
            let work = work.clone();
            let done = shared.site.executor.write(move || Ok(work.handle(&lines)));
            let (text, is_over) = match done.await {
                Ok(reply) => (reply.text, reply.is_over),
                Err(failure) => (self.dialect.error_line(failure.message()), true),
            };
            let written = write_all(&mut self.stream, &text);
            match timeout(shared.settings.write_time, written).await {
                Err(_) => return Some(LineSessionEnd::SlowReader),
                Ok(Err(_)) => return Some(LineSessionEnd::Done),
                Ok(Ok(())) if is_over => return Some(LineSessionEnd::Done),
                Ok(Ok(())) => {}
            }
            self.since = Instant::now();
        }
        let bytes_max = shared.settings.line_bytes_max;
        if self.buffer.len() > bytes_max {
            self.buffer = Vec::new();
            self.is_skipping = true;
            shared.refusals.count(ClientRefusal::LineSize);
            shared
                .site
                .sender_refusals
                .count(&work.sender.name, ClientRefusal::LineSize);
            shared
                .site
                .agent
                .ingest
                .count_refused(&work.sender, DropReason::TooLarge);
            let text = format!("the line exceeds {bytes_max} bytes");
            let text = self.dialect.error_line(&text);
            let written = write_all(&mut self.stream, &text);
            if timeout(shared.settings.write_time, written).await.is_err() {
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
