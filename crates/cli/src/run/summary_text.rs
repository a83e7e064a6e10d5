//! Formats the summary at the end of `pegel run`: of one run, or of all ranks of a job on a node.

use std::collections::BTreeMap;
use std::path::Path;

use pegel_lane::mpi_state::is_blocking_collective;
use pegel_metric::quantity::{bytes, decimal_bytes, group_thousands};

use pegel_mpi_state::late_rank;

use super::report::{ReportedCall, RunReport};

/// The share of a core is not shown for shorter runs, in seconds.
const SHARE_SECONDS_MIN: f64 = 0.05;

/// The number of calls in each table.
const CALLS_SHOWN: usize = 5;
/// The most ranks whose end is described.
const ENDS_SHOWN: usize = 4;

/// Formats the summary of one or more runs. `expected` is the number of ranks that the launcher
/// started on this node, if there is a launcher and it tells.
pub(super) fn summary_text(reports: &[RunReport], expected: Option<usize>) -> String {
    let Some(first) = reports.first() else {
        return String::new();
    };
    let mut lines = vec![title(reports, first, expected)];
    lines.push(cpu_line(reports));
    lines.extend(memory_line(reports));
    lines.extend(io_line(reports));
    lines.extend(syscall_lines(reports));
    lines.extend(mpi_lines(reports));
    let prefixed = lines.iter().map(|line| format!("pegel: {line}\n"));
    prefixed.collect()
}

fn title(reports: &[RunReport], first: &RunReport, expected: Option<usize>) -> String {
    let command = first.command.first().map_or("", String::as_str);
    let name = Path::new(command).file_name().unwrap_or_default();
    let mut line = format!("{}: {:.2} s", name.to_string_lossy(), wall_seconds(reports));
    if reports.len() > 1 || expected.is_some_and(|expected| expected > 1) {
        let count = match expected {
            Some(expected) if expected > reports.len() => {
                format!("{} of {expected} ranks", reports.len())
            }
            _ => format!("{} ranks", reports.len()),
        };
        line.push_str(&format!(", {count} on {}", first.node));
    }
    let mut ends: Vec<String> = reports.iter().filter_map(end_text).collect();
    if let Some(more @ 1..) = ends.len().checked_sub(ENDS_SHOWN) {
        ends.truncate(ENDS_SHOWN);
        ends.push(format!("{more} more failed"));
    }
    for end in ends {
        line.push_str(&format!("; {end}"));
    }
    line
}

/// Describes an end other than exit status 0.
fn end_text(report: &RunReport) -> Option<String> {
    let rank = report.rank.as_ref().map(|rank| format!("rank {rank} "));
    let rank = rank.unwrap_or_default();
    match (report.exit_code, report.signal) {
        (_, Some(signal)) => Some(format!("{rank}killed by {}", signal_name(signal))),
        (Some(code @ 1..), _) => Some(format!("{rank}exited with status {code}")),
        _ => None,
    }
}

fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        number => return format!("signal {number}"),
    };
    name.to_owned()
}

/// Returns the time from the first start to the last end.
fn wall_seconds(reports: &[RunReport]) -> f64 {
    let start = reports.iter().map(|report| report.start);
    let end = reports.iter().map(|report| report.start + report.seconds);
    end.fold(f64::MIN, f64::max) - start.fold(f64::MAX, f64::min)
}

fn cpu_line(reports: &[RunReport]) -> String {
    let user: f64 = reports.iter().map(|report| report.user_seconds).sum();
    let system: f64 = reports.iter().map(|report| report.system_seconds).sum();
    let own: f64 = reports.iter().map(|report| report.seconds).sum();
    let times = format!("{user:.2} s user, {system:.2} s system");
    // The kernel counts CPU time more coarsely than the time that such a short run takes.
    if wall_seconds(reports) < SHARE_SECONDS_MIN {
        return format!("  CPU     {times}");
    }
    let total = percent(user + system, wall_seconds(reports));
    let per_rank = if reports.len() > 1 {
        format!(", {} per rank", percent(user + system, own))
    } else {
        String::new()
    };
    format!("  CPU     {total} of a core{per_rank}; {times}")
}

fn memory_line(reports: &[RunReport]) -> Option<String> {
    let peaks: Vec<u64> = (reports.iter())
        .filter_map(|report| report.peak_memory)
        .collect();
    let largest = bytes(*peaks.iter().max()?);
    Some(if reports.len() > 1 {
        let sum = bytes(peaks.iter().sum());
        format!("  memory  peak {largest} in the largest rank, {sum} in all ranks")
    } else {
        format!("  memory  peak {largest} in the largest process")
    })
}

