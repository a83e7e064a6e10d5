//! Many simulated children of one parent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::WireBytes;
use crate::select_answer::SeriesCatalog;
use crate::simulated_child::SimulatedChild;
use crate::simulated_values::SimulatedValues;

/// The children of a simulation.
#[derive(Debug, Clone)]
pub struct SimulationPlan {
    /// The address at which the parent accepts children, on this machine.
    pub address: SocketAddr,
    pub token: Option<String>,
    /// The names are this text and a number.
    pub prefix: String,
    pub children: usize,
    /// The time over which the connections are spread.
    pub ramp: Duration,
}

/// The counts of all children together.
#[derive(Debug, Default)]
pub(crate) struct SimulationCounts {
    pub connected: AtomicUsize,
    pub ticks: AtomicU64,
    /// Ticks that were not sent because the parent had not permitted them.
    pub without_credit: AtomicU64,
    pub requests: AtomicU64,
    pub bytes: Arc<WireBytes>,
    /// How often connections ended, by reason, and the name of the last child.
    ends: Mutex<BTreeMap<String, (u64, String)>>,
}

impl SimulationCounts {
    pub(crate) fn ended(&self, child: &str, reason: &str) {
        let mut ends = self.ends.lock();
        let end = ends.entry(reason.to_owned()).or_default();
        *end = (end.0 + 1, child.to_owned());
    }
}

/// Running children; they disconnect when the value is dropped.
#[derive(Debug)]
pub struct ChildSimulation {
    children: usize,
    counts: Arc<SimulationCounts>,
    tasks: Vec<AbortHandle>,
}

impl ChildSimulation {
    pub fn start(runtime: &Handle, plan: SimulationPlan) -> ChildSimulation {
        let plan = Arc::new(plan);
        let catalog = Arc::new(SeriesCatalog::new());
        let counts = Arc::new(SimulationCounts::default());
        let children = plan.children;
        let tasks = (0..children).map(|number| {
            let position = number as f64 / children as f64;
            let child = SimulatedChild {
                name: format!("{}{number:05}", plan.prefix),
                position,
                values: SimulatedValues::new(number as u64),
                plan: plan.clone(),
                catalog: catalog.clone(),
                counts: counts.clone(),
            };
            let wait = plan.ramp.mul_f64(position);
            let task = runtime.spawn(async move {
                tokio::time::sleep(wait).await;
                child.run().await;
            });
            task.abort_handle()
        });
        let tasks = tasks.collect();
        ChildSimulation {
            children,
            counts,
            tasks,
        }
    }

    /// Returns the number of children that are connected and accepted.
    pub fn connected(&self) -> usize {
        self.counts.connected.load(Ordering::Relaxed)
    }

    /// Succeeds if all children are connected; the error has their number and why connections
    /// ended.
    pub fn check_connected(&self) -> Result<(), String> {
        let connected = self.connected();
        if connected == self.children {
            return Ok(());
        }
        let ends = self.counts.ends.lock();
        Err(format!(
            "{connected} of {} connected; {ends:?}",
            self.children
        ))
    }

    /// Returns the number of connections that ended so far.
    pub fn ended(&self) -> u64 {
        self.counts
            .ends
            .lock()
            .values()
            .map(|(count, _)| count)
            .sum()
    }

    pub fn ticks(&self) -> u64 {
        self.counts.ticks.load(Ordering::Relaxed)
    }

    /// Returns the number of ticks that were not sent because the parent had not permitted them.
    pub fn ticks_without_credit(&self) -> u64 {
        self.counts.without_credit.load(Ordering::Relaxed)
    }

    /// Returns the number of requests for samples that children answered.
    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Returns the bytes that children sent and received.
    pub fn bytes(&self) -> (u64, u64) {
        let bytes = &self.counts.bytes;
        (
            bytes.up.load(Ordering::Relaxed),
            bytes.down.load(Ordering::Relaxed),
        )
    }
}

impl Drop for ChildSimulation {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
