//! `pegel record info`: describes a record.

use pegel_metric::quantity::{bytes as byte_text, group_thousands};
use pegel_metric::{Millis, escape_unprintable};
use serde_json::{Value, json};

use super::record_info::{BLOCK_KINDS, RecordGap, RecordInfo, SERIES_COUNTED_MAX};
use super::source::LoadedRecord;
use crate::format::number::utc;
use crate::output;

/// The most gaps in the text; JSON has more.
const GAPS_SHOWN: usize = 10;

/// Describe a record: task, node, times, blocks, series, gaps, end
#[derive(Debug, clap::Args)]
pub(super) struct InfoArgs {
    /// Part, folder or URL of a record, or - for standard input
    record: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = InfoFormat::Text)]
    format: InfoFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum InfoFormat {
    Text,
    Json,
}

pub(super) fn run(args: &InfoArgs) -> anyhow::Result<()> {
    let record = LoadedRecord::load(&args.record)?;
    let info = RecordInfo::read(&record);
    let text = match args.format {
        InfoFormat::Text => to_text(&record, &info),
        InfoFormat::Json => format!("{:#}\n", to_json(&record, &info)),
    };
    output::write(None, &text)
}

fn to_json(record: &LoadedRecord, info: &RecordInfo) -> Value {
    let blocks = BLOCK_KINDS.iter().zip(info.blocks);
    let blocks: serde_json::Map<String, Value> = blocks
        .map(|(kind, (count, bytes))| {
            let value = json!({"count": count, "bytes": bytes});
            (kind.as_str().to_owned(), value)
        })
        .collect();
    let gap = |gap: &RecordGap| json!({"first": gap.first, "last": gap.last, "from": gap.from, "to": gap.to});
    json!({
        "location": record.location,
        "identity": info.identity,
        "node": info.node,
        "start": info.range.map(|(start, _)| start),
        "end": info.range.map(|(_, end)| end),
        "parts": record.part_count(),
        "bytes": record.bytes.len(),
        "blocks": blocks,
        "series": info.series,
        "samples": info.samples,
        "gap_count": info.gap_count,
        "gaps": info.gaps.iter().map(gap).collect::<Vec<Value>>(),
        "damages": info.damages,
        "repeated_blocks": info.repeated,
        "has_ended": info.has_ended,
        "summary": info.summary,
        "autopsies": info.autopsies,
    })
}

fn to_text(record: &LoadedRecord, info: &RecordInfo) -> String {
    let mut lines: Vec<(&str, String)> = vec![("record", record.location.clone())];
    if let Some(identity) = &info.identity {
        lines.push(("workflow", identity.workflow.clone()));
        lines.push(("task", identity.task.clone()));
        lines.push(("attempt", identity.attempt.clone()));
    }
    lines.extend(info.node.clone().map(|node| ("node", node)));
    lines.push(("time", range_text(info.range)));
    lines.push(("size", size_text(record, info)));
    let series = match info.series {
        SERIES_COUNTED_MAX => format!("more than {}", number(SERIES_COUNTED_MAX as u64 - 1)),
        count => number(count as u64),
    };
    lines.push(("series", series));
    lines.push(("samples", number(info.samples)));
    lines.push(("gaps", gaps_text(info)));
    if info.damages > 0 {
        let text = format!("{}; pegel record check lists them", info.damages);
        lines.push(("damages", text));
    }
    lines.push(("end", end_text(info)));
    if let Some(summary) = &info.summary {
        lines.extend(summary_lines(summary));
    }
    for autopsy in &info.autopsies {
        let reason = autopsy.get("reason").or_else(|| autopsy.get("cause"));
        let reason = reason.map(|reason| reason.get("kind").unwrap_or(reason));
        let reason = reason.and_then(Value::as_str).unwrap_or("present");
        let text = format!("{reason}; pegel record cat --documents prints it");
        lines.push(("autopsy", text));
    }
    let line = |(title, text): (&str, String)| {
        // The record may come from anywhere: no character may control the terminal.
        let lines: Vec<String> = text
            .split('\n')
            .map(|line| escape_unprintable(line).to_string())
            .collect();
        format!("{title:10}{}\n", lines.join("\n          "))
    };
    lines.into_iter().map(line).collect()
}

