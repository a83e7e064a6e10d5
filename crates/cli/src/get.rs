use crate::ask::{self, Ask};
use crate::failure::Failure;
use crate::{format, output};

/// Show the current values of named series
///
/// A bare name stands for all its series.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Names or series, with commas between them: node_load1,node_cpu_seconds_total{cpu="0",mode="idle"}
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    ask: Ask,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let names = ask::names(&args.names)?;
    let selector = args.ask.selector()?;
    let mut readings = ask::values(&args.ask.client()?, &[("names", &names.join(","))])?;
    let missing = ask::missing(&names, &readings);
    if let Some(selector) = &selector {
        readings.retain(|reading| ask::fits(selector, &reading.name));
    }
    if readings.is_empty() {
        let message = format!(
            "no series named {}; `pegel list` shows all",
            names.join(", ")
        );
        return Err(Failure::nothing_matched(message));
    }
    args.ask.write(&format::values(
        args.ask.format(),
        &readings,
        args.ask.page(),
    ))?;
    for name in missing {
        output::note(&format!("pegel: no series named {name}"));
    }
    Ok(())
}
