//! The thread that asks the cloud, and what it found.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pegel_config::with_causes;
use pegel_supervisor::{RestartedThread, Supervisor};

use super::http::AskError;
use super::service::Service;
use super::{Cloud, Event, Facts, Provider, Question};

/// After a failure; doubled up to the second one.
const RETRY: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Watches a cloud until it is dropped.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<RestartedThread>,
}

#[derive(Debug)]
struct Shared {
    cloud: Mutex<Cloud>,
    stop: Arc<AtomicBool>,
    /// Wakes the thread when it is to stop.
    rest: (Mutex<()>, Condvar),
}

impl Watch {
    /// `changed` is called from the watching thread whenever [`Watch::cloud`] says something new.
    pub(crate) fn start(
        question: Question,
        changed: impl Fn() + Send + 'static,
        supervisor: &Supervisor,
    ) -> io::Result<Watch> {
        let shared = Arc::new(Shared {
            cloud: Mutex::new(Cloud {
                provider: question.provider,
                known_by: question.known_by(),
                ..Cloud::default()
            }),
            stop: Arc::default(),
            rest: (Mutex::default(), Condvar::new()),
        });
        let for_thread = shared.clone();
        let thread = supervisor.thread("cloud");
        let thread = thread.restarted(move || for_thread.run(&question, &changed))?;
        Ok(Watch {
            shared,
            thread: Some(thread),
        })
    }

    /// What is known by now.
    pub fn cloud(&self) -> Cloud {
        self.shared
            .cloud
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What the cloud is about to do, with the cloud's name.
    pub fn events(&self) -> Option<(Provider, Vec<Event>)> {
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

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Under the lock, so that a thread that just looked does not miss it.
        drop(
            self.shared
                .rest
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.shared.rest.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A connection has 300 ms, and an answer is given up within 250 ms.
            thread.join();
        }
    }
}

impl Shared {
    fn run(&self, question: &Question, changed: &dyn Fn()) {
        let service = match question.service(self.stop.clone()) {
            Ok(service) => service,
            Err(error) => return self.fail(&error, changed),
        };
        let Some((provider, facts)) = self.patiently(changed, || question.facts(&service)) else {
            return;
        };
        let name = facts.get("name").cloned();
        self.learn(provider, facts, changed);
        self.watch(&service, provider, name.as_deref(), changed);
    }

    /// Tries until there is an answer; `None` when it is to stop.
    fn patiently<T>(&self, changed: &dyn Fn(), ask: impl Fn() -> Result<T, AskError>) -> Option<T> {
        let mut wait = RETRY;
        loop {
            match ask() {
                Ok(answer) => return Some(answer),
                Err(error) => self.fail(&error, changed),
            }
            if self.rest(wait) {
                return None;
            }
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    fn watch(&self, service: &Service, provider: Provider, name: Option<&str>, changed: &dyn Fn()) {
        let mut is_first = true;
        loop {
            let events = self.patiently(changed, || service.events(provider, name, is_first));
            let Some(events) = events else {
                return;
            };
            is_first = false;
            self.update(changed, |cloud| {
                cloud.events = events;
                cloud.are_events_watched = true;
                cloud.trouble = None;
            });
            if self.rest(provider.events_every()) {
                return;
            }
        }
    }

    fn learn(&self, provider: Provider, facts: Facts, changed: &dyn Fn()) {
        self.update(changed, |cloud| {
            cloud.provider = Some(provider);
            cloud.facts = facts;
            cloud.trouble = None;
        });
    }

    fn fail(&self, error: &AskError, changed: &dyn Fn()) {
        tracing::debug!(
            error = with_causes(error),
            "the cloud's metadata service does not answer"
        );
        self.update(changed, |cloud| cloud.trouble = Some(with_causes(error)));
    }

    fn update(&self, changed: &dyn Fn(), change: impl FnOnce(&mut Cloud)) {
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
    fn rest(&self, time: Duration) -> bool {
        let guard = self.rest.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = |_: &mut ()| !self.stop.load(Ordering::Relaxed);
        let waited = self.rest.1.wait_timeout_while(guard, time, is_wanted);
        drop(waited);
        self.stop.load(Ordering::Relaxed)
    }
}
