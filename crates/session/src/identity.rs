//! The identity of a session: workflow, task and attempt. Names that the user does not pass come
//! from the workflow engine, else from the batch system, else from the cgroup.

use std::path::Path;

use pegel_snapshot::job::{Job, VariableLookup, detect_job};
use serde::{Deserialize, Serialize};

use crate::workflow_engines::detect_engine_task;

/// The most bytes of a name.
const NAME_BYTES_MAX: usize = 120;
/// The workflow of a task that belongs to none.
const NO_WORKFLOW: &str = "none";

/// The names of one record. Each is a valid path component on every storage.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionIdentity {
    pub workflow: String,
    pub task: String,
    pub attempt: String,
}

/// Names that the user passed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedNames {
    pub workflow: Option<String>,
    pub task: Option<String>,
    pub attempt: Option<String>,
}

/// The process that starts a session.
pub struct CallerContext<'a> {
    pub environment: VariableLookup<'a>,
    pub working_dir: &'a Path,
    /// The content of its `/proc/PID/cgroup`.
    pub cgroup: &'a str,
    /// The content of `runner-task.json` in its working directory.
    pub runner_task: Option<&'a str>,
}

impl std::fmt::Debug for CallerContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The environment may contain secrets.
        f.debug_struct("CallerContext")
            .field("working_dir", &self.working_dir)
            .field("cgroup", &self.cgroup)
            .finish_non_exhaustive()
    }
}

impl SessionIdentity {
    /// Completes the names that the user passed. Returns `None` if nothing names the task.
    pub fn resolve(
        requested: &RequestedNames,
        caller: &CallerContext<'_>,
    ) -> Option<SessionIdentity> {
        let detected = RequestedNames::detect(caller);
        let name = |requested: &Option<String>, detected: Option<String>| {
            let name = requested.clone().or(detected)?;
            Some(path_component(&name))
        };
        Some(SessionIdentity {
            task: name(&requested.task, detected.task)?,
            workflow: name(&requested.workflow, detected.workflow)
                .unwrap_or_else(|| NO_WORKFLOW.to_owned()),
            attempt: name(&requested.attempt, detected.attempt).unwrap_or_else(|| "1".to_owned()),
        })
    }

    /// Returns the folder of the record below its place.
    pub fn folder(&self) -> String {
        format!("{}/{}/{}", self.workflow, self.task, self.attempt)
    }
}

impl RequestedNames {
    fn detect(caller: &CallerContext<'_>) -> RequestedNames {
        let environment = |name: &str| {
            let value = (caller.environment)(name)?;
            (!value.is_empty()).then_some(value)
        };
        let engine_task = detect_engine_task(&environment, caller.working_dir, caller.runner_task);
        if let Some(found) = engine_task {
            return RequestedNames {
                workflow: found.workflow,
                task: Some(found.task),
                attempt: found.attempt,
            };
        }
        let job = detect_job(&environment, caller.cgroup);
        job.map(RequestedNames::of_job).unwrap_or_default()
    }

    /// The job is the workflow; its task is the index in an array, else the task or the name.
    fn of_job(job: Job) -> RequestedNames {
        let attempt = match job.scheduler {
            // These count restarts from 0.
            "slurm" | "google-batch" | "grid-engine" => next_attempt(job.attempt.as_deref()),
            _ => job.attempt,
        };
        // A task of AWS Batch in an array is `ID:INDEX`.
        let id = match job.scheduler {
            "aws-batch" => job.id.split(':').next().unwrap_or_default().to_owned(),
            _ => job.id,
        };
        // Elsewhere a task is a rank or a process of the job.
        let is_named = matches!(job.scheduler, "azure-batch" | "aws-batch");
        let task = job.task.filter(|_| is_named);
        let task = job.array_index.or(task).or(job.name);
        RequestedNames {
            task: Some(task.unwrap_or_else(|| id.clone())),
            workflow: Some(job.array_id.unwrap_or(id)),
            attempt,
        }
    }
}

/// Returns the number of an attempt from the number of restarts.
fn next_attempt(restarts: Option<&str>) -> Option<String> {
    let restarts: u64 = restarts?.parse().ok()?;
    Some(restarts.saturating_add(1).to_string())
}

/// Returns a name that is one path component on every storage: not empty, not `.` or `..`, no
/// separators, no control characters, at most 120 bytes.
pub fn path_component(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '@');
    let plain = name
        .trim()
        .chars()
        .map(|c| if is_plain(c) { c } else { '_' });
    let mut plain: String = plain.take(NAME_BYTES_MAX).collect();
    if plain.chars().all(|c| c == '.') {
        plain.insert(0, '_');
        plain.truncate(NAME_BYTES_MAX);
    }
    plain
}

#[cfg(test)]
mod tests;
