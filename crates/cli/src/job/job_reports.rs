//! Reports begin and end of the job: to its head, and to the agent that runs on this machine all
//! the time, if there is one, so that `pegel jobs` lists it later. Best effort, with a short time
//! limit.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent_client::AgentClient;

/// How long an agent may take, so that it cannot hold up the job.
const REPORT_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct JobReports {
    job: String,
    head_socket: PathBuf,
}

impl JobReports {
    pub(super) fn begin(job: &str, head_socket: &Path) -> JobReports {
        let reports = JobReports {
            job: job.to_owned(),
            head_socket: head_socket.to_owned(),
        };
        reports.send(&json!({}));
        reports
    }

    /// Reports how the command ended and what it used on this machine.
    pub(super) fn end(self, status: ExitStatus) {
        let (cpu_seconds, memory_peak) = usage_of_children();
        let mut report = json!({
            "end": true,
            "is_last": true,
            "cpu_seconds": cpu_seconds,
            "memory_peak": memory_peak,
        });
        match (status.code(), status.signal()) {
            (Some(code), _) => report["exit"] = json!(code),
            (None, Some(signal)) => report["signal"] = json!(signal),
            (None, None) => {}
        }
        self.send(&report);
    }

    fn send(&self, report: &Value) {
        let mut report = report.clone();
        report["job"] = json!(self.job);
        report["pid"] = json!(std::process::id());
        // The second one is named by $PEGEL_SOCKET, or is the user's or the system's.
        for socket in [Some(&*self.head_socket), None] {
            if let Ok(client) = AgentClient::find_within(REPORT_TIMEOUT, socket, &[]) {
                // Agents of other users may refuse it.
                let _ = client.post("/api/v1/jobs", &report);
            }
        }
    }
}

/// Returns the CPU time in seconds of processes that ended, with their descendants, and the memory
/// of the largest in bytes: the command, and launchers, which use little.
fn usage_of_children() -> (f64, u64) {
    // SAFETY: zero is valid for all fields, which are numbers; getrusage writes nothing else.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let kibibytes = u64::try_from(usage.ru_maxrss).unwrap_or_default();
    (
        seconds(usage.ru_utime) + seconds(usage.ru_stime),
        kibibytes << 10,
    )
}
