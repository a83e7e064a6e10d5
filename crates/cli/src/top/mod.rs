//! The node in a terminal, live.

mod app;
mod feed;
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

use crate::ask;
use crate::client::Client;
use crate::failure::Failure;
use crate::track::frequency;
use app::{Action, App, Connection, Outcome};
use feed::{Feed, News, Wish};
use model::Agent;
use screen::look::Look;
use terminal::Screen;

/// Show what the node and its programs do, live in the terminal
///
/// Keys: q quits, ? shows all others.
#[derive(Debug, clap::Args)]
pub struct Args {
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
pub enum Event {
    News(News),
    Key(KeyEvent),
    Resized,
    Signal(i32),
    /// No more keys will come.
    TerminalGone,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let hz = frequency(&args.hz)?;
    let pattern = match &args.pattern {
        Some(pattern) => Some((pattern.clone(), ask::selector(pattern)?)),
        None => None,
    };
    if !std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "standard output is not a terminal\nhint: `pegel values` shows everything once, `pegel track` writes what changes",
        ));
    }
    let client = Client::find(args.socket.as_deref(), &[])?;
    check_node(&client, args.node.as_deref())?;
    let look = Look::choose(|name| std::env::var(name).ok());
    let app = App::new(look, hz, pattern);
    let (events, happened) = sync_channel(256);
    let query = query(args.pattern.as_deref(), hz);
    // Signals are caught before the terminal is taken: none may leave it in our state.
    watch_signals(events.clone())?;
    let screen = Screen::take()?;
    watch_keys(events.clone())?;
    let feed = Feed::start(client, query, events)?;
    live(app, screen, &feed, &happened)
}

fn check_node(client: &Client, wanted: Option<&str>) -> anyhow::Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let known = Agent::read(&client.get("/status", &[])?).node;
    if known == wanted {
        return Ok(());
    }
    Err(Failure::nothing_matched(format!(
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

fn watch_signals(events: SyncSender<Event>) -> anyhow::Result<()> {
    let caught = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT];
    let mut signals = Signals::new(caught).context("cannot wait for signals")?;
    feed::spawn("signals", move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })
}

fn watch_keys(events: SyncSender<Event>) -> anyhow::Result<()> {
    feed::spawn("keys", move || {
        loop {
            let event = match event::read() {
                Ok(event::Event::Key(key)) => Event::Key(key),
                Ok(event::Event::Resize(..)) => Event::Resized,
                Ok(_) => continue,
                Err(_) => Event::TerminalGone,
            };
            let is_last = matches!(event, Event::TerminalGone);
            if events.send(event).is_err() || is_last {
                return;
            }
        }
    })
}

/// Until somebody wants it to end.
fn live(
    mut app: App,
    mut screen: Screen,
    feed: &Feed,
    happened: &Receiver<Event>,
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
            match handle(&mut app, event, feed, screen.height()) {
                Outcome::Stay => {}
                Outcome::Quit => return Ok(()),
                Outcome::Suspend => screen.suspend()?,
                Outcome::Redraw => screen.resume()?,
                Outcome::Resume => {
                    app.model.forget();
                    feed.wish(Wish::Values);
                }
            }
        }
    }
}

fn draw(app: &mut App, screen: &mut Screen, feed: &Feed) -> anyhow::Result<()> {
    let seen = app.arrange(screen.height());
    let unknown = app.model.watch(&seen);
    if !unknown.is_empty() {
        feed.wish(Wish::Past(unknown));
    }
    screen.draw(|buffer| screen::draw(buffer, app))
}

fn handle(app: &mut App, event: Event, feed: &Feed, height: u16) -> Outcome {
    match event {
        Event::Key(key) => match input::action(key, app.is_typing) {
            // The other processes of this job are to stop too, as if the terminal had done it.
            Some(Action::Suspend) => {
                let sent =
                    rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
                sent.map_or(Outcome::Suspend, |()| Outcome::Stay)
            }
            Some(action) => app.act(action, height),
            None => Outcome::Stay,
        },
        Event::News(news) => {
            learn(app, news, feed);
            Outcome::Stay
        }
        Event::Resized => Outcome::Stay,
        Event::Signal(SIGTSTP) => Outcome::Suspend,
        Event::Signal(SIGCONT) => Outcome::Redraw,
        Event::Signal(_) | Event::TerminalGone => Outcome::Quit,
    }
}

fn learn(app: &mut App, news: News, feed: &Feed) {
    match news {
        News::Connected(agent, list) => {
            app.connection = Connection::Live;
            app.model.agent = agent;
            app.model.list(list);
            app.model.forget();
        }
        News::Gone(since, why) => app.connection = Connection::Gone(since, why),
        News::Status(agent) => app.model.agent = agent,
        News::Listed(list) => app.model.list(list),
        News::Past(past) => {
            for (text, samples) in past {
                app.model.remember(&text, &samples);
            }
        }
        // What comes while paused is fetched again afterwards.
        News::Step(_) if app.is_paused => {}
        News::Step(readings) => {
            if app.model.step(&readings) {
                feed.wish(Wish::List);
            }
        }
    }
}
