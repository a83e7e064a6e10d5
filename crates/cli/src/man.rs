//! `pegel man`: manual pages, generated from the command line's definition.

use std::path::PathBuf;

use anyhow::Context;

/// Write the manual pages to a directory
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Output directory; created if missing
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(args: &ManArgs) -> anyhow::Result<()> {
    let cannot = || format!("cannot write manual pages to {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(cannot)?;
    clap_mangen::generate_to(crate::command(), &args.dir).with_context(cannot)
}
