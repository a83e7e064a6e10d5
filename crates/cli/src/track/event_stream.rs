//! Reads the agent's stream of changes: server-sent events, each with a JSON array of values.

use std::io::{BufRead, BufReader, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;

use crate::agent_client::{AgentClient, response_error};
use crate::api_values::{SeriesValue, parse_values};

/// The longest accepted event.
const EVENT_BYTES_MAX: u64 = 512 << 20;

pub struct AgentEventStream {
    body: BufReader<UnixStream>,
    stopped: Arc<AtomicBool>,
    line: Vec<u8>,
}

impl AgentEventStream {
    /// Opens a stream without timeout. From now on SIGINT and SIGTERM end the stream instead of the process.
    pub fn open_until_signal(
        client: &AgentClient,
        query: &[(&str, &str)],
    ) -> anyhow::Result<AgentEventStream> {
        // No read timeout: values may stay unchanged for hours.
        let stream = AgentEventStream::connect(client, query, None)?;
        let socket = stream.body.get_ref().try_clone();
        let socket = socket.context("cannot install the signal handler")?;
        let flag = stream.stopped.clone();
        pegel_agent::on_stop_signal(move || {
            flag.store(true, Ordering::Release);
            // Makes the reader return end of file. Fails if the connection is closed already.
            let _ = socket.shutdown(Shutdown::Both);
        })
        .context("cannot install the signal handler")?;
        Ok(stream)
    }

    /// Opens a stream that ends after `timeout` without data. An agent sends at least every ten seconds.
    pub fn connect(
        client: &AgentClient,
        query: &[(&str, &str)],
        timeout: Option<Duration>,
    ) -> anyhow::Result<AgentEventStream> {
        let mut answer = client.request("/api/v1/stream", query)?;
        if answer.status != 200 {
            let mut text = String::new();
            answer
                .body
                .read_to_string(&mut text)
                .context("truncated response from the agent")?;
            return Err(response_error(answer.status, &text));
        }
        answer
            .body
            .get_ref()
            .set_read_timeout(timeout)
            .context("cannot set the read timeout")?;
        Ok(AgentEventStream {
            body: answer.body,
            stopped: Arc::new(AtomicBool::new(false)),
            line: Vec::new(),
        })
    }

    /// Reads the changes of one step; `None` at the end of the stream.
    pub fn next_step(&mut self) -> anyhow::Result<Option<Vec<SeriesValue>>> {
        loop {
            self.line.clear();
            let read = (&mut self.body)
                .take(EVENT_BYTES_MAX)
                .read_until(b'\n', &mut self.line);
            // A broken connection or a truncated event ends the stream.
            let Ok(read) = read else { return Ok(None) };
            if read == 0 || self.line.last() != Some(&b'\n') {
                return Ok(None);
            }
            if let Some(data) = self.line.strip_prefix(b"data:") {
                let json = serde_json::from_slice(data).context("malformed event: not JSON")?;
                return parse_values(&json).map(Some);
            }
        }
    }

    /// Returns whether a signal ended the stream.
    pub fn was_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}
