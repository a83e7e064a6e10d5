//! What the running agent says about itself: to `/status`, and to the service manager.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pegel_collect::Sampler;
use pegel_serve::StatusSource;
use pegel_snapshot::{Event, Keeper, Provider};
use serde_json::{Map, Value, json};

use crate::log_output::LogOutput;
use crate::notify::Notify;
use crate::plan::Plan;

/// A sampler that took no sample for so long, or for five times its rate, stands still. A machine that is merely busy
/// does not do that.
const STILL_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Source {
    sampler: Mutex<Option<Sampler>>,
    keeper: Mutex<Option<Keeper>>,
    /// When the last sample was handed over.
    last: Mutex<Option<Instant>>,
    rate: Duration,
    limits: Value,
    shown: Value,
    log: Option<Arc<dyn LogOutput>>,
}

impl Source {
    pub fn new(plan: &Plan) -> Source {
        Source {
            rate: plan.collect.rate,
            limits: json!({
                "series": plan.store.series_max,
                "memory_bytes": plan.store.memory_bytes_max,
                "disk_bytes": plan.store.keep_bytes,
                "connections": plan.serve.connections_max,
            }),
            log: plan.log.clone(),
            shown: plan.shown.clone(),
            ..Source::default()
        }
    }

    pub fn set(&self, sampler: Sampler) {
        *self.sampler.lock().unwrap_or_else(PoisonError::into_inner) = Some(sampler);
    }

    pub fn take(&self) -> Option<Sampler> {
        self.sampler
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Begins to keep a snapshot of the machine. An agent without one is of use all the same.
    pub fn keep_snapshot(&self, plan: &Plan) {
        let (subject, every) = plan.snapshot.clone();
        let started = Keeper::start(subject, plan.store.dir.clone(), every);
        let started = started.inspect_err(|error| {
            tracing::warn!(%error, "cannot start the thread that takes snapshots");
        });
        *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = started.ok();
    }

    fn with_keeper<T>(&self, ask: impl FnOnce(&Keeper) -> T) -> Option<T> {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        keeper.as_ref().map(ask)
    }

    pub fn retake_snapshot(&self) {
        self.with_keeper(Keeper::retake);
    }

    pub fn drop_keeper(&self) {
        let keeper = self
            .keeper
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(keeper);
    }

    pub fn cloud_events(&self) -> Option<(Provider, Vec<Event>)> {
        self.with_keeper(Keeper::events)?
    }

    pub fn ticked(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_alive(&self) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Without any collector there is nothing to wait for.
        last.is_none_or(|last| last.elapsed() < STILL_MAX.max(self.rate * 5))
    }

    /// Gives the service manager signs of life, as long as samples are taken. Never ends.
    pub async fn beat(&self, notify: Option<&Notify>) {
        let Some((notify, beat)) = notify.and_then(|notify| Some((notify, notify.beat()?))) else {
            return std::future::pending().await;
        };
        loop {
            match self.is_alive() {
                true => notify.alive(),
                false => tracing::error!(
                    "no sample was taken for a while; the service manager is not told that all is well"
                ),
            }
            tokio::time::sleep(beat).await;
        }
    }

    /// Waits until the sampler's thread is gone although nobody stopped it.
    pub async fn sampler_died(&self, look_every: Duration) {
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
    fn collectors(&self) -> Value {
        let sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
        let status = sampler.as_ref().map(Sampler::status).unwrap_or_default();
        serde_json::to_value(status).unwrap_or_default()
    }

    fn snapshot(&self) -> Option<Arc<str>> {
        self.with_keeper(Keeper::current)?
    }

    fn config(&self) -> Value {
        self.shown.clone()
    }

    fn facts(&self) -> Map<String, Value> {
        let sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = sampler.as_ref().map(Sampler::counts).unwrap_or_default();
        let mut facts = Map::new();
        facts.insert("limits".to_owned(), self.limits.clone());
        let sampling = json!({
            "late": counts.late,
            "missed": counts.missed,
            "clock_steps": counts.clock_steps,
        });
        facts.insert("sampling".to_owned(), sampling);
        if let Some(status) = self.with_keeper(Keeper::status) {
            facts.insert("snapshot".to_owned(), json!(status));
        }
        if let Some(log) = &self.log {
            let log = json!({"place": log.place(), "lost": log.lost()});
            facts.insert("log".to_owned(), log);
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use pegel_collect::{Host, Settings};
    use pegel_metric::{Ledger, SystemClock};
    use tokio::runtime::Builder;

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

    #[test]
    fn a_sampler_that_stands_still_gives_no_sign_of_life() {
        let source = Source {
            rate: Duration::from_secs(1),
            ..Source::default()
        };
        assert!(source.is_alive(), "nothing is sampled at all");
        source.ticked();
        assert!(source.is_alive());
        let long_ago = Instant::now().checked_sub(STILL_MAX + Duration::from_secs(1));
        *source.last.lock().expect("free") = long_ago;
        assert!(long_ago.is_none() || !source.is_alive());
    }
}
