//! `pegel export`: stored samples as files for analysis. Reads an agent through its HTTP interface,
//! window by window, or a copy of a store without an agent; memory is bounded by one window.

mod agent_source;
mod stored_nodes;

use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use jiff::Timestamp;
use pegel_archive::{ArchiveExportError, ExportRun, ExportSource, ExportTotals};
use pegel_metric::quantity::bytes as byte_text;
use pegel_metric::{Millis, Selector};
use pegel_sample_file::SampleFileFormat;
use pegel_session::storage::{FilePlace, RecordPlace};

use crate::command_error::CommandError;
use crate::mark::parse_time_option;
use crate::node_access::{NodeArgs, list_nodes};
use crate::output;
use crate::storage_access;
use agent_source::AgentSource;

/// Write stored samples to files for analysis: Parquet or CSV, one folder per day and node
///
/// Reads the agent, or with --store a directory of samples without one. A parent exports every node
/// below it. Files appear when they are complete and never replace others: an export that is
/// repeated with the same --start and --end stores only what is missing. Exits with 4 if no sample
/// is selected, and with 1 if a node could not be exported; the others are.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Where to store the files: DIR, file:///DIR, s3://BUCKET[/PREFIX],
    /// azblob://ACCOUNT/CONTAINER[/PREFIX] or gs://BUCKET[/PREFIX]; credentials are taken from the
    /// environment, as for `pegel session`
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// Export only series that contain TEXT, or match a glob or matchers: `cpu`, `node_*_bytes`,
    /// `{mode="idle"}`; may be repeated, any may match
    #[arg(long = "match", value_name = "TEXT")]
    patterns: Vec<String>,
    /// Export samples from this time on: seconds since 1970, RFC 3339, or before now: -6h
    /// [default: the oldest]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    start: Option<String>,
    /// Export samples before this time [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    end: Option<String>,
    /// Format of the files
    #[arg(short, long, value_enum, default_value_t = ExportFormat::Parquet)]
    format: ExportFormat,
    /// Read the samples in DIR instead of an agent's: a directory of `pegel job --out`, or the
    /// store of an agent that does not run
    #[arg(long, value_name = "DIR", conflicts_with_all = ["socket", "node"])]
    store: Option<PathBuf>,
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ExportFormat {
    /// For pyarrow, pandas, DuckDB, Spark
    Parquet,
    /// Text; times in milliseconds
    Csv,
}

impl ExportFormat {
    fn of_files(self) -> SampleFileFormat {
        match self {
            ExportFormat::Parquet => SampleFileFormat::Parquet,
            ExportFormat::Csv => SampleFileFormat::Csv,
        }
    }
}

pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let times = ExportTimes::parse(args)?;
    let place = parse_place(&args.to)?;
    let credentials = storage_access::credentials()?.for_place(&place);
    let opened = FilePlace::open(&place, &credentials, &storage_access::endpoints());
    let opened = opened.map_err(|problem| anyhow::anyhow!("{}", problem.text))?;
    let mut export = NodeExport {
        run: ExportRun::new(opened, args.format.of_files()),
        times,
        began: Instant::now(),
        failures: Vec::new(),
    };
    match &args.store {
        Some(dir) => stored_nodes::export(dir, selector(&args.patterns)?, &mut export)?,
        None => export_agent(args, &mut export)?,
    }
    export.finish(&place)
}

/// Exports the agent, the node of `--node`, or on a parent all nodes.
fn export_agent(args: &ExportArgs, export: &mut NodeExport) -> anyhow::Result<()> {
    // Checks the patterns before the first request.
    selector(&args.patterns)?;
    let client = args.node.client(args.socket.as_deref())?;
    let listing = match args.node.node {
        Some(_) => None,
        None => Some(list_nodes(&client)?).filter(|listing| !listing.is_single()),
    };
    let format = args.format.of_files();
    let Some(listing) = listing else {
        let listed = args.node.node.as_deref();
        let mut source = AgentSource::new(client, listed, &args.patterns, format)?;
        return export.export_agent(&mut source);
    };
    for node in &listing.nodes {
        let name = node.node.as_str();
        if node.state != "up" && name != listing.own {
            export.fail(name, &node.state);
            continue;
        }
        let client = match name == listing.own {
            true => client.of_agent(),
            false => client.of_agent().through_node(name),
        };
        match AgentSource::new(client, Some(name), &args.patterns, format) {
            Ok(mut source) => export.export_agent(&mut source)?,
            Err(error) => export.fail(name, &format!("{error:#}")),
        }
    }
    Ok(())
}

