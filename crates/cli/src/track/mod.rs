//! `pegel track`: follows values over time and writes the changes until a signal or the end of the
//! agent.

pub(crate) mod event_stream;
mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use pegel_metric::Selector;

use crate::agent_client::AgentClient;
use crate::agent_query::{self, AgentQueryArgs, fetch_series_list};
use crate::api_values::SeriesValue;
use crate::command_error::{CommandError, NO_AGENT};
use crate::format::OutputFormat;
use event_stream::AgentEventStream;
use writer::TrackWriter;

const HZ_MAX: f64 = 1000.0;

/// Follow values over time and write changes until interrupted
///
/// Without names, tracks all nonzero counters.
#[derive(Debug, clap::Args)]
pub(crate) struct TrackArgs {
    /// Comma-separated names or series
    names: Vec<String>,
    /// Sampling frequency in Hz, up to 1000
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value = "2")]
    hz: String,
    #[command(flatten)]
    query: AgentQueryArgs,
}

/// Series to follow, frequency and output.
#[derive(Debug)]
pub(crate) struct TrackOptions {
    pub names: Vec<String>,
    pub pattern: Option<String>,
    pub hz: f64,
    pub format: OutputFormat,
    pub output: Option<PathBuf>,
}

pub(crate) fn run(args: &TrackArgs) -> anyhow::Result<()> {
    args.query.selector()?;
    let names = match args.names.as_slice() {
        [] => Vec::new(),
        names => agent_query::parse_names(names)?,
    };
    let tracking = TrackOptions {
        names,
        pattern: args.query.pattern.clone(),
        hz: parse_frequency(&args.hz)?,
        format: args.query.format(),
        output: args.query.output.clone(),
    };
    track(&args.query.client()?, &tracking)
}

pub(crate) fn parse_frequency(text: &str) -> anyhow::Result<f64> {
    match text.trim().parse::<f64>() {
        Ok(hz) if hz > 0.0 && hz <= HZ_MAX => Ok(hz),
        _ => Err(CommandError::usage(format!(
            "-F {text}: expected a frequency in Hz, greater than 0 and at most {HZ_MAX}"
        ))),
    }
}

pub(crate) fn track(client: &AgentClient, tracking: &TrackOptions) -> anyhow::Result<()> {
    let mut kinds = CounterLookup {
        client,
        is_counter: HashMap::new(),
    };
    let wants_all = tracking.names.is_empty() && tracking.pattern.is_none();
    let names = tracking.names.join(",");
    let hz = tracking.hz.to_string();
    let mut query = vec![("rate", hz.as_str())];
    if !names.is_empty() {
        // Fail before creating the output file if no series matches.
        if agent_query::fetch_values(client, &[("names", &names)])?.is_empty() {
            let message = format!("no series named {names}; `pegel list` lists all");
            return Err(CommandError::nothing_matched(message));
        }
        query.push(("names", &names));
    }
    let mut filter = None;
    match &tracking.pattern {
        // The agent combines names and patterns with OR; this command requires both.
        Some(pattern) if !names.is_empty() => filter = Some(agent_query::parse_selector(pattern)?),
        Some(pattern) => query.push(("match", pattern)),
        None => {}
    }
    let mut stream = AgentEventStream::open_until_signal(client, &query)?;
    let mut writer = TrackWriter::open(tracking.format, tracking.output.as_deref())?;
    let followed = follow(
        &mut stream,
        &mut writer,
        wants_all.then_some(&mut kinds),
        filter.as_ref(),
    );
    // Completes the file also after an error.
    writer.close()?;
    followed?;
    if stream.was_stopped() {
        return Ok(());
    }
    Err(CommandError::with_code(
        NO_AGENT,
        agent_lost_message(tracking.output.as_deref()),
    ))
}

/// Writes steps until the stream ends, by a signal or with the agent.
fn follow(
    stream: &mut AgentEventStream,
    writer: &mut TrackWriter,
    mut counters: Option<&mut CounterLookup<'_>>,
    filter: Option<&Selector>,
) -> anyhow::Result<()> {
    while let Some(mut step) = stream.next_step()? {
        if let Some(kinds) = &mut counters {
            step.retain(|reading| reading.value != 0.0);
            kinds.refresh(&step)?;
            step.retain(|reading| kinds.is_counter(&reading.name));
        }
        if let Some(filter) = filter {
            step.retain(|reading| agent_query::series_matches(filter, &reading.name));
        }
        if !step.is_empty() {
            writer.step(&step)?;
        }
    }
    Ok(())
}

fn agent_lost_message(output: Option<&Path>) -> String {
    match output {
        Some(path) => format!(
            "lost connection to the agent; {} holds the values received so far",
            path.display()
        ),
        None => "lost connection to the agent".to_owned(),
    }
}

/// Cache of which series are counters, refreshed from the agent when an unknown series appears.
struct CounterLookup<'a> {
    client: &'a AgentClient,
    is_counter: HashMap<String, bool>,
}

impl CounterLookup<'_> {
    fn refresh(&mut self, step: &[SeriesValue]) -> anyhow::Result<()> {
        if step
            .iter()
            .all(|reading| self.is_counter.contains_key(&reading.name))
        {
            return Ok(());
        }
        // Errors are ignored: the stream detects a lost agent.
        for item in fetch_series_list(self.client).unwrap_or_default() {
            self.is_counter.insert(item.name, item.kind == "counter");
        }
        // Cache series missing from the list as well, to avoid repeated requests.
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
    fn frequencies_out_of_range_are_rejected() {
        assert_eq!(parse_frequency("0.5").ok(), Some(0.5));
        assert_eq!(parse_frequency("1000").ok(), Some(1000.0));
        for text in ["0", "-1", "1001", "fast", "nan", "inf", ""] {
            assert!(parse_frequency(text).is_err(), "{text}");
        }
    }
}
