//! A running node: store, servers and sampler, connected.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use pegel_collect::Sampler;
use pegel_metric::{Millis, Selector};
use pegel_serve::{App, BindError, Running, Server, StatusSource};
use pegel_store::{OpenError, Store};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::endpoint::Endpoint;
use crate::hangup::Hangups;
use crate::memory::keep_memory_small;
use crate::own::StoreFigures;
use crate::plan::Plan;
use crate::signals::StopSignals;
use crate::until::Until;
use crate::{place, remove, words};

/// How long the first sample may take to become readable. A store that cannot be written keeps it in
/// memory, so that this is only a bound for a machine that stands still.
const FIRST_SAMPLE_TIME: Duration = Duration::from_secs(5);
/// How long requests get to finish when the agent stops.
const GRACE: Duration = Duration::from_secs(2);
/// How often to look whether the sampler still runs.
const LOOK_AFTER_SAMPLER: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot use the directory {path}")]
    Dir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Sampler(#[from] pegel_collect::StartError),
    #[error(transparent)]
    Settings(#[from] pegel_collect::SettingsError),
    #[error("cannot start the threads that serve")]
    Runtime(#[source] io::Error),
}

/// An agent at work, until [`Node::stop`].
#[derive(Debug)]
pub struct Node {
    store: Store,
    source: Arc<Source>,
    running: Option<Running>,
    endpoint: Option<Endpoint>,
    signals: Option<StopSignals>,
    hangups: Option<Hangups>,
    announcement: Vec<String>,
    remove_store: Option<PathBuf>,
    /// Last, so that everything that runs on it is gone before.
    runtime: Runtime,
}

impl Node {
    /// Everything or nothing: when this fails, no address and no directory stays taken.
    pub fn start(plan: Plan) -> Result<Node, StartError> {
        keep_memory_small();
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("serve")
            .enable_all()
            .build()
            .map_err(StartError::Runtime)?;
        let (signals, hangups) = {
            let _context = runtime.enter();
            let signals = StopSignals::new().map_err(StartError::Runtime)?;
            (signals, Hangups::new().map_err(StartError::Runtime)?)
        };
        let started = plan.store.clock.utc();
        let store = open_store(&plan)?;
        let dir = plan.store.dir.clone();
        // The lock is ours: what is there was left by an agent that was killed.
        Endpoint::remove_old(&dir);

        let source = Arc::new(Source::default());
        let app = App {
            store: store.clone(),
            clock: plan.store.clock.clone(),
            node: plan.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            level: plan.level,
            rate: plan.collect.rate,
            source: source.clone(),
        };
        let server = Server::bind(plan.serve.clone(), app)?;
        let sampler = start_sampler(&plan, &store)?;
        let active = sampler.active_count();
        source.set(sampler);
        let running = server
            .start(runtime.handle())
            .map_err(StartError::Runtime)?;

        let (http, socket) = (running.http_addresses(), running.socket_path());
        // Degraded states do not stop an agent: a read-only disk is one.
        let endpoint = Endpoint::write(&dir, &plan.node, http, socket)
            .inspect_err(|error| tracing::warn!(%error, "cannot write endpoint.json"))
            .ok();
        let announcement = announce(&plan, http, socket, active);
        let remove_store = plan.remove_store.then_some(dir);
        let signals = Some(signals);
        let running = Some(running);
        Ok(Node {
            store,
            source,
            running,
            endpoint,
            signals,
            hangups: Some(hangups),
            announcement,
            remove_store,
            runtime,
        })
    }

    /// What to tell the person who started it, line by line.
    pub fn announcement(&self) -> &[String] {
        &self.announcement
    }

    pub fn runtime(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Returns when a signal asks for the end, or when the other process or the terminal is gone. The signals are
    /// handed back: the next one is for someone who does not want to wait. An agent whose sampler died
    /// would go on answering and never notice: that is an error, so that whoever watches starts it again.
    pub fn wait(&mut self, until: Option<Until>) -> io::Result<StopSignals> {
        let mut signals = self
            .signals
            .take()
            .ok_or_else(|| io::Error::other("waited before"))?;
        let source = self.source.clone();
        let reload = self.running.as_ref().map(Running::reload);
        let hangups = self.hangups.take().zip(reload);
        self.runtime.block_on(async {
            let mut died = Box::pin(source.sampler_died(LOOK_AFTER_SAMPLER));
            let mut signal = Box::pin(signals.next());
            let mut ended: Option<Pin<Box<dyn Future<Output = io::Result<()>>>>> = match until {
                Some(until) => Some(Box::pin(until.ended())),
                None => None,
            };
            let mut hung_up =
                hangups.map(|(hangups, reload)| Box::pin(hangups.until_end(move || reload.now())));
            poll_fn(|context| {
                let is_hung_up = match &mut hung_up {
                    Some(hung_up) => hung_up.as_mut().poll(context).is_ready(),
                    None => false,
                };
                if is_hung_up {
                    return Poll::Ready(Ok(()));
                }
                if signal.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Ok(()));
                }
                if died.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Err(io::Error::other("the sampler's thread panicked")));
                }
                match &mut ended {
                    Some(ended) => ended.as_mut().poll(context),
                    None => Poll::Pending,
                }
            })
            .await
        })?;
        Ok(signals)
    }

    /// Takes a last sample, lets requests finish, and writes everything out.
    pub fn stop(mut self) {
        drop(self.endpoint.take());
        if let Some(mut sampler) = self.source.take() {
            sampler.stop();
        }
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.stop(GRACE));
        }
        self.store.close();
        if let Some(dir) = &self.remove_store
            && let Err(error) = remove::store(dir)
        {
            tracing::warn!(dir = %dir.display(), %error, "cannot remove the store");
        }
        tracing::info!("stopped");
        self.runtime.shutdown_timeout(GRACE);
    }
}

