//! `pegel version`.

use crate::{format, output};

/// Print the version
#[derive(Debug, clap::Args)]
pub struct VersionArgs {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &VersionArgs) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let text = if args.json {
        format::json::version(version)
    } else {
        format!("pegel {version}\n")
    };
    output::write(None, &text)
}
