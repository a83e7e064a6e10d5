//! `pegel bundle`: one archive with the program, a configuration and a start script, for nodes on
//! which pegel is not installed.

mod archive;
mod config_file;
mod program_file;
mod upload;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use aws_lc_rs::digest;
use pegel_metric::quantity::bytes as byte_text;

use crate::command_error::CommandError;
use crate::hook::{checked, shell_word};
use crate::output;
use archive::ArchiveEntry;

const START_SCRIPT: &str = include_str!("start.sh");
/// The folder in the archive.
const FOLDER: &str = "pegel-bundle/";

/// Make one archive with the program, a configuration and a start script
///
/// Extracted below a task's directory, its start.sh installs the program on the node, outside of
/// that directory, and starts the record of the task. The same input gives the same bytes. Prints
/// size, checksum and the line for a batch script. The archive contains no secrets: a configuration
/// with one is refused, and its comments are removed.
#[derive(Debug, clap::Args)]
pub(crate) struct BundleArgs {
    /// The archive to write
    #[arg(long, value_name = "FILE.tar.gz")]
    out: PathBuf,
    /// The program [default: this one]; a static one runs on every node
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Configuration of the agent on the nodes
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where records are stored, unless the caller of start.sh passes --to; without credentials
    #[arg(long, value_name = "PLACE")]
    to: Option<String>,
    /// Store the archive here too: azblob://ACCOUNT/CONTAINER, s3://BUCKET, gs://BUCKET,
    /// file:///DIR; without credentials
    #[arg(long, value_name = "PLACE")]
    upload: Option<String>,
}

pub(crate) fn run(args: &BundleArgs) -> anyhow::Result<()> {
    let to = checked("--to", args.to.as_deref())?;
    let place = checked("--upload", args.upload.as_deref())?;
    let Some(name) = args.out.file_name().and_then(|name| name.to_str()) else {
        return Err(CommandError::usage("--out: not the name of a file"));
    };
    let program = match &args.binary {
        Some(path) => program_file::read_program(path)?,
        None => program_file::read_program(&own_program()?)?,
    };
    if program_file::is_dynamic(&program) {
        output::print_message(
            "pegel: the program is not static: it requires a C library on the nodes that is as new \
             as that of the machine where it was built",
        );
    }
    let config = args.config.as_deref().map(config_file::bundled_config);
    let archive = archive::gzipped_tar(entries(program, config.transpose()?, to.as_deref()))?;
    fs::write(&args.out, &archive)
        .with_context(|| format!("cannot write {}", args.out.display()))?;
    if let Some(place) = &place {
        upload::put_file(place, name, &archive)?;
    }
    output::write(None, &report(&args.out, place.as_deref(), name, &archive))
}

/// Returns the path of this program. It stays readable if the file was replaced meanwhile.
fn own_program() -> anyhow::Result<PathBuf> {
    fs::canonicalize("/proc/self/exe").context("cannot find this program; pass --binary")
}

fn entries(program: Vec<u8>, config: Option<String>, to: Option<&str>) -> Vec<ArchiveEntry> {
    let entry = |name: &str, mode: u32, content: Vec<u8>| ArchiveEntry {
        name: format!("{FOLDER}{name}"),
        mode,
        content,
    };
    let mut entries = vec![
        entry("", 0o755, Vec::new()),
        entry("pegel", 0o755, program),
        entry("start.sh", 0o755, start_script(to).into_bytes()),
    ];
    entries.extend(config.map(|text| entry("pegel.yaml", 0o644, text.into_bytes())));
    entries
}

/// Returns the start script. A place that its caller passes takes precedence.
fn start_script(to: Option<&str>) -> String {
    let default = match to {
        Some(place) => format!(
            "case \" $* \" in\n    *\" --to \"* | *\" --to=\"*) ;;\n    \
             *) set -- --to {} \"$@\" ;;\nesac",
            shell_word(place)
        ),
        None => String::new(),
    };
    START_SCRIPT.replace("@TO@", &default)
}

fn report(out: &Path, place: Option<&str>, name: &str, archive: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, archive);
    let checksum: String = { digest.as_ref().iter() }
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let stored = match place {
        Some(place) => format!("stored   {}/{name}\n", place.trim_end_matches('/')),
        None => String::new(),
    };
    format!(
        "written  {}\nsize     {} ({} bytes)\nsha256   {checksum}\n{stored}\n\
         For the batch script of a task, before its command:\n\n    {}\n",
        out.display(),
        byte_text(archive.len() as u64),
        archive.len(),
        upload::batch_line(place, name, &checksum)
    )
}
