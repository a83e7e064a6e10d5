//! Connects `pegel top` to a node with two threads: one reads the stream of changes and reconnects
//! when it ends, the other sends requests. Both report as events and end with the process, or when
//! another node is shown.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde_json::Value;

use super::TopEvent;
use super::model::{AgentSummary, HISTORY_SECONDS, ProcessList, ProcessQuery};
use crate::agent_client::AgentClient;
use crate::agent_query;
use crate::api_values::{SeriesInfo, SeriesValue, parse_series_list};
use crate::listed_node::NodeListing;
use crate::node_access;
use crate::track::event_stream::AgentEventStream;

/// The stream counts as lost after this time without data. An agent sends at least every ten
/// seconds.
const STREAM_TIMEOUT: Duration = Duration::from_secs(25);
const RETRY: Duration = Duration::from_millis(500);
/// Interval between requests for the list of series and the agent's status.
const REFRESH: Duration = Duration::from_secs(10);
/// Minimum interval between lists when new series appear.
const LIST_REFRESH_MIN: Duration = Duration::from_secs(1);
/// Number of series in one history request.
const HISTORY_SERIES_MAX: usize = 32;

/// More than the longest list of processes with their command lines.
const PROCESSES_BYTES_MAX: u64 = 16 << 20;

/// A series and its samples, each a time in seconds and a value.
type SeriesSamples = (String, Vec<(f64, f64)>);

#[derive(Debug)]
pub(crate) enum FeedUpdate {
    /// The stream is open; with the agent's status and series.
    Connected(AgentSummary, Vec<SeriesInfo>),
    Status(AgentSummary),
    Listed(Vec<SeriesInfo>),
    Step(Vec<SeriesValue>),
    History(Vec<SeriesSamples>),
    /// The agent and the nodes below it.
    Nodes(NodeListing),
    /// The processes, or the reason why there is no list.
    Processes(Result<ProcessList, String>),
    /// Time of the loss in seconds since 1970, and the reason.
    Lost(f64, String),
}

#[derive(Debug)]
pub(super) enum FeedRequest {
    /// The last minutes of these series.
    History(Vec<String>),
    /// The list of series: one appeared that is not in it.
    List,
    /// All current values.
    Values,
    Nodes,
    Processes(ProcessQuery),
}

/// Sends requests to the agent. Responses arrive as events.
#[derive(Debug)]
pub(super) struct AgentFeed {
    requests: SyncSender<FeedRequest>,
    /// Marks the events of this feed; cleared when it is dropped.
    is_current: Arc<AtomicBool>,
}

/// Sends the updates of one feed to the event loop.
#[derive(Debug, Clone)]
struct UpdateSender {
    events: SyncSender<TopEvent>,
    is_current: Arc<AtomicBool>,
}

impl UpdateSender {
    /// Returns false if the thread must end.
    fn send(&self, update: FeedUpdate) -> bool {
        let event = TopEvent::Feed(update, self.is_current.clone());
        self.is_current.load(Ordering::Acquire) && self.events.send(event).is_ok()
    }
}

impl AgentFeed {
    /// Starts the threads. They end with the process, or after the feed is dropped.
    pub(super) fn start(
        client: AgentClient,
        query: Vec<(&'static str, String)>,
        events: SyncSender<TopEvent>,
    ) -> anyhow::Result<AgentFeed> {
        let client = Arc::new(client);
        let (requests, receiver) = sync_channel(16);
        let is_current = Arc::new(AtomicBool::new(true));
        let updates = UpdateSender {
            events,
            is_current: is_current.clone(),
        };
        let (request_client, responses) = (client.clone(), updates.clone());
        spawn("stream", move || follow_stream(&client, &query, &updates))?;
        spawn("requests", move || {
            serve_requests(&request_client, &receiver, &responses);
        })?;
        Ok(AgentFeed {
            requests,
            is_current,
        })
    }

    /// Queues a request without waiting. Drops it if the queue is full.
    pub(crate) fn try_request(&self, request: FeedRequest) {
        let _ = self.requests.try_send(request);
    }
}

impl Drop for AgentFeed {
    fn drop(&mut self) {
        self.is_current.store(false, Ordering::Release);
    }
}

pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
        .context("cannot start a thread")
}

