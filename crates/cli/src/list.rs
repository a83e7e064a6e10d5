use crate::ask::{Ask, all_listed, fits};
use crate::failure::Failure;
use crate::format;

/// Show which series there are, and what they mean
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    ask: Ask,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let selector = args.ask.selector()?;
    let mut listed = all_listed(&args.ask.client()?)?;
    let total = listed.len();
    if let Some(selector) = &selector {
        listed.retain(|item| fits(selector, &item.name));
    }
    if listed.is_empty() {
        return Err(Failure::nothing_matched(match &args.ask.pattern {
            Some(pattern) => format!("none of {total} series fits \"{pattern}\""),
            None => "the agent has no series".to_owned(),
        }));
    }
    let title = format!("List of pegel metrics ({} of {total})", listed.len());
    args.ask
        .write(&format::list(args.ask.format(), &listed, &title))
}
