use crate::{format, output};

/// Say which version this is
#[derive(Debug, clap::Args)]
pub struct VersionArgs {
    /// As a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &VersionArgs) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let text = match args.json {
        true => format::json::version(version),
        false => format!("pegel {version}\n"),
    };
    output::write(None, &text)
}
