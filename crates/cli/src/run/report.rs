//! Formats the counts of a finished run as one line and as JSON.

use std::ffi::OsString;

use pegel_metric::quantity::{decimal_bytes, group_thousands};
use pegel_run::{ProcessEnd, ProgramSummary};
use serde_json::json;

/// Formats the summary that is printed to the terminal.
pub(super) fn summary_line(summary: &ProgramSummary) -> String {
    let nanos: u64 = summary.calls.iter().map(|call| call.count.nanos).sum();
    let mut line = format!(
        "{} system calls in {:.2} s, {} s inside them; {} read, {} written; {} errors",
        grouped(summary.hits()),
        summary.elapsed.as_secs_f64(),
        seconds(nanos),
        decimal_bytes(summary.bytes_in()),
        decimal_bytes(summary.bytes_out()),
        grouped(summary.errors()),
    );
    if let Some(processes) = summary.processes.filter(|count| *count > 1) {
        line.push_str(&format!("; {} processes", grouped(processes)));
    }
    line
}

pub(super) fn json(summary: &ProgramSummary, command: &[OsString]) -> String {
    let (exit_code, signal) = match summary.end {
        ProcessEnd::Exited(code) => (Some(code), None),
        ProcessEnd::Killed(signal) => (None, Some(signal)),
        ProcessEnd::Released => (None, None),
    };
    let calls: Vec<serde_json::Value> = summary
        .calls
        .iter()
        .map(|call| {
            json!({
                "call": call.name,
                "hits": call.count.hits,
                "bytes": call.count.bytes,
                "seconds": call.count.nanos as f64 / 1e9,
                "errors": call.count.errors,
            })
        })
        .collect();
    let command: Vec<String> = command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let report = json!({
        "command": command,
        "job": pegel_lane::job_id(),
        "rank": pegel_lane::rank(),
        "method": summary.method.to_string(),
        "exit_code": exit_code,
        "signal": signal,
        "seconds": summary.elapsed.as_secs_f64(),
        "processes": summary.processes,
        "hits": summary.hits(),
        "errors": summary.errors(),
        "bytes_read": summary.bytes_in(),
        "bytes_written": summary.bytes_out(),
        "calls": calls,
    });
    format!("{report:#}\n")
}

fn grouped(number: u64) -> String {
    group_thousands(&number.to_string(), ',')
}

fn seconds(nanos: u64) -> String {
    format!("{:.3}", nanos as f64 / 1e9)
}
