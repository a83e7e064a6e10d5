//! `pegel top`: live view of the node in a terminal. The main thread draws; one thread each reads
//! keys, signals and the agent's stream, and one sends requests. All of them report as
//! [`TopEvent`]s through one bounded channel.

mod agent_feed;
mod app;
mod input;
mod list;
mod model;
mod screen;
mod terminal;
mod units;
mod view;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use ratatui::crossterm::event::{self, KeyEvent};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use crate::agent_client::AgentClient;
use crate::command_error::CommandError;
use crate::node_access::{self, NodeArgs};
use crate::series_query;
use crate::track::parse_frequency;
use agent_feed::{AgentFeed, FeedRequest, FeedUpdate};
use app::{AppEffect, ConnectionState, KeyAction, TopApp};
pub(crate) use screen::theme::TerminalTheme;
use terminal::TerminalScreen;

/// Show a live view of the node and its programs
///
/// Views: 1 node, 2 processes, 3 GPUs, 4 disks, 5 network, 6 pressure, 7 programs, 8 metrics; on an
/// agent with nodes below it also 9 nodes, where enter shows the selected node.
///
/// Keys: q quits, ? shows all keys, tab selects the next view, / filters, s sorts, b groups
/// processes by user, cgroup or job, enter shows details, space pauses.
#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// List only series that contain TEXT, or match a glob or matchers: `cpu`, `flux.*`,
    /// `{mode="idle"}`
    #[arg(long = "match", value_name = "TEXT")]
    pattern: Option<String>,
    #[command(flatten)]
    node: NodeArgs,
    /// Refresh frequency in Hz, up to 1000
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value = "2")]
    hz: String,
}

/// An input of the event loop.
#[derive(Debug)]
pub(crate) enum TopEvent {
    /// An update, and whether its feed is still the current one.
    Feed(FeedUpdate, Arc<AtomicBool>),
    Key(KeyEvent),
    Resized,
    Signal(i32),
    /// The terminal is closed; no more keys will arrive.
    TerminalGone,
}

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    let hz = parse_frequency(&args.hz)?;
    let pattern = match &args.pattern {
        Some(pattern) => Some((pattern.clone(), series_query::pattern_selector(pattern)?)),
        None => None,
    };
    if !std::io::stdout().is_terminal() {
        return Err(CommandError::usage(
            "standard output is not a terminal\nhint: use `pegel values` for the current values, `pegel track` for changes",
        ));
    }
    let client = AgentClient::find(args.socket.as_deref(), &[])?;
    let listing = node_access::list_nodes(&client)?;
    let names = || listing.nodes.iter().map(|node| node.node.as_str());
    let node = args
        .node
        .node
        .clone()
        .unwrap_or_else(|| listing.own.clone());
    if args.node.node.is_some() && !names().any(|name| name == node) {
        return Err(node_access::unknown_node(&listing.own, &node, names()));
    }
    let theme = TerminalTheme::detect(|name| std::env::var(name).ok());
    let mut app = TopApp::new(theme, hz, pattern);
    app.set_nodes(listing);
    let (events, receiver) = sync_channel(256);
    let source = NodeSource {
        client,
        query: query(args.pattern.as_deref(), hz),
        events: events.clone(),
    };
    // Catch signals before entering raw mode: none may end the process without restoring the
    // terminal.
    watch_signals(events.clone())?;
    let screen = TerminalScreen::enter()?;
    watch_keys(events)?;
    let feed = source.feed(&app, &node)?;
    event_loop(app, screen, &source, feed, &receiver)
}

/// Starts feeds of nodes.
struct NodeSource {
    client: AgentClient,
    query: Vec<(&'static str, String)>,
    events: SyncSender<TopEvent>,
}

impl NodeSource {
    /// Starts a feed of a node: of the agent itself, or of a node below it. The streams of a parent
    /// contain the series of all nodes, so that even its own are read as those of one node.
    fn feed(&self, app: &TopApp, node: &str) -> anyhow::Result<AgentFeed> {
        let client = match app.nodes.nodes.is_empty() {
            true => self.client.of_agent(),
            false => self.client.of_agent().through_node(node),
        };
        AgentFeed::start(client, self.query.clone(), self.events.clone())
    }
}

/// Builds the stream's query: the series of the list, and those of the other views.
fn query(pattern: Option<&str>, hz: f64) -> Vec<(&'static str, String)> {
    let mut query = vec![("rate", hz.to_string())];
    if let Some(pattern) = pattern {
        let others = ["node_*", "pegel_*", "cpu_percent", "used_RAM"];
        query.push(("match", pattern.to_owned()));
        query.extend(others.map(|other| ("match", other.to_owned())));
    }
    query
}

fn watch_signals(events: SyncSender<TopEvent>) -> anyhow::Result<()> {
    let caught = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT];
    let mut signals = Signals::new(caught).context("cannot install the signal handlers")?;
    agent_feed::spawn("signals", move || {
        for signal in signals.forever() {
            if events.send(TopEvent::Signal(signal)).is_err() {
                return;
            }
        }
    })
}