/// Bytes of system calls where they were counted: they include sockets.
fn io_line(reports: &[RunReport]) -> Option<String> {
    let io: Vec<_> = reports.iter().filter_map(|report| report.io).collect();
    let is_counted = reports.iter().any(|report| report.method.is_some());
    let (read, written) = if is_counted {
        (
            reports.iter().map(|report| report.bytes_read).sum(),
            reports.iter().map(|report| report.bytes_written).sum(),
        )
    } else if io.is_empty() {
        return None;
    } else {
        (
            io.iter().map(|io| io.read).sum(),
            io.iter().map(|io| io.written).sum(),
        )
    };
    let (read, written) = (decimal_bytes(read), decimal_bytes(written));
    let mut line = format!("  I/O     {read} read, {written} written");
    if !io.is_empty() {
        let read = decimal_bytes(io.iter().map(|io| io.storage_read).sum());
        let written = decimal_bytes(io.iter().map(|io| io.storage_written).sum());
        line.push_str(&format!("; storage: {read} read, {written} written"));
    }
    Some(line)
}

fn syscall_lines(reports: &[RunReport]) -> Vec<String> {
    if reports.iter().all(|report| report.method.is_none()) {
        return Vec::new();
    }
    let calls = merged(reports.iter().flat_map(|report| &report.calls));
    let hits: u64 = calls.iter().map(|call| call.hits).sum();
    let seconds: f64 = calls.iter().map(|call| call.seconds).sum();
    let errors: u64 = calls.iter().map(|call| call.errors).sum();
    let mut lines = vec![format!(
        "  {} in {seconds:.3} s, {}",
        counted(hits, "system call"),
        counted(errors, "error")
    )];
    lines.extend(table(&calls));
    lines
}

fn mpi_lines(reports: &[RunReport]) -> Vec<String> {
    let counted: Vec<_> = (reports.iter())
        .filter_map(|report| Some((report, report.mpi.as_ref()?)))
        .collect();
    if counted.is_empty() {
        return Vec::new();
    }
    let calls = merged(counted.iter().flat_map(|(_, mpi)| &mpi.calls));
    let processes: u64 = counted.iter().map(|(_, mpi)| mpi.processes).sum();
    let unread: u64 = counted.iter().map(|(_, mpi)| mpi.unread_processes).sum();
    let own = |(report, mpi): &(&RunReport, &super::report::ReportedMpi)| {
        report.seconds * mpi.processes as f64
    };
    let own: f64 = counted.iter().map(own).sum();
    let seconds: f64 = calls.iter().map(|call| call.seconds).sum();
    let mut line = if calls.is_empty() {
        "  MPI     no calls".to_owned()
    } else {
        let share = percent(seconds, own);
        let noun = if processes == 1 {
            "process"
        } else {
            "processes"
        };
        format!("  MPI     {share} of the time: {seconds:.3} s in {processes} {noun}")
    };
    if unread > 0 {
        line.push_str(&format!("; counts of {unread} more could not be read"));
    }
    let mut lines = vec![line];
    lines.extend(table(&calls));
    lines.extend(late_line(&counted));
    lines
}

/// Names the rank for which the others waited in collectives.
fn late_line(counted: &[(&RunReport, &super::report::ReportedMpi)]) -> Option<String> {
    let seconds = |mpi: &super::report::ReportedMpi| -> f64 {
        let calls = mpi.calls.iter();
        let collectives = calls.filter(|call| is_blocking_collective(&call.name));
        collectives.map(|call| call.seconds).sum()
    };
    let ranks: Vec<(u32, &str, f64)> = { counted.iter() }
        .filter_map(|(report, mpi)| {
            let rank = report.rank.as_ref()?.parse().ok()?;
            Some((rank, "", seconds(mpi)))
        })
        .collect();
    let late = late_rank(&ranks)?;
    Some(format!("  late    {}", late.text()))
}

/// Adds up the calls of the same name, longest first; without times, most frequent first.
fn merged<'a>(calls: impl Iterator<Item = &'a ReportedCall>) -> Vec<ReportedCall> {
    let mut sums: BTreeMap<&str, ReportedCall> = BTreeMap::new();
    for call in calls {
        match sums.get_mut(call.name.as_str()) {
            Some(sum) => {
                sum.hits += call.hits;
                sum.bytes += call.bytes;
                sum.seconds += call.seconds;
                sum.errors += call.errors;
            }
            None => {
                sums.insert(&call.name, call.clone());
            }
        }
    }
    let mut calls: Vec<ReportedCall> = sums.into_values().collect();
    calls.sort_by(|a, b| {
        let by_time = b.seconds.total_cmp(&a.seconds);
        by_time.then_with(|| b.hits.cmp(&a.hits))
    });
    calls
}

