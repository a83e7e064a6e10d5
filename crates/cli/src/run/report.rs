//! Formats the counts of a finished run as one line and as JSON.

use std::ffi::OsString;

use pegel_run::{ProcessEnd, ProgramSummary};
use serde_json::json;

/// Formats the summary that is printed to the terminal.
pub fn summary_line(summary: &ProgramSummary) -> String {
    let nanos: u64 = summary.calls.iter().map(|call| call.count.nanos).sum();
    let mut line = format!(
        "{} system calls in {:.2} s, {} s inside them; {} read, {} written; {} errors",
        grouped(summary.hits()),
        summary.elapsed.as_secs_f64(),
        seconds(nanos),
        bytes(summary.bytes_in()),
        bytes(summary.bytes_out()),
        grouped(summary.errors()),
    );
    if let Some(processes) = summary.processes.filter(|count| *count > 1) {
        line.push_str(&format!("; {} processes", grouped(processes)));
    }
    line
}

pub fn json(summary: &ProgramSummary, command: &[OsString]) -> String {
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

/// Formats a number with thousands separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1e3;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn seconds(nanos: u64) -> String {
    format!("{:.3}", nanos as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_and_units() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1500), "1.5 kB");
        assert_eq!(bytes(999_960), "1.0 MB");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
    }
}
