//! Reads windows of time from an agent.

use std::io::Read;
use std::ops::Range;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use pegel_archive::{ArchiveExportError, ExportSource, ExportedWindow};
use pegel_http_client::HttpResponse;
use pegel_metric::Millis;
use pegel_sample_file::{SampleDigest, SampleFileFormat};
use serde_json::Value;

use crate::agent_client::{AgentClient, response_error};

const PATH: &str = "/api/v1/export";
/// The number of samples in a file.
const SAMPLES_HEADER: &str = "pegel-samples";
/// The largest response that is read; the limits of an agent are lower.
const BYTES_MAX: u64 = 256 << 20;
/// The pauses before a busy agent is asked again.
const BUSY_PAUSES: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// How far the times of a node may lie ahead of this machine's clock: ten years.
const AHEAD_MS: Millis = 3_650 * 86_400_000;

/// The samples of an agent.
#[derive(Debug)]
pub(super) struct AgentSource {
    client: AgentClient,
    patterns: Vec<String>,
    format: SampleFileFormat,
    node: String,
    range: Option<Range<Millis>>,
}

impl AgentSource {
    /// Reads the times of the agent's samples. `listed` is the name by which its parent knows the
    /// agent: what a node below a parent answers does not decide whose folder gets its samples.
    pub(super) fn new(
        client: AgentClient,
        listed: Option<&str>,
        patterns: &[String],
        format: SampleFileFormat,
    ) -> anyhow::Result<AgentSource> {
        let status = client.get("/status", &[])?;
        let named = listed.or(status["node"].as_str());
        Ok(AgentSource {
            client,
            patterns: patterns.to_vec(),
            format,
            node: named.unwrap_or("unknown").to_owned(),
            range: stored_range(&status, Timestamp::now().as_millisecond()),
        })
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    pub(super) fn range(&self) -> Option<Range<Millis>> {
        self.range.clone()
    }

    /// Returns a file and the number of its samples; `None` if the window is too large. An agent
    /// whose memory for responses is in use is asked again.
    fn request(&self, window: &Range<Millis>) -> anyhow::Result<Option<(Vec<u8>, u64)>> {
        for pause in BUSY_PAUSES {
            let response = self.send(window)?;
            if response.status != 503 {
                return read_file(response);
            }
            std::thread::sleep(pause);
        }
        read_file(self.send(window)?)
    }

    fn send(&self, window: &Range<Millis>) -> anyhow::Result<HttpResponse> {
        let (start, end) = (millis_text(window.start), millis_text(window.end - 1));
        let mut query = vec![
            ("start", start.as_str()),
            ("end", end.as_str()),
            ("format", self.format.as_str()),
        ];
        query.extend(
            self.patterns
                .iter()
                .map(|pattern| ("match", pattern.as_str())),
        );
        self.client.request(PATH, &query)
    }
}

/// Reads a file and the number of its samples; `None` if the window is too large.
fn read_file(response: HttpResponse) -> anyhow::Result<Option<(Vec<u8>, u64)>> {
    let status = response.status;
    let samples = response.header(SAMPLES_HEADER);
    let samples = samples.and_then(|count| count.parse().ok());
    let mut bytes = Vec::new();
    response.body.take(BYTES_MAX).read_to_end(&mut bytes)?;
    match status {
        200 => {
            let samples = samples.context("malformed response of the agent")?;
            Ok(Some((bytes, samples)))
        }
        // Too many samples, or too much time.
        413 | 504 => Ok(None),
        404 => anyhow::bail!("the agent does not serve {PATH}; update the agent"),
        _ => Err(response_error(status, &String::from_utf8_lossy(&bytes))),
    }
}

/// Returns the times of the samples, from the status of an agent. They are limited: the number of
/// requests depends on them.
fn stored_range(status: &Value, now: Millis) -> Option<Range<Millis>> {
    let time = |key: &str| status["store"][key].as_i64();
    let limit = now.saturating_add(AHEAD_MS);
    let (oldest, newest) = (time("oldest")?.max(0), time("newest")?.min(limit));
    // Samples that arrive while the export runs are not part of it.
    (oldest <= newest).then(|| oldest..newest + 1)
}

/// Returns a time as a parameter. The agent reads numbers below 100,000,000,000 as seconds, so
/// smaller times are written as seconds.
fn millis_text(time: Millis) -> String {
    match time >= 100_000_000_000 {
        true => time.to_string(),
        false => format!("{}.{:03}", time.max(0) / 1000, time.max(0) % 1000),
    }
}

impl ExportSource for AgentSource {
    fn export(&mut self, window: Range<Millis>) -> Result<ExportedWindow, ArchiveExportError> {
        let answer = self.request(&window);
        let answer =
            answer.map_err(|error| ArchiveExportError::Read(format!("{error:#}").into()))?;
        let Some((bytes, samples)) = answer else {
            return Ok(ExportedWindow::TooLarge);
        };
        Ok(match samples {
            0 => ExportedWindow::Empty,
            samples => ExportedWindow::File {
                digest: SampleDigest::of_file(&bytes),
                samples,
                bytes,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use pegel_testkit::TempDir;
    use serde_json::json;

    use super::*;

    fn response(status: u16, headers: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
    }

    /// Answers requests, one per connection, until the responses are used up.
    fn serve(listener: &UnixListener, responses: &[String]) {
        let mut responses = responses.iter();
        while responses.len() > 0 {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 4096];
            // A connection without a request only checks who listens.
            if matches!(stream.read(&mut request), Ok(1..)) {
                let response = responses.next().expect("one is left");
                stream.write_all(response.as_bytes()).expect("sent");
            }
        }
    }

    #[test]
    fn a_busy_agent_is_asked_again_and_a_node_keeps_the_name_of_its_parents_list() {
        let home = TempDir::new();
        let socket = home.join("push.sock");
        let listener = UnixListener::bind(&socket).expect("bound");
        let status = "{\"node\":\"another\",\"store\":{\"oldest\":5,\"newest\":9}}";
        let responses = [
            response(200, "", status),
            response(503, "", "{\"error\":\"busy\"}"),
            response(200, "Pegel-Samples: 3\r\n", "x"),
        ];
        let server = std::thread::spawn(move || serve(&listener, &responses));
        let client = AgentClient::find(Some(&socket), &[]).expect("found");
        let source = AgentSource::new(client, Some("listed"), &[], SampleFileFormat::Csv);
        let source = source.expect("a status");
        assert_eq!(source.node(), "listed");
        assert_eq!(source.range(), Some(5..10));
        let answer = source.request(&(5..10)).expect("an answer");
        assert_eq!(answer, Some((b"x".to_vec(), 3)));
        server.join().expect("served");
    }

    #[test]
    fn the_times_that_a_node_reports_are_limited() {
        const NOW: Millis = 1_794_960_000_000;
        let range = |oldest: Value, newest: Value| {
            let status = json!({"store": {"oldest": oldest, "newest": newest}});
            stored_range(&status, NOW)
        };
        assert_eq!(range(json!(5), json!(NOW)), Some(5..NOW + 1));
        assert_eq!(range(json!(null), json!(null)), None);
        assert_eq!(
            range(json!(i64::MIN), json!(i64::MAX)),
            Some(0..NOW + AHEAD_MS + 1)
        );
        assert_eq!(range(json!(i64::MAX), json!(i64::MAX)), None);
    }
}
