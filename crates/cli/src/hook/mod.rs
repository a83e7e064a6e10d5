//! `pegel hook`: prints or installs the scripts and settings with which a batch system or workflow
//! engine records every task. The generated files call `pegel session start` and `pegel session
//! stop`; those of Flux run an agent with every broker.

mod engine_files;
mod quoting;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use pegel_machine::redact::{looks_like_secret, redact_address};

use crate::command_error::CommandError;
use crate::output;
pub(crate) use quoting::shell_word;

/// Print or install scripts and settings that record every task of a site
///
/// The files call `pegel session start` when a task starts and `pegel session stop` when it ends.
/// They have time limits, and a failure of pegel never fails a task.
#[derive(Debug, clap::Args)]
pub(crate) struct HookArgs {
    /// The system that runs the tasks
    #[arg(value_enum)]
    engine: HookEngine,
    /// Where records are stored: azblob://ACCOUNT/CONTAINER, s3://BUCKET, gs://BUCKET, file:///DIR;
    /// without credentials
    #[arg(long, value_name = "PLACE")]
    to: Option<String>,
    /// The program on the nodes [default: pegel in $PATH; for tes and azure-batch where the bundle
    /// or the start task installs it]
    #[arg(long, value_name = "PATH")]
    pegel: Option<String>,
    /// Address of the archive of `pegel bundle`, for tes and azure-batch; without credentials
    #[arg(long, value_name = "URL")]
    bundle: Option<String>,
    /// Write the files to DIR instead of standard output; created if missing
    #[arg(long, value_name = "DIR")]
    install: Option<PathBuf>,
    /// Overwrite files that pegel did not write
    #[arg(long, requires = "install")]
    force: bool,
}

/// A system that runs tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HookEngine {
    /// TES on Azure: lines for the batch script of each task
    Tes,
    /// Azure Batch: a start task and a wrapper for task commands
    AzureBatch,
    /// Cromwell: a wrapper and the configuration of a backend
    Cromwell,
    /// Nextflow: a configuration with beforeScript and afterScript
    Nextflow,
    /// Snakemake: a file to include in the Snakefile
    Snakemake,
    /// Slurm: a TaskProlog and an Epilog
    Slurm,
    /// Flux: rc1 and rc3 scripts that run an agent with every broker, and a job memo
    Flux,
}

/// A generated file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HookFile {
    name: &'static str,
    text: String,
    is_executable: bool,
}

/// The values that the generated files contain besides their fixed text.
#[derive(Debug)]
struct HookOptions {
    to: Option<String>,
    pegel: Option<String>,
    bundle: Option<String>,
    /// The folder of the files on the nodes.
    dir: String,
}

/// The folder of the files in what is printed.
const PRINTED_DIR: &str = "/etc/pegel/hooks";
/// The text that marks generated files: those may be overwritten.
const MARK: &str = "Written by `pegel hook`";

pub(crate) fn run(args: &HookArgs) -> anyhow::Result<()> {
    let dir = match &args.install {
        Some(dir) => std::path::absolute(dir).context("--install is not a valid path")?,
        None => PathBuf::from(PRINTED_DIR),
    };
    let Some(dir_text) = dir.to_str() else {
        return Err(CommandError::usage("--install: the path is not UTF-8"));
    };
    let options = HookOptions {
        to: checked("--to", args.to.as_deref())?,
        pegel: checked("--pegel", args.pegel.as_deref())?,
        bundle: checked("--bundle", args.bundle.as_deref())?,
        dir: dir_text.to_owned(),
    };
    let files = engine_files::files(args.engine, &options)?;
    match args.install {
        Some(_) => install(&dir, &files, args.force),
        None => output::write(None, &printed(&files)),
    }
}

/// Refuses credentials, which would be readable in the files, and characters that no path and no
/// URL needs.
pub(crate) fn checked(option: &str, text: Option<&str>) -> anyhow::Result<Option<String>> {
    let Some(text) = text else {
        return Ok(None);
    };
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(CommandError::usage(format!(
            "{option}: the value is empty or has control characters"
        )));
    }
    if looks_like_secret(text) || (text.contains("://") && redact_address(text) != text) {
        return Err(CommandError::usage(format!(
            "{option} {}: contains credentials, which would be readable in the files; \
             pass them in the environment of the task, such as AZURE_STORAGE_SAS_TOKEN",
            redact_address(text)
        )));
    }
    Ok(Some(text.to_owned()))
}

/// Returns one file as it is, and several with a line before each.
fn printed(files: &[HookFile]) -> String {
    if let [file] = files {
        return file.text.clone();
    }
    let parts = files
        .iter()
        .map(|file| format!("# ======== {} ========\n{}\n", file.name, file.text));
    parts.collect()
}

/// Writes all files, or none if one exists that pegel did not write.
fn install(dir: &Path, files: &[HookFile], is_forced: bool) -> anyhow::Result<()> {
    let cannot = |path: &Path| format!("cannot write {}", path.display());
    fs::create_dir_all(dir).with_context(|| cannot(dir))?;
    for file in files {
        let path = dir.join(file.name);
        let is_foreign = match fs::read(&path) {
            Ok(bytes) => !String::from_utf8_lossy(&bytes).contains(MARK),
            Err(_) => path.symlink_metadata().is_ok(),
        };
        if is_foreign && !is_forced {
            bail!(
                "{}: not written by pegel; no file was changed. --force overwrites it",
                path.display()
            );
        }
    }
    let mut report = String::new();
    for file in files {
        let path = dir.join(file.name);
        let folder = path.parent().unwrap_or(dir);
        fs::create_dir_all(folder).with_context(|| cannot(folder))?;
        // Replaced by rename: a shell reads a running script piece by piece. Flux runs every file
        // in its folders that can be executed.
        let temporary = dir.join(format!(
            ".{}.{}",
            file.name.replace('/', "."),
            std::process::id()
        ));
        let mode = if file.is_executable { 0o755 } else { 0o644 };
        let written = fs::write(&temporary, &file.text)
            .and_then(|()| fs::set_permissions(&temporary, fs::Permissions::from_mode(mode)))
            .and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            // Best effort: the error is reported below.
            let _ = fs::remove_file(&temporary);
        }
        written.with_context(|| cannot(&path))?;
        report.push_str(&format!("written {}\n", path.display()));
    }
    report.push_str("Comments in the files describe how to use them.\n");
    output::write(None, &report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_refused_and_not_repeated() {
        for text in [
            "azblob://acct/c?sv=1&sig=planted",
            "https://u:planted@host/x",
            "s3://b/token=planted",
        ] {
            let error = checked("--to", Some(text)).expect_err(text).to_string();
            assert!(
                !error.contains("planted") || text.starts_with("s3"),
                "{error}"
            );
        }
        assert!(checked("--to", Some("file:///tmp/a b")).is_ok());
        assert!(checked("--to", Some("a\nb")).is_err());
    }
}