fn watch_keys(events: SyncSender<TopEvent>) -> anyhow::Result<()> {
    agent_feed::spawn("keys", move || {
        loop {
            let event = match event::read() {
                Ok(event::Event::Key(key)) => TopEvent::Key(key),
                Ok(event::Event::Resize(..)) => TopEvent::Resized,
                Ok(_) => continue,
                Err(_) => TopEvent::TerminalGone,
            };
            let is_last = matches!(event, TopEvent::TerminalGone);
            if events.send(event).is_err() || is_last {
                return;
            }
        }
    })
}

/// Draws and handles events until the user quits, a signal arrives or the terminal closes.
fn event_loop(
    mut app: TopApp,
    mut screen: TerminalScreen,
    source: &NodeSource,
    mut feed: AgentFeed,
    events: &Receiver<TopEvent>,
) -> anyhow::Result<()> {
    loop {
        draw(&mut app, &mut screen, &feed)?;
        // Handle all pending events before drawing again.
        let first = match events.recv_timeout(Duration::from_secs(60)) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        for event in std::iter::once(first).chain(events.try_iter().take(64)) {
            match handle_event(&mut app, event, &feed, screen.height()) {
                AppEffect::Continue => {}
                AppEffect::Quit => return Ok(()),
                AppEffect::Suspend => screen.suspend()?,
                AppEffect::Redraw => screen.resume()?,
                AppEffect::Resume => {
                    app.model.invalidate_rates();
                    feed.try_request(FeedRequest::Values);
                }
                AppEffect::SwitchNode => {
                    if let Some(node) = app.selected_node() {
                        feed = source.feed(&app, &node)?;
                        app.reset_node();
                    }
                }
            }
        }
    }
}

fn draw(app: &mut TopApp, screen: &mut TerminalScreen, feed: &AgentFeed) -> anyhow::Result<()> {
    let visible = app.update_layout(screen.height());
    let missing = app.model.start_histories(&visible);
    if !missing.is_empty() {
        feed.try_request(FeedRequest::History(missing));
    }
    if app.is_node_request_due() {
        feed.try_request(FeedRequest::Nodes);
    }
    if let Some(query) = app.due_process_query() {
        feed.try_request(FeedRequest::Processes(query));
    }
    screen.draw(|buffer| screen::draw(buffer, app))
}

fn handle_event(app: &mut TopApp, event: TopEvent, feed: &AgentFeed, height: u16) -> AppEffect {
    match event {
        TopEvent::Key(key) => match input::action(key, app.is_typing) {
            // Stop the whole process group, as the terminal does for Ctrl-Z.
            Some(KeyAction::Suspend) => {
                let sent =
                    rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
                sent.map_or(AppEffect::Suspend, |()| AppEffect::Continue)
            }
            Some(action) => app.handle_action(action, height),
            None => AppEffect::Continue,
        },
        TopEvent::Feed(update, is_current) => {
            // Events of the node that was shown before may still be in the channel.
            if is_current.load(Ordering::Acquire) {
                apply_update(app, update, feed);
            }
            AppEffect::Continue
        }
        TopEvent::Resized => AppEffect::Continue,
        TopEvent::Signal(SIGTSTP) => AppEffect::Suspend,
        TopEvent::Signal(SIGCONT) => AppEffect::Redraw,
        TopEvent::Signal(_) | TopEvent::TerminalGone => AppEffect::Quit,
    }
}

fn apply_update(app: &mut TopApp, update: FeedUpdate, feed: &AgentFeed) {
    match update {
        FeedUpdate::Connected(agent, list) => {
            app.connection = ConnectionState::Live;
            app.model.agent = agent;
            app.model.set_series_list(list);
            app.model.invalidate_rates();
        }
        FeedUpdate::Lost(since, reason) => app.connection = ConnectionState::Lost(since, reason),
        FeedUpdate::Status(agent) => app.model.agent = agent,
        FeedUpdate::Listed(list) => app.model.set_series_list(list),
        FeedUpdate::History(histories) => {
            for (text, samples) in histories {
                app.model.add_history(&text, &samples);
            }
        }
        FeedUpdate::Nodes(_) if app.is_paused => {}
        FeedUpdate::Nodes(listing) => app.set_nodes(listing),
        FeedUpdate::Processes(_) if app.is_paused => {}
        FeedUpdate::Processes(answer) => app.set_processes(answer),
        // Skipped while paused: resuming fetches all values.
        FeedUpdate::Step(_) if app.is_paused => {}
        FeedUpdate::Step(readings) => {
            if app.model.apply_step(&readings) {
                feed.try_request(FeedRequest::List);
            }
        }
    }
}
