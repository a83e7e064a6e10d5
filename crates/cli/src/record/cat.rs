//! `pegel record cat`: prints the samples or the documents of a record. Blocks are decoded one
//! after the other; damage is reported on standard error, and the rest is printed.

use std::io::Write;

use anyhow::Context;
use pegel_record::{BlockContent, RecordEvent, RecordReader};
use serde_json::{Value, json};

use super::check::BlockProblem;
use super::openmetrics;
use super::sample_filter::SampleFilter;
use super::sample_lines::SampleLines;
use super::source::LoadedRecord;
use crate::command_error::CommandError;
use crate::output;

/// Print the samples of a record
///
/// Damage is reported on standard error, and everything else is printed. Exits with 4 if nothing is
/// selected.
#[derive(Debug, clap::Args)]
pub(super) struct CatArgs {
    /// Part, folder or URL of a record, or - for standard input
    record: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = SampleFormat::Csv)]
    format: SampleFormat,
    /// Print only series that contain TEXT, or match a glob or matchers: `cpu`, `node_*_bytes`,
    /// `{mode="idle"}`; may be repeated, any may match
    #[arg(long = "match", value_name = "TEXT")]
    patterns: Vec<String>,
    /// Print only samples from this time on: seconds since 1970 or RFC 3339
    #[arg(long, value_name = "TIME")]
    start: Option<String>,
    /// Print only samples up to this time
    #[arg(long, value_name = "TIME")]
    end: Option<String>,
    /// Print documents, autopsies and the summary instead of samples, one JSON object per line
    #[arg(long, conflicts_with_all = ["format", "patterns"])]
    documents: bool,
}

/// The format of samples, option `-f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum SampleFormat {
    /// name, time in seconds, value; in the order of the record
    Csv,
    /// One JSON object per sample and line, in the order of the record
    Jsonl,
    /// OpenMetrics text with timestamps, by family and series
    Openmetrics,
}

pub(super) fn run(args: &CatArgs) -> anyhow::Result<()> {
    let (start, end) = (args.start.as_deref(), args.end.as_deref());
    let mut filter = SampleFilter::parse(&args.patterns, start, end)?;
    let record = LoadedRecord::load(&args.record)?;
    let mut out = output::open(None)?;
    let out = out.as_mut();
    let printed = match args.format {
        _ if args.documents => write_documents(&record, &filter, out),
        SampleFormat::Csv => write_samples(&record, &mut filter, SampleLines::Csv, out),
        SampleFormat::Jsonl => write_samples(&record, &mut filter, SampleLines::Json, out),
        SampleFormat::Openmetrics => openmetrics::write(&record, &mut filter, out),
    };
    let printed = printed?;
    out.flush().with_context(cannot_write)?;
    if printed > 0 {
        return Ok(());
    }
    Err(CommandError::nothing_matched(format!(
        "{}: no {} selected",
        record.location,
        if args.documents {
            "document is"
        } else {
            "sample is"
        }
    )))
}

pub(super) fn cannot_write() -> String {
    "cannot write standard output".to_owned()
}

/// Reports an irregularity of the record on standard error.
pub(super) fn report_problem(event: &RecordEvent, record: &LoadedRecord) {
    if let Some(problem) = BlockProblem::of(event, record) {
        output::print_message(&format!("pegel: {}: {}", record.location, problem.text));
    }
}

/// Writes one line per sample. Returns the number of samples.
fn write_samples(
    record: &LoadedRecord,
    filter: &mut SampleFilter,
    lines: SampleLines,
    out: &mut dyn Write,
) -> anyhow::Result<u64> {
    out.write_all(lines.head().as_bytes())
        .with_context(cannot_write)?;
    let mut written = 0;
    let mut text = String::new();
    for event in RecordReader::new(&record.bytes) {
        report_problem(&event, record);
        let RecordEvent::Block {
            content: BlockContent::Samples(all),
            ..
        } = event
        else {
            continue;
        };
        for samples in &all {
            if !filter.selects(&samples.series) {
                continue;
            }
            text.clear();
            written += lines.append(&mut text, &samples.series, filter.samples(samples));
            out.write_all(text.as_bytes()).with_context(cannot_write)?;
        }
    }
    Ok(written)
}

/// Writes one line per document. Returns their number.
fn write_documents(
    record: &LoadedRecord,
    filter: &SampleFilter,
    out: &mut dyn Write,
) -> anyhow::Result<u64> {
    let mut written = 0;
    for event in RecordReader::new(&record.bytes) {
        report_problem(&event, record);
        let RecordEvent::Block {
            header,
            content: BlockContent::Text(text),
            ..
        } = event
        else {
            continue;
        };
        if !filter.contains(header.start) {
            continue;
        }
        // A document that was cut is not JSON, and is printed as text.
        let content = serde_json::from_str(&text).unwrap_or(Value::String(text));
        let line = json!({
            "kind": header.kind.as_str(),
            "block": header.sequence,
            "time": header.start,
            "content": content,
        });
        writeln!(out, "{line}").with_context(cannot_write)?;
        written += 1;
    }
    Ok(written)
}
