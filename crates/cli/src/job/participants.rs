//! Watches the participants of a job on all nodes: the processes with a `Telemetry` object. When
//! all of them called `finalize` or ended, the telemetry ends.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::plan::JobPlan;
use crate::agent_client::AgentClient;

/// How often the nodes are asked, and how long each of them may take of that.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const TIME_PER_NODE: Duration = Duration::from_millis(15);

#[derive(Debug)]
pub(super) struct ParticipantWatch {
    interval: Duration,
    last: Instant,
    /// How often in a row all were done: some may not have announced themselves yet.
    times_done: u32,
}

impl ParticipantWatch {
    pub(super) fn new(nodes: usize) -> ParticipantWatch {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        ParticipantWatch {
            interval: INTERVAL_MIN.max(TIME_PER_NODE.saturating_mul(nodes)),
            last: Instant::now(),
            times_done: 0,
        }
    }

    /// Returns how long to wait before the next question.
    pub(super) fn pause(&self) -> Duration {
        let due = self.last + self.interval;
        due.saturating_duration_since(Instant::now())
            .max(Duration::from_millis(10))
    }

    /// Returns whether all participants are done, now and when the nodes were asked before.
    pub(super) fn are_done(&mut self, client: &AgentClient, plan: &JobPlan) -> bool {
        if self.last.elapsed() < self.interval {
            return false;
        }
        self.last = Instant::now();
        let (mut active, mut done) = (0, 0);
        for node in plan.all_nodes() {
            let node_client = match node == plan.file.head {
                true => client.of_agent(),
                false => client.of_agent().through_node(&node),
            };
            // A node that does not answer has no participants for us.
            let status = node_client.get("/status", &[]).unwrap_or(Value::Null);
            let participants = &status["participants"];
            active += participants["active"].as_u64().unwrap_or(0);
            done += participants["done"].as_u64().unwrap_or(0);
        }
        self.times_done = match active == 0 && done > 0 {
            true => self.times_done + 1,
            false => 0,
        };
        self.times_done >= 2
    }
}
