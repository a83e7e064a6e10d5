//! Starts and stops the threads of all targets.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_metric::Millis;
use pegel_query::promql::NodeLabels;
use pegel_store::Store;
use pegel_supervisor::{RestartedThread, Supervisor};

use super::counts::{RemoteWriteCounts, TargetCounters};
use super::settings::{RemoteWriteTarget, WriteMessage};
use super::target::{LogRelease, SharedTarget, TargetOptions, TargetThread};

/// How long stopping waits for the remaining samples to be sent. The rest is sent after the next
/// start.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// The parts of the agent that the output uses.
#[derive(Debug)]
pub struct RemoteWriteOptions {
    pub targets: Vec<RemoteWriteTarget>,
    /// The labels of this node's series.
    pub node: NodeLabels,
    /// The interval at which series of programs are sampled.
    pub interval: Millis,
    /// The directory of the targets' positions.
    pub dir: PathBuf,
    /// Must be opened with `keep_log`: segments stay until they are released.
    pub store: Store,
    pub supervisor: Supervisor,
}

/// The output to all targets. Dropping it sends the remaining samples and ends its threads.
#[derive(Debug)]
pub struct RemoteWriteOutput {
    targets: Vec<RunningTarget>,
    store: Store,
    /// The store's count of samples that are not in the log, at the start of this output.
    unlogged_before: u64,
}

#[derive(Debug)]
struct RunningTarget {
    shared: Arc<SharedTarget>,
    shards: u64,
    thread: RestartedThread,
}

impl RemoteWriteOutput {
    pub fn start(options: RemoteWriteOptions) -> io::Result<RemoteWriteOutput> {
        let node = Arc::new(options.node);
        let needed: Vec<Arc<AtomicU64>> = { options.targets.iter() }
            .map(|_| Arc::new(AtomicU64::new(0)))
            .collect();
        let release = Arc::new(LogRelease {
            store: options.store.clone(),
            needed: needed.clone(),
        });
        let mut targets = Vec::new();
        for (RemoteWriteTarget(settings), needed_segment) in options.targets.into_iter().zip(needed)
        {
            let name = settings.target_name();
            let dir = target_dir(&options.dir, &name);
            let shared = Arc::new(SharedTarget {
                name,
                counters: TargetCounters {
                    speaks_v2: AtomicBool::new(settings.protobuf_message == WriteMessage::V2),
                    ..TargetCounters::default()
                },
                is_stopping: AtomicBool::new(false),
                abort: Arc::new(AtomicBool::new(false)),
                waits: Mutex::new(()),
                wake: Condvar::new(),
                confirmed: Mutex::new(None),
                needed_segment,
            });
            let target = TargetOptions {
                settings: Arc::new(settings),
                node: node.clone(),
                interval: options.interval,
                store: options.store.clone(),
                shared: shared.clone(),
                release: release.clone(),
            };
            let shards = u64::from(target.settings.shards.get());
            let thread = options.supervisor.thread("remote-write");
            let thread = thread.restarted(move || TargetThread::new(&target, &dir).run())?;
            targets.push(RunningTarget {
                shared,
                shards,
                thread,
            });
        }
        Ok(RemoteWriteOutput {
            targets,
            unlogged_before: options.store.unlogged_samples(),
            store: options.store,
        })
    }

    /// Returns the counts of all targets.
    pub fn counts(&self) -> Vec<RemoteWriteCounts> {
        let unlogged = self.store.unlogged_samples() - self.unlogged_before;
        let targets = self.targets.iter();
        let counts = targets.map(|target| {
            let shared = &target.shared;
            let mut counts = shared.counters.read(&shared.name, target.shards, unlogged);
            counts.pending_bytes = shared.pending_bytes(&self.store);
            counts
        });
        counts.collect()
    }
}

impl Drop for RemoteWriteOutput {
    fn drop(&mut self) {
        for target in &self.targets {
            target.shared.is_stopping.store(true, Ordering::Relaxed);
            // The lock ensures that the thread does not miss the notification between its check of
            // the flag and its wait.
            drop(target.shared.waits.lock());
            target.shared.wake.notify_all();
        }
        let until = Instant::now() + STOP_GRACE;
        let has_ended = |target: &RunningTarget| target.thread.has_ended();
        while Instant::now() < until && !self.targets.iter().all(has_ended) {
            std::thread::sleep(Duration::from_millis(5));
        }
        for target in &self.targets {
            target.shared.abort.store(true, Ordering::Relaxed);
        }
        for target in self.targets.drain(..) {
            target.thread.join();
        }
    }
}

/// Returns the directory of one target.
fn target_dir(dir: &Path, name: &str) -> PathBuf {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '_');
    let mut plain = String::new();
    for c in name.chars() {
        match c {
            c if is_plain(c) || (c == '.' && !plain.is_empty()) => plain.push(c),
            c => plain += &format!("%{:x}", u32::from(c)),
        }
    }
    dir.join(plain)
}
