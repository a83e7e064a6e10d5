//! What the agent says, as it comes: two threads, one that reads its stream and one that asks.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde_json::Value;

use super::Event;
use super::model::{Agent, SECONDS};
use crate::answer::{Listed, Reading, listed};
use crate::ask;
use crate::client::Client;
use crate::track::stream::Stream;

/// An agent says something every ten seconds.
const SILENCE: Duration = Duration::from_secs(25);
const RETRY: Duration = Duration::from_millis(500);
/// How often the list of series and the agent's state are asked for.
const REFRESH: Duration = Duration::from_secs(10);
/// New series are asked about sooner, but not each by itself.
const LIST_AGAIN: Duration = Duration::from_secs(1);
/// Series in one question about the past.
const PAST_SERIES_MAX: usize = 32;

/// The text of a series, and its samples: seconds and values.
type Past = (String, Vec<(f64, f64)>);

#[derive(Debug)]
pub enum News {
    /// A new stream begins, and these series exist.
    Connected(Agent, Vec<Listed>),
    Status(Agent),
    Listed(Vec<Listed>),
    Step(Vec<Reading>),
    Past(Vec<Past>),
    /// Since when, and why.
    Gone(f64, String),
}

#[derive(Debug)]
pub enum Wish {
    /// The last minutes of these series.
    Past(Vec<String>),
    /// The list anew: there is a series that is not in it.
    List,
    /// All current values.
    Values,
}

/// Where wishes go. The agent's news come as events.
#[derive(Debug)]
pub struct Feed {
    wishes: SyncSender<Wish>,
}

impl Feed {
    /// Starts the threads. They end with the process.
    pub fn start(
        client: Client,
        query: Vec<(&'static str, String)>,
        events: SyncSender<Event>,
    ) -> anyhow::Result<Feed> {
        let client = Arc::new(client);
        let (wishes, wanted) = sync_channel(16);
        let (asker, news) = (client.clone(), events.clone());
        spawn("stream", move || follow(&client, &query, &events))?;
        spawn("questions", move || answer_wishes(&asker, &wanted, &news))?;
        Ok(Feed { wishes })
    }

    /// Returns whether it could be taken; there is no waiting.
    pub fn wish(&self, wish: Wish) -> bool {
        !matches!(
            self.wishes.try_send(wish),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_))
        )
    }
}

pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
        .context("cannot start a thread")
}

/// Reads the stream, and opens it again whenever it ends. Returns when nobody listens any more.
fn follow(client: &Client, query: &[(&'static str, String)], events: &SyncSender<Event>) {
    let query: Vec<(&str, &str)> = query
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let send = |news| events.send(Event::News(news)).is_ok();
    let mut gone_since = None;
    loop {
        let ended = match open(client, &query) {
            Ok((agent, list, mut stream)) => {
                gone_since = None;
                if !send(News::Connected(agent, list)) {
                    return;
                }
                loop {
                    match stream.next_step() {
                        Ok(Some(step)) => {
                            if !send(News::Step(step)) {
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
        // Only the first line: hints are for those who have not started an agent yet.
        let why = ended.lines().next().unwrap_or_default().to_owned();
        let since = *gone_since.get_or_insert_with(wall_clock);
        if !send(News::Gone(since, why)) {
            return;
        }
        thread::sleep(RETRY);
    }
}

fn open(client: &Client, query: &[(&str, &str)]) -> anyhow::Result<(Agent, Vec<Listed>, Stream)> {
    let agent = Agent::read(&client.get("/status", &[])?);
    let list = ask::all_listed(client)?;
    let stream = Stream::connect(client, query, Some(SILENCE))?;
    Ok((agent, list, stream))
}

fn wall_clock() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

/// Grants wishes, and asks for the list and the state from time to time. An agent that is gone is the
/// stream's business: what fails here is left out.
fn answer_wishes(client: &Client, wanted: &Receiver<Wish>, events: &SyncSender<Event>) {
    let send = |news| events.send(Event::News(news)).is_ok();
    let mut refresh = Instant::now() + REFRESH;
    let mut list_from = Instant::now();
    loop {
        let wait = refresh.saturating_duration_since(Instant::now());
        let news = match wanted.recv_timeout(wait) {
            Ok(Wish::Past(texts)) => past(client, &texts).ok().map(News::Past),
            Ok(Wish::Values) => ask::values(client, &[]).ok().map(News::Step),
            Ok(Wish::List) => {
                refresh = refresh.min(list_from.max(Instant::now()));
                None
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let started = Instant::now();
                let list = listed_or_none(client);
                let status = client.get("/status", &[]).ok();
                let status = status.map(|status| News::Status(Agent::read(&status)));
                if status.is_some_and(|status| !send(status)) {
                    return;
                }
                // Where there is much to list, it is asked for less often.
                let took = started.elapsed();
                refresh = Instant::now() + REFRESH.max(took * 100);
                list_from = Instant::now() + LIST_AGAIN.max(took * 20);
                list.map(News::Listed)
            }
        };
        if news.is_some_and(|news| !send(news)) {
            return;
        }
    }
}

fn listed_or_none(client: &Client) -> Option<Vec<Listed>> {
    listed(&client.get("/api/v1/list", &[]).ok()?).ok()
}

/// The last minutes of some series, one value per second.
fn past(client: &Client, texts: &[String]) -> anyhow::Result<Vec<Past>> {
    let start = format!("-{SECONDS}s");
    let mut all = Vec::new();
    for texts in texts.chunks(PAST_SERIES_MAX) {
        let mut query = vec![("start", start.as_str()), ("step", "1s")];
        query.extend(texts.iter().map(|text| ("match", text.as_str())));
        let answer = client.get("/api/v1/range", &query)?;
        let tracks = answer
            .as_array()
            .context("the agent's past is not a list")?;
        all.extend(tracks.iter().filter_map(remembered));
    }
    Ok(all)
}

fn remembered(track: &Value) -> Option<Past> {
    let labels: Vec<(&str, &str)> = track["labels"]
        .as_object()?
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    let text = ask::series_text(track["name"].as_str()?, &labels)?;
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
    fn the_past_names_its_series_as_the_stream_does() {
        let track = json!({
            "name": "m", "labels": {"b": "x\"y", "a": "1"},
            "points": [[1500, 2.0], [2500, null], [3500, 4]],
        });
        let (text, samples) = remembered(&track).expect("valid");
        assert_eq!(text, r#"m{a="1",b="x\"y"}"#);
        assert_eq!(samples, [(1.5, 2.0), (3.5, 4.0)]);
        assert_eq!(remembered(&json!({"name": 1})), None);
    }
}