fn size_text(record: &LoadedRecord, info: &RecordInfo) -> String {
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let blocks = BLOCK_KINDS.iter().zip(info.blocks);
    let blocks: Vec<String> = blocks
        .filter(|(_, (count, _))| *count > 0)
        .map(|(kind, (count, bytes))| {
            format!("{} {} ({})", number(count), kind.as_str(), byte_text(bytes))
        })
        .collect();
    let parts = record.part_count() as u64;
    let size = byte_text(record.bytes.len() as u64);
    let blocks = match blocks.is_empty() {
        true => "no blocks".to_owned(),
        false => format!("blocks: {}", blocks.join(", ")),
    };
    format!("{size} in {parts} part{}; {blocks}", plural(parts))
}

fn gaps_text(info: &RecordInfo) -> String {
    if info.gap_count == 0 {
        return "none".to_owned();
    }
    let line = |gap: &RecordGap| {
        let blocks = match gap.first == gap.last {
            true => format!("block {}", gap.first),
            false => format!("blocks {} to {}", gap.first, gap.last),
        };
        let time = |time: Option<Millis>| time.map_or("?".to_owned(), time_text);
        format!("{blocks}, {} to {}", time(gap.from), time(gap.to))
    };
    let mut lines: Vec<String> = info.gaps.iter().take(GAPS_SHOWN).map(line).collect();
    let more = info.gap_count - lines.len() as u64;
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

/// Returns what the task used and how it ended.
fn summary_lines(summary: &Value) -> Vec<(&'static str, String)> {
    let number = |key: &str| summary.get(key).and_then(Value::as_i64);
    let peaks = summary.get("peaks");
    let peak = |key: &str| peaks?.get(key)?.as_f64();
    let bytes = |value: f64| byte_text(value as u64);
    let mut lines = Vec::new();
    let duration = number("task_end").zip(number("begin"));
    let duration = duration.map(|(end, begin)| format!("{:.1} s", (end - begin) as f64 / 1000.0));
    let exit = number("exit_status").map(|status| format!("exit status {status}"));
    let ended: Vec<String> = [duration, exit].into_iter().flatten().collect();
    if !ended.is_empty() {
        lines.push(("task ran", ended.join(", ")));
    }
    lines.extend(peak("cpu_seconds").map(|cpu| ("CPU time", format!("{cpu:.2} s"))));
    if let Some(memory) = peak("memory_bytes") {
        let source = peaks.and_then(|peaks| peaks.get("memory_source")?.as_str());
        let source = source
            .map(|source| format!(" ({source})"))
            .unwrap_or_default();
        let sum = peak("rss_sum_bytes").map(|sum| format!("; processes together {}", bytes(sum)));
        let text = format!("{}{source}{}", bytes(memory), sum.unwrap_or_default());
        lines.push(("peak", text));
    }
    if let (Some(read), Some(written)) = (peak("read_bytes"), peak("written_bytes")) {
        lines.push((
            "disk I/O",
            format!("{} read, {} written", bytes(read), bytes(written)),
        ));
    }
    lines
}

fn end_text(info: &RecordInfo) -> String {
    match (info.has_ended, &info.summary) {
        (true, _) => "clean",
        (false, Some(_)) => "clean, by summary.json; the end block is missing",
        (false, None) => "none: the task still runs, or its node was lost",
    }
    .to_owned()
}

fn range_text(range: Option<(Millis, Millis)>) -> String {
    let Some((start, end)) = range else {
        return "no samples".to_owned();
    };
    let seconds = end.saturating_sub(start) as f64 / 1000.0;
    format!("{} to {}, {seconds} s", time_text(start), time_text(end))
}

fn time_text(time: Millis) -> String {
    utc(time as f64 / 1000.0)
}

fn number(count: u64) -> String {
    group_thousands(&count.to_string(), ' ')
}