/// Formats the first calls as aligned columns.
fn table(calls: &[ReportedCall]) -> Vec<String> {
    let shown = &calls[..calls.len().min(CALLS_SHOWN)];
    let total: f64 = calls.iter().map(|call| call.seconds).sum();
    let name_width = shown.iter().map(|call| call.name.len()).max().unwrap_or(0);
    let hits_width = shown.iter().map(|call| counted(call.hits, "call").len());
    let hits_width = hits_width.max().unwrap_or(0);
    let line = |call: &ReportedCall| {
        let name = format!("    {:name_width$}", call.name);
        let hits = format!("{:>hits_width$}", counted(call.hits, "call"));
        let time = if total > 0.0 {
            format!(
                "  {:>9.3} s  {:>5}",
                call.seconds,
                percent(call.seconds, total)
            )
        } else {
            String::new()
        };
        let moved = if call.bytes > 0 {
            format!("  {}", decimal_bytes(call.bytes))
        } else {
            String::new()
        };
        format!("{name}{time}  {hits}{moved}")
    };
    shown.iter().map(line).collect()
}

fn percent(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 {
        100.0 * part / whole
    } else {
        0.0
    };
    format!("{share:.0} %")
}

/// Formats a number with its noun: `1 call`, `1,000 calls`.
fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!(
        "{} {noun}{plural}",
        group_thousands(&number.to_string(), ',')
    )
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::example;
    use super::*;

    #[test]
    fn one_run_is_summarised() {
        let mut report = example("0");
        report.rank = None;
        let expected = "\
pegel: solver: 10.00 s
pegel:   CPU     80 % of a core; 7.00 s user, 1.00 s system
pegel:   memory  peak 1 GiB in the largest process
pegel:   I/O     3 MB read, 1 kB written; storage: 3 B read, 4 B written
pegel:   1,015 system calls in 2.500 s, 1 error
pegel:     read        2.000 s   80 %     10 calls  3 MB
pegel:     write       0.500 s   20 %  1,000 calls  1 kB
pegel:     getpid      0.000 s    0 %      5 calls
pegel:   MPI     40 % of the time: 4.000 s in 1 process
pegel:     MPI_Send      4.000 s  100 %  20 calls  160 B
";
        assert_eq!(summary_text(&[report], None), expected);
    }

    #[test]
    fn ranks_are_added_up_and_missing_ones_stated() {
        let (first, mut second) = (example("0"), example("1"));
        second.start = 1005.0;
        (second.exit_code, second.signal) = (None, Some(9));
        let text = summary_text(&[first, second], Some(4));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "pegel: solver: 15.00 s, 2 of 4 ranks on node17; rank 1 killed by SIGKILL"
        );
        let cpu = "pegel:   CPU     107 % of a core, 80 % per rank; 14.00 s user, 2.00 s system";
        assert_eq!(lines[1], cpu);
        let memory = "pegel:   memory  peak 1 GiB in the largest rank, 2 GiB in all ranks";
        assert_eq!(lines[2], memory);
        assert!(text.contains("2,030 system calls in 5.000 s"), "{text}");
        assert!(
            text.contains("40 % of the time: 8.000 s in 2 processes"),
            "{text}"
        );
    }

    #[test]
    fn the_rank_that_the_others_wait_for_is_named() {
        let report = |rank: &str, seconds: f64| {
            let mut report = example(rank);
            if let Some(mpi) = &mut report.mpi {
                mpi.calls[0].name = "MPI_Allreduce".to_owned();
                mpi.calls[0].seconds = seconds;
            }
            report
        };
        let ranks = [report("0", 4.0), report("1", 0.25), report("2", 4.5)];
        let text = summary_text(&ranks, None);
        let line = "pegel:   late    rank 1: 0.2 s in collectives, median 4.0 s\n";
        assert!(text.contains(line), "{text}");
        let alike = summary_text(&[report("0", 4.0), report("1", 4.1)], None);
        assert!(!alike.contains("late"), "{alike}");
    }

    #[test]
    fn what_was_not_counted_is_left_out() {
        let mut report = example("0");
        (report.method, report.mpi, report.peak_memory) = (None, None, None);
        report.calls.clear();
        let text = summary_text(&[report.clone()], None);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("I/O     1 B read, 2 B written"), "{text}");
        report.io = None;
        assert_eq!(summary_text(&[report], None).lines().count(), 2);
        assert_eq!(summary_text(&[], None), "");
    }

    #[test]
    fn without_times_the_most_frequent_calls_come_first() {
        let mut report = example("0");
        for call in &mut report.calls {
            call.seconds = 0.0;
        }
        let text = summary_text(&[report], None);
        let calls: Vec<&str> = text
            .lines()
            .filter(|line| line.ends_with(" calls"))
            .collect();
        assert!(
            text.contains("pegel:     write   1,000 calls  1 kB\n"),
            "{text}"
        );
        assert_eq!(calls, ["pegel:     getpid      5 calls"]);
    }
}
