//! Reads the agent's stream of changes: server-sent events, each with a JSON array of values.

use std::io::{BufRead, BufReader, Read};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use pegel_http_client::{HttpBody, HttpResponse};

use crate::agent_client::{AgentClient, response_error};
use crate::api_values::{SeriesValue, parse_values};

const PATH: &str = "/api/v1/stream";
/// The longest accepted event.
const EVENT_BYTES_MAX: u64 = 512 << 20;

pub(crate) struct AgentEventStream {
    body: BufReader<HttpBody>,
    stopped: Arc<AtomicBool>,
    line: Vec<u8>,
}

impl AgentEventStream {
    /// Opens a stream without timeout. From now on SIGINT and SIGTERM end the stream instead of the
    /// process.
    pub(crate) fn open_until_signal(
        client: &AgentClient,
        query: &[(&str, &str)],
    ) -> anyhow::Result<AgentEventStream> {
        let connection = client.connect()?;
        let socket = connection.try_clone();
        let socket = socket.context("cannot install the signal handler")?;
        // No read timeout: values may stay unchanged for hours.
        let response = client.request_over(connection, PATH, query)?;
        let stream = AgentEventStream::new(response, None)?;
        let flag = stream.stopped.clone();
        pegel_agent::on_stop_signal(move || {
            flag.store(true, Ordering::Release);
            // Makes the reader return end of file. Fails if the connection is closed already.
            let _ = socket.shutdown(Shutdown::Both);
        })
        .context("cannot install the signal handler")?;
        Ok(stream)
    }

    /// Opens a stream that ends after `timeout` without data. An agent sends at least every ten
    /// seconds.
    pub(crate) fn connect(
        client: &AgentClient,
        query: &[(&str, &str)],
        timeout: Duration,
    ) -> anyhow::Result<AgentEventStream> {
        AgentEventStream::new(client.request(PATH, query)?, Some(timeout))
    }

    fn new(
        mut response: HttpResponse,
        timeout: Option<Duration>,
    ) -> anyhow::Result<AgentEventStream> {
        if response.status != 200 {
            let mut text = String::new();
            response
                .body
                .read_to_string(&mut text)
                .context("truncated response from the agent")?;
            return Err(response_error(response.status, &text));
        }
        response.body.limit.timeout = timeout;
        Ok(AgentEventStream {
            body: BufReader::new(response.body),
            stopped: Arc::new(AtomicBool::new(false)),
            line: Vec::new(),
        })
    }

    /// Reads the changes of one step; `None` at the end of the stream.
    pub(crate) fn next_step(&mut self) -> anyhow::Result<Option<Vec<SeriesValue>>> {
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
    pub(crate) fn was_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}
