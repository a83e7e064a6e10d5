//! `pegel snapshot`: hardware, kernel, cloud and job of this machine, read without an agent.

use std::path::PathBuf;

use pegel_snapshot::{Snapshot, Timestamp};

use crate::command_error::{CommandError, USAGE};
use crate::output;

/// Describe this machine on one page; requires no agent
#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotArgs {
    /// Output format [default: by the extension of FILE, else md]
    #[arg(short, long, value_enum)]
    format: Option<SnapshotFormat>,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Configuration file [default: $PEGEL_CONFIG, $DRAGON_TELEMETRY_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SnapshotFormat {
    /// Markdown
    Md,
    /// One JSON object
    Json,
    /// YAML
    Yaml,
}

impl SnapshotFormat {
    fn from_extension(extension: &str) -> Option<SnapshotFormat> {
        match extension.to_ascii_lowercase().as_str() {
            "md" => Some(SnapshotFormat::Md),
            "json" => Some(SnapshotFormat::Json),
            "yaml" | "yml" => Some(SnapshotFormat::Yaml),
            _ => None,
        }
    }

    fn text(self, snapshot: &Snapshot) -> String {
        match self {
            SnapshotFormat::Md => snapshot.markdown(),
            SnapshotFormat::Json => snapshot.json(),
            SnapshotFormat::Yaml => snapshot.yaml(),
        }
    }
}

pub(crate) fn run(args: &SnapshotArgs) -> anyhow::Result<()> {
    let environment = |name: &str| std::env::var_os(name);
    let loaded = pegel_agent::load_config(args.config.clone(), &[], &environment)
        .map_err(|error| CommandError::with_code(USAGE, error.to_string()))?;
    let extension = args.output.as_ref().and_then(|path| path.extension());
    let extension = extension.and_then(|extension| extension.to_str());
    let format = args
        .format
        .or_else(|| extension.and_then(SnapshotFormat::from_extension));
    let subject = pegel_agent::snapshot_options(&loaded, &environment);
    let snapshot = subject.take(Timestamp::now());
    let text = format.unwrap_or(SnapshotFormat::Md).text(&snapshot);
    output::write(args.output.as_deref(), &text)
}
