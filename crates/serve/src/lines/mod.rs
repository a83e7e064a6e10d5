//! Connections that speak in lines instead of HTTP: the text protocol of the UNIX socket, and OpenTSDB's telnet
//! protocol, which shares its port with HTTP as it does there.
//!
//! | | the socket | telnet |
//! |---|---|---|
//! | a line | a statsd line, or `put …`; `level N ` may stand in front; what a wrapper asks (`pegel_run::Station`) | `put …`, `version`, `help`, `exit` |
//! | an answer | `ok`, or `error REASON`, for every line | only what went wrong |
//!
//! All lines that came together are worked on together, so that a client that sends many at once waits for the
//! log once. A line has a largest size and a time by which it must be complete.

mod rewound;
mod sniff;
mod work;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use pegel_metric::{Input, Reason};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::Shared;
use crate::guard::Visit;
use crate::listen::or_stopped;
use crate::refusals::Refusal;

pub(crate) use rewound::Rewound;
pub(crate) use sniff::{Begun, begin};
use work::Work;

/// What is read at once.
const CHUNK_BYTES: usize = 8 << 10;

/// Which lines are understood, and how they are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Socket,
    Telnet,
}

impl Dialect {
    fn input(self) -> Input {
        match self {
            Dialect::Socket => Input::Push,
            Dialect::Telnet => Input::Put,
        }
    }

    /// The answer to something that is no line.
    fn complaint(self, reason: &str) -> String {
        match self {
            Dialect::Socket => format!("error {reason}\n"),
            Dialect::Telnet => format!("put: {reason}\n"),
        }
    }
}

/// Serves a connection to its end. `begun` is what was read of it already.
pub(crate) async fn serve<S>(
    mut stream: S,
    begun: Vec<u8>,
    dialect: Dialect,
    visit: Visit,
    pid: Option<u32>,
    shared: Shared,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let write_time = shared.settings.write_time;
    let caller = match shared.guard.admit_lines(&visit) {
        Ok(caller) => caller,
        Err(denied) => {
            let text = dialect.complaint(&denied.message());
            let _ = timeout(write_time, write_all(&mut stream, text.as_bytes())).await;
            return;
        }
    };
    let work = Work::new(&shared.site, dialect, &caller.peer, pid);
    let mut client = Client {
        stream,
        buffer: begun,
        skips: false,
        since: Instant::now(),
        dialect,
    };
    let end = client.talk(&work, &shared).await;
    if let Some((refusal, reason, text)) = end.complaint(&shared) {
        if let Some(refusal) = refusal {
            shared.refusals.count(refusal);
            shared.site.limited.count(&caller.peer.account(), refusal);
        }
        shared.site.app.intake.count_refused(&work.sender, reason);
        let text = dialect.complaint(&text);
        let _ = timeout(write_time, write_all(&mut client.stream, text.as_bytes())).await;
    }
    if let End::Slow = end {
        shared.refusals.count(Refusal::SlowReader);
    }
}

struct Client<S> {
    stream: S,
    /// What came and is not worked on yet: at most one line, which is not complete.
    buffer: Vec<u8>,
    /// Whether what comes belongs to a line that was too long.
    skips: bool,
    /// Since when the line is on its way, or the client rests.
    since: Instant,
    dialect: Dialect,
}

/// How a connection ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The client is done, or the server.
    Done,
    /// In the middle of a line.
    Unfinished,
    /// A line took too long.
    Late,
    /// The client does not read its answers.
    Slow,
}

impl End {
    /// What is said and counted, where a line was lost.
    fn complaint(&self, shared: &Shared) -> Option<(Option<Refusal>, Reason, String)> {
        match self {
            End::Done | End::Slow => None,
            End::Unfinished => {
                let text = "the line does not end; end it with a newline".to_owned();
                Some((None, Reason::Malformed, text))
            }
            End::Late => {
                let text = format!("the line took longer than {:?}", shared.settings.head_time);
                Some((Some(Refusal::LineTime), Reason::Malformed, text))
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    async fn talk(&mut self, work: &Work, shared: &Shared) -> End {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut stage = shared.stage.clone();
        loop {
            if let Some(end) = self.work_off(work, shared).await {
                return end;
            }
            let is_idle = self.buffer.is_empty() && !self.skips;
            let patience: Duration = match is_idle {
                true => shared.settings.idle_time,
                false => shared.settings.head_time,
            };
            let read = timeout_at(self.since + patience, read(&mut self.stream, &mut chunk));
            match or_stopped(read, &mut stage).await {
                None => return End::Done,
                Some(Err(_)) if is_idle => return End::Done,
                Some(Err(_)) => return End::Late,
                Some(Ok(Ok(0))) if is_idle => return End::Done,
                Some(Ok(Ok(0))) => return End::Unfinished,
                Some(Ok(Err(_))) => return End::Done,
                Some(Ok(Ok(count))) => {
                    if is_idle {
                        self.since = Instant::now();
                    }
                    self.buffer.extend_from_slice(&chunk[..count]);
                }
            }
        }
    }

    /// Works on all lines that are complete.
    async fn work_off(&mut self, work: &Work, shared: &Shared) -> Option<End> {
        if self.skips {
            let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
                self.buffer.clear();
                return None;
            };
            self.buffer.drain(..=end);
            self.skips = false;
            self.since = Instant::now();
        }
        if let Some(last) = self.buffer.iter().rposition(|byte| *byte == b'\n') {
            let rest = self.buffer.split_off(last + 1);
            let lines = std::mem::replace(&mut self.buffer, rest);
            let work = work.clone();
            let done = shared.site.answers.write(move || Ok(work.answer(&lines)));
            let (text, is_over) = match done.await {
                Ok(reply) => (reply.text, reply.is_over),
                Err(failure) => (self.dialect.complaint(failure.message()), true),
            };
            let written = write_all(&mut self.stream, text.as_bytes());
            match timeout(shared.settings.write_time, written).await {
                Err(_) => return Some(End::Slow),
                Ok(Err(_)) => return Some(End::Done),
                Ok(Ok(())) if is_over => return Some(End::Done),
                Ok(Ok(())) => {}
            }
            self.since = Instant::now();
        }
        let bytes_max = shared.settings.line_bytes_max;
        if self.buffer.len() > bytes_max {
            self.buffer = Vec::new();
            self.skips = true;
            shared.refusals.count(Refusal::LineSize);
            shared
                .site
                .limited
                .count(&work.sender.name, Refusal::LineSize);
            shared
                .site
                .app
                .intake
                .count_refused(&work.sender, Reason::TooLarge);
            let text = format!("the line is longer than {bytes_max} bytes");
            let text = self.dialect.complaint(&text);
            let written = write_all(&mut self.stream, text.as_bytes());
            if timeout(shared.settings.write_time, written).await.is_err() {
                return Some(End::Slow);
            }
        }
        None
    }
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S, chunk: &mut [u8]) -> io::Result<usize> {
    let mut buffer = ReadBuf::new(chunk);
    poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buffer)).await?;
    Ok(buffer.filled().len())
}

async fn write_all<S: AsyncWrite + Unpin>(stream: &mut S, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, bytes)).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
    }
    // TLS holds back what it was given until it is told.
    poll_fn(|cx| Pin::new(&mut *stream).poll_flush(cx)).await
}