pub(crate) fn open_store(plan: &Plan) -> Result<Store, StartError> {
    let dir = &plan.store.dir;
    place::prepare(dir).map_err(|source| StartError::Dir {
        path: dir.clone(),
        source,
    })?;
    Ok(Store::open(plan.store.clone())?)
}

/// When this returns, the first sample can be read.
fn start_sampler(plan: &Plan, store: &Store) -> Result<Sampler, StartError> {
    let first = Arc::new(AtomicI64::new(Millis::MAX));
    let (sink_store, sink_first) = (store.clone(), first.clone());
    let sampler = Sampler::start(
        &plan.collect,
        plan.host.clone(),
        plan.level,
        vec![StoreFigures::new(store)],
        store.ledger().clone(),
        plan.store.clock.clone(),
        Box::new(move |tick| {
            sink_first.fetch_min(tick.time, Ordering::Relaxed);
            sink_store.tick(tick);
        }),
    )?;
    let first = first.load(Ordering::Relaxed);
    // With every collector disabled there is nothing to wait for.
    if first != Millis::MAX {
        wait_until_readable(store, first);
    }
    Ok(sampler)
}

pub(crate) fn wait_until_readable(store: &Store, time: Millis) {
    let deadline = Instant::now() + FIRST_SAMPLE_TIME;
    while Instant::now() < deadline {
        let mut is_there = false;
        store.latest(&Selector::all(), 0, &mut |_, latest| {
            is_there |= latest.seen >= time
        });
        if is_there {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    tracing::warn!("the first sample is not readable yet");
}

/// What `/status` says about the collectors.
#[derive(Debug, Default)]
struct Source {
    sampler: Mutex<Option<Sampler>>,
}

impl Source {
    fn set(&self, sampler: Sampler) {
        *self.sampler.lock().unwrap_or_else(PoisonError::into_inner) = Some(sampler);
    }

    fn take(&self) -> Option<Sampler> {
        self.sampler
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Source {
    /// Waits until the sampler's thread is gone although nobody stopped it.
    async fn sampler_died(&self, look_every: Duration) {
        loop {
            tokio::time::sleep(look_every).await;
            let sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
            if sampler.as_ref().is_some_and(Sampler::has_ended) {
                return;
            }
        }
    }
}

impl StatusSource for Source {
    fn collectors(&self) -> serde_json::Value {
        let sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
        let status = sampler.as_ref().map(Sampler::status).unwrap_or_default();
        serde_json::to_value(status).unwrap_or_default()
    }
}

fn announce(plan: &Plan, http: &[SocketAddr], socket: Option<&Path>, active: usize) -> Vec<String> {
    let mut places = Vec::new();
    if let Some((first, others)) = http.split_first() {
        let is_private = plan.serve.tls.is_some() && !first.ip().to_canonical().is_loopback();
        let scheme = if is_private { "https" } else { "http" };
        places.push(format!("page and API on {scheme}://{first}"));
        if !others.is_empty() {
            let others: Vec<String> = others.iter().map(SocketAddr::to_string).collect();
            places.push(format!("OpenTSDB on {}", others.join(", ")));
        }
    }
    if let Some(socket) = socket {
        places.push(format!("socket {}", socket.display()));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let state = format!(
        "level {}, every {} s, {active} collectors active, store {} ({} or {})",
        plan.level,
        plan.collect.rate.as_secs_f64(),
        words::path(&plan.store.dir, home.as_deref()),
        words::time(plan.store.keep_disk),
        words::bytes(plan.store.keep_bytes),
    );
    [places.join(" · "), state]
        .into_iter()
        .chain(plan.remarks.iter().cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use pegel_collect::{Host, Settings};
    use pegel_metric::{Ledger, SystemClock};

    use super::*;

    #[test]
    fn a_sampler_that_died_is_noticed() {
        let settings = Settings {
            rate: Duration::from_millis(1),
            ..Settings::default()
        };
        let mut ticks = 0;
        let sampler = Sampler::start(
            &settings,
            Host::local(),
            0,
            Vec::new(),
            Arc::new(Ledger::default()),
            Arc::new(SystemClock),
            Box::new(move |_| {
                ticks += 1;
                assert!(ticks < 3, "the third tick is one too many");
            }),
        );
        let source = Source::default();
        source.set(sampler.expect("started"));
        let runtime = Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let died = source.sampler_died(Duration::from_millis(1));
            let waited = tokio::time::timeout(Duration::from_secs(20), died).await;
            waited.expect("within the bound");
        });
    }
}
