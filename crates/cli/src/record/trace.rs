//! `pegel record trace`: writes a trace file in Nextflow's format from the summaries of records.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use pegel_plain_file::read_plain;

use super::record_info::RecordInfo;
use super::source::{LoadedRecord, part_numbers};
use super::trace_fields::{GpuPeaks, TraceTask, TraceUnits, header_line, task_line};
use crate::output;

/// The depth of a record below a place: workflow, task, attempt.
const DEPTH_MAX: usize = 4;
/// The most records of one trace.
const RECORDS_MAX: usize = 100_000;
/// The most bytes of a script of Nextflow whose head is read.
const SCRIPT_BYTES_MAX: u64 = 64 << 10;

/// Write a trace file in the format of Nextflow's trace.txt
///
/// One line per record, separated by tabs, with Nextflow's columns, and further ones for I/O, GPUs
/// and exact peaks. What a record does not contain is "-".
#[derive(Debug, clap::Args)]
pub(super) struct TraceArgs {
    /// Local folders of records, or folders above them: a workflow, a place
    #[arg(required = true, value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// Nextflow's work directory, for the names and exit codes of its tasks
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Write plain numbers, as Nextflow does with `trace.raw = true`: milliseconds, bytes
    #[arg(long)]
    raw: bool,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &TraceArgs) -> anyhow::Result<()> {
    let mut folders = BTreeSet::new();
    for folder in &args.folders {
        find_records(folder, DEPTH_MAX, &mut folders)?;
    }
    if folders.is_empty() {
        bail!("no record in these folders; a record is a folder with parts record-NNNNN.pgl");
    }
    let mut tasks = Vec::new();
    for folder in &folders {
        let record = LoadedRecord::load(&folder.to_string_lossy())?;
        let info = RecordInfo::read(&record);
        let mut task = TraceTask::new(&info, GpuPeaks::read(&record));
        if let Some(work) = &args.work {
            add_names(work, &mut task);
        }
        tasks.push(task);
    }
    tasks.sort_by_key(|task| task.begin);
    let units = match args.raw {
        true => TraceUnits::Raw,
        false => TraceUnits::Readable,
    };
    let mut text = header_line();
    for (index, task) in tasks.iter().enumerate() {
        text.push_str(&task_line(index + 1, task, units));
    }
    output::write(args.output.as_deref(), &text)
}

/// Adds the folders with parts, at most `depth` below `dir`.
fn find_records(dir: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    if !part_numbers(dir)?.is_empty() {
        found.insert(dir.to_owned());
        if found.len() > RECORDS_MAX {
            bail!("more than {RECORDS_MAX} records; pass the folder of one workflow");
        }
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    let cannot = || format!("cannot read {}", dir.display());
    for entry in fs::read_dir(dir).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            find_records(&entry.path(), depth - 1, found)?;
        }
    }
    Ok(())
}

/// Completes a task from its work directory, whose name starts with its hash: `ab/cdef01…`.
fn add_names(work: &Path, task: &mut TraceTask) {
    let Some((first, rest)) = task.hash.as_deref().and_then(|hash| hash.split_once('/')) else {
        return;
    };
    let Ok(entries) = fs::read_dir(work.join(first)) else {
        return;
    };
    let dir = entries.flatten().find(|entry| {
        entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(rest))
    });
    let Some(dir) = dir.map(|entry| entry.path()) else {
        return;
    };
    let read = |name: &str| {
        let bytes = read_plain(&dir.join(name), SCRIPT_BYTES_MAX).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    if let Some(name) = read(".command.run").as_deref().and_then(task_name) {
        task.name = Some(name);
    }
    if task.exit.is_none() {
        task.exit = read(".exitcode").and_then(|text| text.trim().parse().ok());
    }
}

/// Returns the name in the head of `.command.run`: `### name: 'align (1)'`.
fn task_name(script: &str) -> Option<String> {
    let name = script
        .lines()
        .find_map(|line| line.strip_prefix("### name: '")?.strip_suffix('\''))?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_task_is_in_the_head_of_its_script() {
        let script = "#!/bin/bash\n### ---\n### name: 'align (sample 1)'\n### ...\n";
        assert_eq!(task_name(script).as_deref(), Some("align (sample 1)"));
        assert_eq!(task_name("#!/bin/bash\n"), None);
    }
}
