//! `pegel version`.

use crate::{format, output};

/// Print the version
#[derive(Debug, clap::Args)]
pub(crate) struct VersionArgs {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &VersionArgs) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let text = if args.json {
        format::json::version(version)
    } else {
        format!("pegel {version}\n")
    };
    output::write(None, &text)
}