/// Parses a place; a path is a directory.
fn parse_place(text: &str) -> anyhow::Result<RecordPlace> {
    if text.contains("://") {
        return storage_access::parse_place(text);
    }
    let dir = std::path::absolute(text);
    let dir = dir.map_err(|error| CommandError::usage(format!("--to {text}: {error}")))?;
    Ok(RecordPlace::Directory(dir))
}

fn selector(patterns: &[String]) -> anyhow::Result<Selector> {
    if patterns.is_empty() {
        return Ok(Selector::all());
    }
    let parsed = patterns.iter().map(|pattern| {
        let parsed = Selector::parse(pattern);
        parsed.map_err(|error| CommandError::usage(format!("--match {pattern}: {error}")))
    });
    let parsed: anyhow::Result<Vec<Selector>> = parsed.collect();
    Ok(Selector::any(parsed?))
}

/// The times that the user selected.
#[derive(Debug, Clone, Copy)]
struct ExportTimes {
    start: Option<Millis>,
    end: Option<Millis>,
}

impl ExportTimes {
    fn parse(args: &ExportArgs) -> anyhow::Result<ExportTimes> {
        let now = Timestamp::now();
        let time = |option: &str, text: &Option<String>| {
            let Some(text) = text else { return Ok(None) };
            if let Ok(time) = text.parse::<Timestamp>() {
                return Ok(Some(time.as_millisecond()));
            }
            let time = parse_time_option(option, text, now);
            time.map(Some).map_err(|problem| {
                CommandError::usage(format!("{problem}, or RFC 3339 (2026-11-18T12:00:00Z)"))
            })
        };
        let times = ExportTimes {
            start: time("--start", &args.start)?,
            end: time("--end", &args.end)?,
        };
        match (times.start, times.end) {
            (Some(start), Some(end)) if start >= end => {
                Err(CommandError::usage("--start is not before --end"))
            }
            _ => Ok(times),
        }
    }
}

/// The export of all nodes.
struct NodeExport {
    run: ExportRun,
    times: ExportTimes,
    began: Instant,
    /// The nodes that are not exported, or not completely, with the reasons.
    failures: Vec<String>,
}

impl NodeExport {
    /// Records that a node is not exported completely. The others are: what is missing can be
    /// exported later.
    fn fail(&mut self, node: &str, reason: &str) {
        let text = format!("{node}: {reason}");
        self.failures
            .push(pegel_metric::escape_unprintable(&text).into_owned());
    }

    /// Exports an agent.
    fn export_agent(&mut self, source: &mut AgentSource) -> anyhow::Result<()> {
        let (node, range) = (source.node().to_owned(), source.range());
        self.export(&node, range, source)
    }

    /// Exports one node, whose samples are in `range`. Fails if the place cannot be used.
    fn export(
        &mut self,
        node: &str,
        range: Option<Range<Millis>>,
        source: &mut dyn ExportSource,
    ) -> anyhow::Result<()> {
        let Some(range) = range else { return Ok(()) };
        let start = self.times.start.unwrap_or(range.start).max(range.start);
        let end = self.times.end.unwrap_or(range.end).min(range.end);
        let shows_progress = output::stderr_is_terminal();
        let exported = self
            .run
            .export_node(node, start..end, source, &mut |totals, until| {
                if shows_progress {
                    let part = (until - start) * 100 / (end - start).max(1);
                    output::progress(&format!("{node}: {part} %, {}", totals_text(totals)));
                }
            });
        if shows_progress {
            output::progress("");
        }
        match exported {
            Ok(()) => {}
            Err(ArchiveExportError::Storage(problem)) => anyhow::bail!("{}", problem.text),
            Err(ArchiveExportError::Read(error)) => self.fail(node, &error.to_string()),
            Err(error) => self.fail(node, &error.to_string()),
        }
        Ok(())
    }

    fn finish(&self, place: &RecordPlace) -> anyhow::Result<()> {
        let totals = &self.run.totals;
        if totals.samples > 0 {
            let seconds = self.began.elapsed().as_secs_f64();
            let text = format!("{place}: {} in {seconds:.1} s\n", totals_text(totals));
            output::write(None, &text)?;
        }
        if !self.failures.is_empty() {
            anyhow::bail!("not exported: {}", self.failures.join("; "));
        }
        match totals.samples {
            0 => Err(CommandError::nothing_matched("no sample is selected")),
            _ => Ok(()),
        }
    }
}

fn totals_text(totals: &ExportTotals) -> String {
    let existing = match totals.existing_files {
        0 => String::new(),
        count => format!(" ({count} more existed)"),
    };
    format!(
        "{} files{existing}, {} samples, {}",
        totals.files,
        totals.samples,
        byte_text(totals.bytes)
    )
}
