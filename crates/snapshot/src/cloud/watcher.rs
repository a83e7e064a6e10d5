//! The thread that queries the cloud of an agent: facts once, then events at regular intervals.
//!
//! Started by the snapshot worker after the first snapshot. Failed requests are retried with
//! exponential backoff for as long as the agent runs; results are read through
//! [`CloudWatcher::cloud`] and never waited for. Stopping takes less than a second, even during a
//! request.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pegel_metric::with_causes;
use pegel_supervisor::{RestartedThread, Supervisor};

use super::metadata_client::MetadataError;
use super::metadata_service::MetadataService;
use super::{CloudEvent, CloudFacts, CloudInfo, CloudProvider, MetadataTarget};

/// Pause after a failed request; doubled with each failure up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Watches a cloud until it is dropped.
#[derive(Debug)]
pub(crate) struct CloudWatcher {
    shared: Arc<CloudWatcherState>,
    thread: Option<RestartedThread>,
}

#[derive(Debug)]
struct CloudWatcherState {
    cloud: Mutex<CloudInfo>,
    stop: Arc<AtomicBool>,
    /// Wakes the thread when `stop` is set.
    stop_signal: (Mutex<()>, Condvar),
}

impl CloudWatcher {
    /// Starts the thread. It calls `changed` whenever the result of [`CloudWatcher::cloud`] has
    /// changed.
    pub(crate) fn start(
        target: MetadataTarget,
        changed: impl Fn() + Send + 'static,
        supervisor: &Supervisor,
    ) -> io::Result<CloudWatcher> {
        let shared = Arc::new(CloudWatcherState {
            cloud: Mutex::new(CloudInfo {
                provider: target.provider,
                known_by: target.known_by(),
                ..CloudInfo::default()
            }),
            stop: Arc::default(),
            stop_signal: (Mutex::default(), Condvar::new()),
        });
        let for_thread = shared.clone();
        let thread = supervisor.thread("cloud");
        let thread = thread.restarted(move || for_thread.run(&target, &changed))?;
        Ok(CloudWatcher {
            shared,
            thread: Some(thread),
        })
    }

    /// Returns the latest facts and events.
    pub(crate) fn cloud(&self) -> CloudInfo {
        self.shared.cloud.lock().clone()
    }

    /// Returns the provider and its scheduled events; `None` until a request for events has
    /// succeeded.
    pub(crate) fn events(&self) -> Option<(CloudProvider, Vec<CloudEvent>)> {
        let cloud = self.shared.cloud.lock();
        cloud
            .are_events_watched
            .then_some((cloud.provider?, cloud.events.clone()))
    }
}

impl Drop for CloudWatcher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Takes the lock once, so that a thread between its check and its wait does not miss the
        // signal.
        drop(self.shared.stop_signal.0.lock());
        self.shared.stop_signal.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // Bounded: connecting takes at most 300 ms, and a pending request checks `stop` every
            // 250 ms.
            thread.join();
        }
    }
}

impl CloudWatcherState {
    fn run(&self, target: &MetadataTarget, changed: &dyn Fn()) {
        let service = match target.service(self.stop.clone()) {
            Ok(service) => service,
            Err(error) => return self.set_trouble(&error, changed),
        };
        let Some((provider, facts)) = self.retry_until_ok(changed, || target.facts(&service))
        else {
            return;
        };
        let name = facts.get("name").cloned();
        self.set_facts(provider, facts, changed);
        self.poll_events(&service, provider, name.as_deref(), changed);
    }

    /// Repeats a request until it succeeds; `None` when the watcher is stopped.
    fn retry_until_ok<T>(
        &self,
        changed: &dyn Fn(),
        request: impl Fn() -> Result<T, MetadataError>,
    ) -> Option<T> {
        let mut pause = RETRY;
        loop {
            match request() {
                Ok(value) => return Some(value),
                Err(error) => self.set_trouble(&error, changed),
            }
            if self.sleep_or_stop(pause) {
                return None;
            }
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    fn poll_events(
        &self,
        service: &MetadataService,
        provider: CloudProvider,
        name: Option<&str>,
        changed: &dyn Fn(),
    ) {
        let mut is_first = true;
        loop {
            let events = self.retry_until_ok(changed, || service.events(provider, name, is_first));
            let Some(events) = events else {
                return;
            };
            is_first = false;
            self.update(changed, |cloud| {
                cloud.events = events;
                cloud.are_events_watched = true;
                cloud.trouble = None;
            });
            if self.sleep_or_stop(provider.events_interval()) {
                return;
            }
        }
    }

    fn set_facts(&self, provider: CloudProvider, facts: CloudFacts, changed: &dyn Fn()) {
        self.update(changed, |cloud| {
            cloud.provider = Some(provider);
            cloud.facts = facts;
            cloud.trouble = None;
        });
    }

    fn set_trouble(&self, error: &MetadataError, changed: &dyn Fn()) {
        tracing::debug!(error = with_causes(error), "cloud metadata request failed");
        self.update(changed, |cloud| cloud.trouble = Some(with_causes(error)));
    }

    fn update(&self, changed: &dyn Fn(), change: impl FnOnce(&mut CloudInfo)) {
        let mut cloud = self.cloud.lock();
        let before = cloud.clone();
        change(&mut cloud);
        let is_new = *cloud != before;
        if is_new && cloud.events != before.events {
            tracing::warn!(events = ?cloud.events, "scheduled cloud events changed");
        }
        drop(cloud);
        if is_new && !self.stop.load(Ordering::Relaxed) {
            changed();
        }
    }

    /// Sleeps unless the watcher is stopped. Returns whether it is stopped.
    fn sleep_or_stop(&self, time: Duration) -> bool {
        let mut guard = self.stop_signal.0.lock();
        let is_running = |_: &mut ()| !self.stop.load(Ordering::Relaxed);
        self.stop_signal
            .1
            .wait_while_for(&mut guard, is_running, time);
        self.stop.load(Ordering::Relaxed)
    }
}
