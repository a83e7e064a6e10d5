//! The tasks of workflow engines, which run their tasks under the batch systems that
//! [`pegel_snapshot::job`] detects.

use std::path::Path;

use pegel_snapshot::job::VariableLookup;

/// A task as its engine names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EngineTask {
    pub(crate) engine: &'static str,
    pub(crate) workflow: Option<String>,
    pub(crate) task: String,
    pub(crate) attempt: Option<String>,
}

/// Returns the task of a process with this environment and working directory.
pub(crate) fn detect_engine_task(
    environment: VariableLookup<'_>,
    working_dir: &Path,
    runner_task: Option<&str>,
) -> Option<EngineTask> {
    cromwell(working_dir)
        .or_else(|| nextflow(environment, working_dir))
        .or_else(|| tes(environment, runner_task?))
}

/// Cromwell: `…/cromwell-executions/WORKFLOW/ID/call-TASK/[shard-N/][attempt-N/]execution`.
fn cromwell(working_dir: &Path) -> Option<EngineTask> {
    let parts: Vec<&str> = working_dir
        .iter()
        .filter_map(|part| part.to_str())
        .collect();
    let root = parts
        .iter()
        .position(|part| *part == "cromwell-executions")?;
    // A workflow within another one has its own folder: the innermost call is the task.
    let is_call = |part: &&str| part.starts_with("call-");
    let call = parts.iter().rposition(is_call).filter(|at| *at > root)?;
    let id = parts.get(root + 2)?;
    let after = |prefix: &str| {
        parts[call..]
            .iter()
            .find_map(|part| part.strip_prefix(prefix))
    };
    let name = parts[call].strip_prefix("call-")?;
    let task = match after("shard-") {
        Some(shard) => format!("{name}-{shard}"),
        None => name.to_owned(),
    };
    Some(EngineTask {
        engine: "cromwell",
        workflow: Some((*id).to_owned()),
        task,
        attempt: after("attempt-").map(str::to_owned),
    })
}

/// Nextflow: the last two folders of a task's work directory are the hash that names it.
fn nextflow(environment: VariableLookup<'_>, working_dir: &Path) -> Option<EngineTask> {
    let dir = environment("NXF_TASK_WORKDIR");
    let dir = dir.as_deref().map_or(working_dir, Path::new);
    let rest = dir.file_name()?.to_str()?;
    let first = dir.parent()?.file_name()?.to_str()?;
    let is_hash = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    if first.len() != 2 || rest.len() != 30 || !is_hash(first) || !is_hash(rest) {
        return None;
    }
    let run = environment("NXF_RUN_NAME").or_else(|| environment("NXF_UUID"));
    Some(EngineTask {
        engine: "nextflow",
        workflow: Some(run.unwrap_or_else(|| "nextflow".to_owned())),
        task: format!("{first}{}", &rest[..6]),
        attempt: environment("NXF_TASK_ATTEMPT"),
    })
}

/// TES on Azure: `Id` of `runner-task.json` in the task's directory.
fn tes(environment: VariableLookup<'_>, runner_task: &str) -> Option<EngineTask> {
    let document: serde_json::Value = serde_json::from_str(runner_task).ok()?;
    let id = document.get("Id")?.as_str()?;
    // A task of a workflow has an ID such as `0c1d2e3f_4a5b…`; the part before the underscore is
    // common to the workflow.
    let workflow = id.split_once('_').map(|(workflow, _)| workflow.to_owned());
    Some(EngineTask {
        engine: "tes",
        workflow: workflow.or_else(|| environment("AZ_BATCH_JOB_ID")),
        task: id.to_owned(),
        attempt: None,
    })
}
