//! `pegel track`: follows values over time and writes the changes until a signal or the end of the
//! agent.

pub(crate) mod event_stream;
mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::agent_client::AgentClient;
use crate::agent_query::{self, AgentQueryArgs, fetch_series_list};
use crate::api_values::SeriesValue;
use crate::command_error::{CommandError, NO_AGENT, PARTLY_MATCHED};
use crate::format::OutputFormat;
use crate::output;
use crate::series_query::{SeriesQuery, Unmatched};
use event_stream::AgentEventStream;
use writer::TrackWriter;

const HZ_MAX: f64 = 1000.0;

/// Follow values over time and write changes until interrupted
///
/// NAMES are names, globs or matchers. Without names, tracks all nonzero counters. Exits with 5 if
/// a name had no series until the end.
#[derive(Debug, clap::Args)]
pub(crate) struct TrackArgs {
    /// Comma-separated names, globs or matchers: node_load1, 'node_network_*_bytes_total'
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
    pub series: SeriesQuery,
    pub hz: f64,
    pub format: OutputFormat,
    pub output: Option<PathBuf>,
}

pub(crate) fn run(args: &TrackArgs) -> anyhow::Result<()> {
    let tracking = TrackOptions {
        series: args.query.series(&args.names)?,
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
    let series = &tracking.series;
    let hz = tracking.hz.to_string();
    let mut query = vec![("rate", hz.as_str())];
    query.extend(series.parameters(true));
    let mut missing = MissingNames::default();
    if !series.selects_everything() {
        // Fail before creating the output file if no series matches.
        let readings = agent_query::fetch_values(client, &series.parameters(true))?;
        missing.0 = series.unmatched(readings.iter().map(|reading| reading.name.as_str()));
        if !readings.iter().any(|reading| series.matches(&reading.name)) {
            return Err(agent_query::no_match_error(client, series, &missing.0));
        }
        for line in agent_query::explain_all(client, series, &missing.0) {
            output::print_message(&format!("pegel: {line}"));
        }
    }
    let mut stream = AgentEventStream::open_until_signal(client, &query)?;
    let mut writer = TrackWriter::open(tracking.format, tracking.output.as_deref())?;
    let counters = series.selects_everything().then_some(&mut kinds);
    let followed = follow(&mut stream, &mut writer, counters, series, &mut missing);
    // Completes the file also after an error.
    writer.close()?;
    followed?;
    if stream.was_stopped() {
        return missing.error().map_or(Ok(()), Err);
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
    series: &SeriesQuery,
    missing: &mut MissingNames,
) -> anyhow::Result<()> {
    while let Some(mut step) = stream.next_step()? {
        if let Some(kinds) = &mut counters {
            step.retain(|reading| reading.value != 0.0);
            kinds.refresh(&step)?;
            step.retain(|reading| kinds.is_counter(&reading.name));
        }
        missing.update(series, &step);
        step.retain(|reading| series.matches(&reading.name));
        if !step.is_empty() {
            writer.step(&step)?;
        }
    }
    Ok(())
}

/// Names and patterns that no series of the stream matched yet.
#[derive(Debug, Default)]
struct MissingNames(Vec<Unmatched>);

impl MissingNames {
    fn update(&mut self, series: &SeriesQuery, step: &[SeriesValue]) {
        if !self.0.is_empty() {
            let absent = series.unmatched(step.iter().map(|reading| reading.name.as_str()));
            self.0.retain(|entry| absent.contains(entry));
        }
    }

    fn error(&self) -> Option<anyhow::Error> {
        let texts: Vec<&str> = self.0.iter().map(|entry| entry.text.as_str()).collect();
        let message = format!("no series appeared for {}", texts.join(", "));
        (!texts.is_empty()).then(|| CommandError::with_code(PARTLY_MATCHED, message))
    }
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
