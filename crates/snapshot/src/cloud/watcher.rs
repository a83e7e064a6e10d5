//! The thread that asks the cloud, and what it found.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pegel_config::with_causes;
use pegel_supervisor::{RestartedThread, Supervisor};

use super::metadata_client::MetadataError;
use super::metadata_service::MetadataService;
use super::{CloudEvent, CloudFacts, CloudInfo, CloudProvider, MetadataTarget};

/// After a failure; doubled up to the second one.
const RETRY: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Watches a cloud until it is dropped.
#[derive(Debug)]
pub struct CloudWatcher {
    shared: Arc<CloudWatcherState>,
    thread: Option<RestartedThread>,
}

#[derive(Debug)]
struct CloudWatcherState {
    cloud: Mutex<CloudInfo>,
    stop: Arc<AtomicBool>,
    /// Wakes the thread when it is to stop.
    stop_signal: (Mutex<()>, Condvar),
}

impl CloudWatcher {
    /// `changed` is called from the watching thread whenever [`Watch::cloud`] says something new.
    pub(crate) fn start(
        question: MetadataTarget,
        changed: impl Fn() + Send + 'static,
        supervisor: &Supervisor,
    ) -> io::Result<CloudWatcher> {
        let shared = Arc::new(CloudWatcherState {
            cloud: Mutex::new(CloudInfo {
                provider: question.provider,
                known_by: question.known_by(),
                ..CloudInfo::default()
            }),
            stop: Arc::default(),
            stop_signal: (Mutex::default(), Condvar::new()),
        });
        let for_thread = shared.clone();
        let thread = supervisor.thread("cloud");
        let thread = thread.restarted(move || for_thread.run(&question, &changed))?;
        Ok(CloudWatcher {
            shared,
            thread: Some(thread),
        })
    }

    /// What is known by now.
    pub fn cloud(&self) -> CloudInfo {
        self.shared
            .cloud
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What the cloud is about to do, with the cloud's name.
    pub fn events(&self) -> Option<(CloudProvider, Vec<CloudEvent>)> {
        let cloud = self
            .shared
            .cloud
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cloud
            .are_events_watched
            .then_some((cloud.provider?, cloud.events.clone()))
    }
}

impl Drop for CloudWatcher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Under the lock, so that a thread that just looked does not miss it.
        drop(
            self.shared
                .stop_signal
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.shared.stop_signal.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A connection has 300 ms, and an answer is given up within 250 ms.
            thread.join();
        }
    }
}

impl CloudWatcherState {
    fn run(&self, question: &MetadataTarget, changed: &dyn Fn()) {
        let service = match question.service(self.stop.clone()) {
            Ok(service) => service,
            Err(error) => return self.set_trouble(&error, changed),
        };
        let Some((provider, facts)) = self.retry_until_ok(changed, || question.facts(&service))
        else {
            return;
        };
        let name = facts.get("name").cloned();
        self.set_facts(provider, facts, changed);
        self.poll_events(&service, provider, name.as_deref(), changed);
    }

    /// Tries until there is an answer; `None` when it is to stop.
    fn retry_until_ok<T>(
        &self,
        changed: &dyn Fn(),
        ask: impl Fn() -> Result<T, MetadataError>,
    ) -> Option<T> {
        let mut wait = RETRY;
        loop {
            match ask() {
                Ok(answer) => return Some(answer),
                Err(error) => self.set_trouble(&error, changed),
            }
            if self.sleep_or_stop(wait) {
                return None;
            }
            wait = (wait * 2).min(RETRY_MAX);
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
        tracing::debug!(
            error = with_causes(error),
            "the cloud's metadata service does not answer"
        );
        self.update(changed, |cloud| cloud.trouble = Some(with_causes(error)));
    }

    fn update(&self, changed: &dyn Fn(), change: impl FnOnce(&mut CloudInfo)) {
        let mut cloud = self.cloud.lock().unwrap_or_else(PoisonError::into_inner);
        let before = cloud.clone();
        change(&mut cloud);
        let is_new = *cloud != before;
        if is_new && cloud.events != before.events {
            tracing::warn!(events = ?cloud.events, "the cloud changed what it is about to do");
        }
        drop(cloud);
        if is_new && !self.stop.load(Ordering::Relaxed) {
            changed();
        }
    }

    /// True when it is to stop.
    fn sleep_or_stop(&self, time: Duration) -> bool {
        let guard = self
            .stop_signal
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_wanted = |_: &mut ()| !self.stop.load(Ordering::Relaxed);
        let waited = self
            .stop_signal
            .1
            .wait_timeout_while(guard, time, is_wanted);
        drop(waited);
        self.stop.load(Ordering::Relaxed)
    }
}