/// Reads the stream and reopens it when it ends. Returns when the event loop has ended.
fn follow_stream(client: &AgentClient, query: &[(&'static str, String)], updates: &UpdateSender) {
    let query: Vec<(&str, &str)> = query
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let send = |update| updates.send(update);
    let mut lost_since = None;
    loop {
        let error = match open(client, &query) {
            Ok((agent, list, mut stream)) => {
                lost_since = None;
                if !send(FeedUpdate::Connected(agent, list)) {
                    return;
                }
                loop {
                    match stream.next_step() {
                        Ok(Some(step)) => {
                            if !send(FeedUpdate::Step(step)) {
                                return;
                            }
                        }
                        Ok(None) => break String::new(),
                        Err(error) => break format!("{error:#}"),
                    }
                }
            }
            Err(error) => format!("{error:#}"),
        };
        // Only the first line; the hint on how to start an agent does not fit the header.
        let reason = error.lines().next().unwrap_or_default().to_owned();
        let since = *lost_since.get_or_insert_with(wall_clock);
        if !send(FeedUpdate::Lost(since, reason)) {
            return;
        }
        thread::sleep(RETRY);
    }
}

fn open(
    client: &AgentClient,
    query: &[(&str, &str)],
) -> anyhow::Result<(AgentSummary, Vec<SeriesInfo>, AgentEventStream)> {
    let agent = AgentSummary::from_status(&client.get("/status", &[])?);
    let list = agent_query::fetch_series_list(client)?;
    let stream = AgentEventStream::connect(client, query, STREAM_TIMEOUT)?;
    Ok((agent, list, stream))
}

fn wall_clock() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

/// Serves requests, and refreshes list and status periodically. Errors are ignored: the stream's
/// thread reports a lost agent.
fn serve_requests(client: &AgentClient, requests: &Receiver<FeedRequest>, updates: &UpdateSender) {
    let send = |update| updates.send(update);
    let agent = client.of_agent();
    let mut refresh = Instant::now() + REFRESH;
    let mut list_from = Instant::now();
    loop {
        let wait = refresh.saturating_duration_since(Instant::now());
        let update = match requests.recv_timeout(wait) {
            Ok(FeedRequest::History(texts)) => {
                fetch_history(client, &texts).ok().map(FeedUpdate::History)
            }
            Ok(FeedRequest::Values) => agent_query::fetch_values(client, &[])
                .ok()
                .map(FeedUpdate::Step),
            Ok(FeedRequest::Nodes) => node_access::list_nodes(&agent).ok().map(FeedUpdate::Nodes),
            Ok(FeedRequest::Processes(query)) => {
                fetch_processes(client, query).map(FeedUpdate::Processes)
            }
            Ok(FeedRequest::List) => {
                refresh = refresh.min(list_from.max(Instant::now()));
                None
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let started = Instant::now();
                let list = try_fetch_series_list(client);
                let status = client.get("/status", &[]).ok();
                let status =
                    status.map(|status| FeedUpdate::Status(AgentSummary::from_status(&status)));
                let nodes = node_access::list_nodes(&agent).ok().map(FeedUpdate::Nodes);
                if !status.into_iter().chain(nodes).all(send) {
                    return;
                }
                // Refresh long lists less often.
                let took = started.elapsed();
                refresh = Instant::now() + REFRESH.max(took * 100);
                list_from = Instant::now() + LIST_REFRESH_MIN.max(took * 20);
                list.map(FeedUpdate::Listed)
            }
        };
        if update.is_some_and(|update| !send(update)) {
            return;
        }
    }
}

fn try_fetch_series_list(client: &AgentClient) -> Option<Vec<SeriesInfo>> {
    parse_series_list(&client.get("/api/v1/list", &[]).ok()?).ok()
}

/// Fetches the processes, or the agent's reason why there are none. `None` without an answer: the
/// last list stays, and the stream's thread reports a lost agent.
fn fetch_processes(
    client: &AgentClient,
    query: ProcessQuery,
) -> Option<Result<ProcessList, String>> {
    let limit = query.limit.to_string();
    let parameters = [
        ("by", query.grouping.label()),
        ("sort", query.sort.parameter()),
        ("limit", &limit),
    ];
    let answer = client.request("/api/v1/processes", &parameters).ok()?;
    let status = answer.status;
    let mut text = String::new();
    let mut body = answer.body.take(PROCESSES_BYTES_MAX);
    body.read_to_string(&mut text).ok()?;
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    let list = ProcessList::parse(&json).filter(|_| status == 200);
    Some(list.ok_or_else(|| unavailable_reason(status, &json)))
}

fn unavailable_reason(status: u16, json: &Value) -> String {
    let part = |key: &str| json["error"][key].as_str();
    match (part("message"), part("hint")) {
        (Some(message), Some(hint)) => format!("No processes: {message}; {hint}"),
        (Some(message), None) => format!("No processes: {message}"),
        _ => format!("No processes: unexpected response {status} from the agent"),
    }
}

/// Fetches the last minutes of some series, one value per second.
fn fetch_history(client: &AgentClient, texts: &[String]) -> anyhow::Result<Vec<SeriesSamples>> {
    let start = format!("-{HISTORY_SECONDS}s");
    let mut all = Vec::new();
    for texts in texts.chunks(HISTORY_SERIES_MAX) {
        let mut query = vec![("start", start.as_str()), ("step", "1s")];
        query.extend(texts.iter().map(|text| ("match", text.as_str())));
        let answer = client.get("/api/v1/range", &query)?;
        let tracks = answer
            .as_array()
            .context("malformed response: the history is not an array")?;
        all.extend(tracks.iter().filter_map(parse_history));
    }
    Ok(all)
}

fn parse_history(track: &Value) -> Option<SeriesSamples> {
    let labels: Vec<(&str, &str)> = track["labels"]
        .as_object()?
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    let text = agent_query::series_text(track["name"].as_str()?, &labels)?;
    let points = track["points"].as_array()?;
    let samples = points
        .iter()
        .filter_map(|point| Some((point[0].as_f64()? / 1000.0, point[1].as_f64()?)));
    Some((text, samples.collect()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn histories_name_their_series_as_the_stream_does() {
        let track = json!({
            "name": "m", "labels": {"b": "x\"y", "a": "1"},
            "points": [[1500, 2.0], [2500, null], [3500, 4]],
        });
        let (text, samples) = parse_history(&track).expect("valid");
        assert_eq!(text, r#"m{a="1",b="x\"y"}"#);
        assert_eq!(samples, [(1.5, 2.0), (3.5, 4.0)]);
        assert_eq!(parse_history(&json!({"name": 1})), None);
    }

    #[test]
    fn a_missing_list_of_processes_has_a_reason() {
        let error = json!({"error": {"code": 404, "message": "it is off", "hint": "turn it on"}});
        assert_eq!(
            unavailable_reason(404, &error),
            "No processes: it is off; turn it on"
        );
        assert_eq!(
            unavailable_reason(502, &json!(null)),
            "No processes: unexpected response 502 from the agent"
        );
    }
}
