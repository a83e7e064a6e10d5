use crate::ask::{self, Ask};
use crate::failure::Failure;
use crate::format;

/// Show the current value of every series
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    ask: Ask,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    // A pattern that is wrong is said before anyone is asked.
    args.ask.selector()?;
    let query: Vec<(&str, &str)> = args
        .ask
        .pattern
        .iter()
        .map(|pattern| ("match", pattern.as_str()))
        .collect();
    let readings = ask::values(&args.ask.client()?, &query)?;
    if readings.is_empty() {
        return Err(Failure::nothing_matched(match &args.ask.pattern {
            Some(pattern) => format!("no series fits \"{pattern}\"; `pegel list` shows all"),
            None => "the agent has no values".to_owned(),
        }));
    }
    args.ask.write(&format::values(
        args.ask.format(),
        &readings,
        args.ask.page(),
    ))
}
