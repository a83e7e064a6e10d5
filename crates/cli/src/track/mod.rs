//! Follows values over time and writes what changed.

pub mod stream;
mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use pegel_metric::Selector;

use crate::answer::Reading;
use crate::ask::{self, Ask, all_listed};
use crate::client::Client;
use crate::failure::{Failure, NO_AGENT};
use crate::format::Format;
use stream::Stream;
use writer::Writer;

const HZ_MAX: f64 = 1000.0;

/// Follow values over time and write what changes, until interrupted
///
/// Without names: every counter that is not zero.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Names or series, with commas between them
    names: Vec<String>,
    /// How often to look, in times per second, up to 1000
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value = "2")]
    hz: String,
    #[command(flatten)]
    ask: Ask,
}

/// What to follow, and where it goes.
#[derive(Debug)]
pub struct Tracking {
    pub names: Vec<String>,
    pub pattern: Option<String>,
    pub hz: f64,
    pub format: Format,
    pub output: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    args.ask.selector()?;
    let names = match args.names.as_slice() {
        [] => Vec::new(),
        names => ask::names(names)?,
    };
    let tracking = Tracking {
        names,
        pattern: args.ask.pattern.clone(),
        hz: frequency(&args.hz)?,
        format: args.ask.format(),
        output: args.ask.output.clone(),
    };
    track(&args.ask.client()?, &tracking)
}

pub fn frequency(text: &str) -> anyhow::Result<f64> {
    match text.trim().parse::<f64>() {
        Ok(hz) if hz > 0.0 && hz <= HZ_MAX => Ok(hz),
        _ => Err(Failure::usage(format!(
            "-F {text}: a number of times per second is needed, more than 0 and at most {HZ_MAX}"
        ))),
    }
}

pub fn track(client: &Client, tracking: &Tracking) -> anyhow::Result<()> {
    let mut kinds = Kinds {
        client,
        is_counter: HashMap::new(),
    };
    let wants_all = tracking.names.is_empty() && tracking.pattern.is_none();
    let names = tracking.names.join(",");
    let hz = tracking.hz.to_string();
    let mut query = vec![("rate", hz.as_str())];
    if !names.is_empty() {
        // Nothing is written for names that nobody knows.
        if ask::values(client, &[("names", &names)])?.is_empty() {
            let message = format!("no series named {names}; `pegel list` shows all");
            return Err(Failure::nothing_matched(message));
        }
        query.push(("names", &names));
    }
    let mut filter = None;
    match &tracking.pattern {
        // The agent takes names and patterns for alternatives; here both must hold.
        Some(pattern) if !names.is_empty() => filter = Some(ask::selector(pattern)?),
        Some(pattern) => query.push(("match", pattern)),
        None => {}
    }
    let mut stream = Stream::open(client, &query)?;
    let mut writer = Writer::open(tracking.format, tracking.output.as_deref())?;
    let followed = follow(
        &mut stream,
        &mut writer,
        wants_all.then_some(&mut kinds),
        filter.as_ref(),
    );
    // Whatever ended it: what was written so far becomes a whole file.
    writer.close()?;
    followed?;
    if stream.was_stopped() {
        return Ok(());
    }
    Err(Failure::coded(
        NO_AGENT,
        agent_gone(tracking.output.as_deref()),
    ))
}

/// Returns when the stream ends, by a signal or with the agent.
fn follow(
    stream: &mut Stream,
    writer: &mut Writer,
    mut counters: Option<&mut Kinds<'_>>,
    filter: Option<&Selector>,
) -> anyhow::Result<()> {
    while let Some(mut step) = stream.next_step()? {
        if let Some(kinds) = &mut counters {
            step.retain(|reading| reading.value != 0.0);
            kinds.learn(&step)?;
            step.retain(|reading| kinds.is_counter(&reading.name));
        }
        if let Some(filter) = filter {
            step.retain(|reading| ask::fits(filter, &reading.name));
        }
        if !step.is_empty() {
            writer.step(&step)?;
        }
    }
    Ok(())
}

fn agent_gone(output: Option<&Path>) -> String {
    match output {
        Some(path) => format!(
            "the agent went away; {} holds what came until then",
            path.display()
        ),
        None => "the agent went away".to_owned(),
    }
}

/// Which series are counters, asked anew when one appears that was not there before.
struct Kinds<'a> {
    client: &'a Client,
    is_counter: HashMap<String, bool>,
}

impl Kinds<'_> {
    fn learn(&mut self, step: &[Reading]) -> anyhow::Result<()> {
        if step
            .iter()
            .all(|reading| self.is_counter.contains_key(&reading.name))
        {
            return Ok(());
        }
        // An agent that is gone by now is noticed by the stream.
        for item in all_listed(self.client).unwrap_or_default() {
            self.is_counter.insert(item.name, item.kind == "counter");
        }
        // What the list does not name either is not asked for again and again.
        for reading in step {
            self.is_counter.entry(reading.name.clone()).or_insert(false);
        }
        Ok(())
    }

    fn is_counter(&self, name: &str) -> bool {
        self.is_counter.get(name).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_have_a_range() {
        assert_eq!(frequency("0.5").ok(), Some(0.5));
        assert_eq!(frequency("1000").ok(), Some(1000.0));
        for text in ["0", "-1", "1001", "fast", "nan", "inf", ""] {
            assert!(frequency(text).is_err(), "{text}");
        }
    }
}
