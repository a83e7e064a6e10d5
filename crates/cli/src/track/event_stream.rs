//! The agent's stream of changes: server-sent events, one JSON array each.

use std::io::{BufRead, BufReader, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;

use crate::agent_client::{AgentClient, response_error};
use crate::api_values::{SeriesValue, parse_values};

/// The longest event that is taken.
const EVENT_BYTES_MAX: u64 = 512 << 20;

pub struct AgentEventStream {
    body: BufReader<UnixStream>,
    stopped: Arc<AtomicBool>,
    line: Vec<u8>,
}

impl AgentEventStream {
    /// From now on SIGINT and SIGTERM end the stream instead of the process.
    pub fn open_until_signal(
        client: &AgentClient,
        query: &[(&str, &str)],
    ) -> anyhow::Result<AgentEventStream> {
        // A value may stay the same for hours.
        let stream = AgentEventStream::connect(client, query, None)?;
        let other_end = stream.body.get_ref().try_clone();
        let other_end = other_end.context("cannot wait for signals")?;
        let flag = stream.stopped.clone();
        pegel_agent::on_stop_signal(move || {
            flag.store(true, Ordering::Release);
            // The reader sees the end of the stream. It may have seen it already.
            let _ = other_end.shutdown(Shutdown::Both);
        })
        .context("cannot wait for signals")?;
        Ok(stream)
    }

    /// A stream that ends when nothing at all came for `silence`: an agent speaks every ten seconds.
    pub fn connect(
        client: &AgentClient,
        query: &[(&str, &str)],
        silence: Option<Duration>,
    ) -> anyhow::Result<AgentEventStream> {
        let mut answer = client.request("/api/v1/stream", query)?;
        if answer.status != 200 {
            let mut text = String::new();
            answer
                .body
                .read_to_string(&mut text)
                .context("the agent broke off its answer")?;
            return Err(response_error(answer.status, &text));
        }
        answer
            .body
            .get_ref()
            .set_read_timeout(silence)
            .context("cannot wait for the agent")?;
        Ok(AgentEventStream {
            body: answer.body,
            stopped: Arc::new(AtomicBool::new(false)),
            line: Vec::new(),
        })
    }

    /// The changes of one step; `None` at the end.
    pub fn next_step(&mut self) -> anyhow::Result<Option<Vec<SeriesValue>>> {
        loop {
            self.line.clear();
            let read = (&mut self.body)
                .take(EVENT_BYTES_MAX)
                .read_until(b'\n', &mut self.line);
            // A connection that breaks is an agent that is gone. An event without its end is none.
            let Ok(read) = read else { return Ok(None) };
            if read == 0 || self.line.last() != Some(&b'\n') {
                return Ok(None);
            }
            if let Some(data) = self.line.strip_prefix(b"data:") {
                let json =
                    serde_json::from_slice(data).context("the agent's stream is not JSON")?;
                return parse_values(&json).map(Some);
            }
        }
    }

    /// Whether a signal ended it.
    pub fn was_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}
