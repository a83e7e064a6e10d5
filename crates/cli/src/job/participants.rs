//! Watches the participants of a job on all nodes: the processes with a `Telemetry` object. When
//! all of them called `finalize` or ended, the telemetry ends.
//!
//! A thread of its own asks the nodes: one that does not answer delays nothing else.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;

use super::events::{JobEvent, JobEvents};
use super::plan::JobPlan;
use crate::agent_client::AgentClient;

/// How often the nodes are asked, and how long each of them may take of that.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const TIME_PER_NODE: Duration = Duration::from_millis(15);
/// How long one node may take to answer.
const NODE_TIME_MAX: Duration = Duration::from_secs(5);
/// How often in a row all must be done: some may not have announced themselves yet.
const TIMES_DONE: u32 = 2;

/// The thread that asks; it ends a moment after this is dropped.
#[derive(Debug)]
pub(super) struct ParticipantWatch {
    is_over: Arc<AtomicBool>,
}

impl Drop for ParticipantWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl ParticipantWatch {
    /// Starts to watch. When all are done, [`JobEvent::ParticipantsDone`] is sent once.
    pub(super) fn start(
        head_socket: &Path,
        plan: &JobPlan,
        events: &JobEvents,
    ) -> anyhow::Result<ParticipantWatch> {
        let is_over = Arc::new(AtomicBool::new(false));
        let watch = ParticipantWatch {
            is_over: is_over.clone(),
        };
        let client = AgentClient::find_within(NODE_TIME_MAX, Some(head_socket), &[])?;
        let (nodes, head) = (plan.all_nodes(), plan.file.head.clone());
        let sender = events.sender();
        // Detached: a request may last longer than the job.
        let thread = std::thread::Builder::new().name("participants".to_owned());
        let body = move || {
            if are_done(&client, &nodes, &head, &is_over) {
                let _ = sender.send(JobEvent::ParticipantsDone);
            }
        };
        thread.spawn(body).context("cannot start a thread")?;
        Ok(watch)
    }
}

/// Returns true when all participants are done, and false when the watch is over.
fn are_done(client: &AgentClient, nodes: &[String], head: &str, is_over: &AtomicBool) -> bool {
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let interval = INTERVAL_MIN.max(TIME_PER_NODE.saturating_mul(count));
    let mut times_done = 0;
    while times_done < TIMES_DONE {
        if !sleep_unless(is_over, interval) {
            return false;
        }
        let (mut active, mut done) = (0, 0);
        for node in nodes {
            let node_client = match node == head {
                true => client.of_agent(),
                false => client.of_agent().through_node(node),
            };
            // A node that does not answer counts as one without participants.
            let status = node_client.get("/status", &[]).unwrap_or(Value::Null);
            let participants = &status["participants"];
            active += participants["active"].as_u64().unwrap_or(0);
            done += participants["done"].as_u64().unwrap_or(0);
        }
        times_done = match active == 0 && done > 0 {
            true => times_done + 1,
            false => 0,
        };
    }
    !is_over.load(Ordering::Relaxed)
}

/// Sleeps; returns false as soon as the flag is set.
fn sleep_unless(is_over: &AtomicBool, time: Duration) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end && !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
    }
    !is_over.load(Ordering::Relaxed)
}
