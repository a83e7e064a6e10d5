//! Reports begin and end of a program that `pegel run -j` runs to the agent. Best effort, with a
//! short time limit: without an agent the program runs unchanged.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pegel_run::{ProcessEnd, ProgramSummary};
use serde_json::{Value, json};

use crate::agent_client::AgentClient;

/// How long the agent may take, so that it cannot hold up the program.
const REPORT_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct JobReporter {
    job: String,
    socket: Option<PathBuf>,
}

impl JobReporter {
    /// The helper process, which reports, has another working directory.
    pub(super) fn new(job: &str, socket: Option<&Path>) -> anyhow::Result<JobReporter> {
        Ok(JobReporter {
            job: job.to_owned(),
            socket: socket.map(std::path::absolute).transpose()?,
        })
    }

    pub(super) fn begin(&self) {
        self.report(json!({}));
    }

    pub(super) fn end(&self, summary: &ProgramSummary) {
        let mut report = json!({"end": true});
        match summary.end {
            ProcessEnd::Exited(code) => report["exit"] = json!(code),
            ProcessEnd::Killed(signal) => report["signal"] = json!(signal),
            ProcessEnd::Released => return,
        }
        if let Some(usage) = &summary.usage {
            report["cpu_seconds"] = json!((usage.user + usage.system).as_secs_f64());
            report["memory_peak"] = json!(usage.peak_memory);
        }
        self.report(report);
    }

    fn report(&self, mut report: Value) {
        report["job"] = json!(self.job);
        report["pid"] = json!(std::process::id());
        if let Ok(client) = AgentClient::find_within(REPORT_TIMEOUT, self.socket.as_deref(), &[]) {
            // A failure is no reason to disturb the program.
            let _ = client.post("/api/v1/jobs", &report);
        }
    }
}
