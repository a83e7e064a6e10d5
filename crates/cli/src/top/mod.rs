//! The node in a terminal, live.

mod agent_feed;
mod app;
mod input;
mod model;
mod screen;
mod terminal;
mod units;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use ratatui::crossterm::event::{self, KeyEvent};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use crate::agent_client::AgentClient;
use crate::agent_query;
use crate::command_error::CommandError;
use crate::track::parse_frequency;
use agent_feed::{AgentFeed, FeedRequest, FeedUpdate};
use app::{AppEffect, ConnectionState, KeyAction, TopApp};
use model::AgentSummary;
use screen::theme::TerminalTheme;
use terminal::TerminalScreen;

/// Show what the node and its programs do, live in the terminal
///
/// Keys: q quits, ? shows all others.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// The agent's socket [default: $PEGEL_SOCKET, yours, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// List only series that fit: `flux.*`, `*{mode="idle"}`
    #[arg(long = "match", value_name = "GLOB")]
    pattern: Option<String>,
    /// The node to show, by its name
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// How often to look, in times per second, up to 1000
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value = "2")]
    hz: String,
}

/// Whatever can happen.
#[derive(Debug)]
pub enum TopEvent {
    Feed(FeedUpdate),
    Key(KeyEvent),
    Resized,
    Signal(i32),
    /// No more keys will come.
    TerminalGone,
}

pub fn run(args: &TopArgs) -> anyhow::Result<()> {
    let hz = parse_frequency(&args.hz)?;
    let pattern = match &args.pattern {
        Some(pattern) => Some((pattern.clone(), agent_query::parse_selector(pattern)?)),
        None => None,
    };
    if !std::io::stdout().is_terminal() {
        return Err(CommandError::usage(
            "standard output is not a terminal\nhint: `pegel values` shows everything once, `pegel track` writes what changes",
        ));
    }
    let client = AgentClient::find(args.socket.as_deref(), &[])?;
    check_node(&client, args.node.as_deref())?;
    let look = TerminalTheme::detect(|name| std::env::var(name).ok());
    let app = TopApp::new(look, hz, pattern);
    let (events, happened) = sync_channel(256);
    let query = query(args.pattern.as_deref(), hz);
    // Signals are caught before the terminal is taken: none may leave it in our state.
    watch_signals(events.clone())?;
    let screen = TerminalScreen::enter()?;
    watch_keys(events.clone())?;
    let feed = AgentFeed::start(client, query, events)?;
    event_loop(app, screen, &feed, &happened)
}

fn check_node(client: &AgentClient, wanted: Option<&str>) -> anyhow::Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let known = AgentSummary::from_status(&client.get("/status", &[])?).node;
    if known == wanted {
        return Ok(());
    }
    Err(CommandError::nothing_matched(format!(
        "this agent knows the node {known} only, not {wanted}"
    )))
}

/// What the list shows, and what the other views need.
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
    let mut signals = Signals::new(caught).context("cannot wait for signals")?;
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

/// Until somebody wants it to end.
fn event_loop(
    mut app: TopApp,
    mut screen: TerminalScreen,
    feed: &AgentFeed,
    happened: &Receiver<TopEvent>,
) -> anyhow::Result<()> {
    loop {
        draw(&mut app, &mut screen, feed)?;
        // Whatever else has happened meanwhile is drawn together with it.
        let first = match happened.recv_timeout(Duration::from_secs(60)) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        for event in std::iter::once(first).chain(happened.try_iter().take(64)) {
            match handle_event(&mut app, event, feed, screen.height()) {
                AppEffect::Continue => {}
                AppEffect::Quit => return Ok(()),
                AppEffect::Suspend => screen.suspend()?,
                AppEffect::Redraw => screen.resume()?,
                AppEffect::Resume => {
                    app.model.invalidate_rates();
                    feed.try_request(FeedRequest::Values);
                }
            }
        }
    }
}

fn draw(app: &mut TopApp, screen: &mut TerminalScreen, feed: &AgentFeed) -> anyhow::Result<()> {
    let seen = app.update_layout(screen.height());
    let unknown = app.model.start_histories(&seen);
    if !unknown.is_empty() {
        feed.try_request(FeedRequest::History(unknown));
    }
    screen.draw(|buffer| screen::draw(buffer, app))
}

fn handle_event(app: &mut TopApp, event: TopEvent, feed: &AgentFeed, height: u16) -> AppEffect {
    match event {
        TopEvent::Key(key) => match input::action(key, app.is_typing) {
            // The other processes of this job are to stop too, as if the terminal had done it.
            Some(KeyAction::Suspend) => {
                let sent =
                    rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
                sent.map_or(AppEffect::Suspend, |()| AppEffect::Continue)
            }
            Some(action) => app.handle_action(action, height),
            None => AppEffect::Continue,
        },
        TopEvent::Feed(news) => {
            apply_update(app, news, feed);
            AppEffect::Continue
        }
        TopEvent::Resized => AppEffect::Continue,
        TopEvent::Signal(SIGTSTP) => AppEffect::Suspend,
        TopEvent::Signal(SIGCONT) => AppEffect::Redraw,
        TopEvent::Signal(_) | TopEvent::TerminalGone => AppEffect::Quit,
    }
}

fn apply_update(app: &mut TopApp, news: FeedUpdate, feed: &AgentFeed) {
    match news {
        FeedUpdate::Connected(agent, list) => {
            app.connection = ConnectionState::Live;
            app.model.agent = agent;
            app.model.set_series_list(list);
            app.model.invalidate_rates();
        }
        FeedUpdate::Lost(since, why) => app.connection = ConnectionState::Lost(since, why),
        FeedUpdate::Status(agent) => app.model.agent = agent,
        FeedUpdate::Listed(list) => app.model.set_series_list(list),
        FeedUpdate::History(past) => {
            for (text, samples) in past {
                app.model.add_history(&text, &samples);
            }
        }
        // What comes while paused is fetched again afterwards.
        FeedUpdate::Step(_) if app.is_paused => {}
        FeedUpdate::Step(readings) => {
            if app.model.apply_step(&readings) {
                feed.try_request(FeedRequest::List);
            }
        }
    }
}
