//! The top processes: ten by CPU time since the last pass and ten by memory, from `/proc/<pid>`.
//!
//! Runs on a thread of its own and reads the stat file of every process; further files only of the selected ones.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::PathBuf;

use pegel_metric::{Family, MetricKind};

use crate::proc_parse::{ProcParseError, Words, label_value, parse_u64};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SeriesWriter, SysfsWalk, open_walk};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

use super::cgroup_families::key_value_lines;

const fn family(
    name: &'static str,
    kind: MetricKind,
    unit: &'static str,
    help: &'static str,
) -> Family {
    Family::new(name, kind, unit, 4, help)
}

static CPU: Family = family(
    "node_process_cpu_seconds_total",
    MetricKind::Counter,
    "seconds",
    "Total CPU time used by the process, in seconds.",
);
static RESIDENT: Family = family(
    "node_process_resident_memory_bytes",
    MetricKind::Gauge,
    "bytes",
    "Resident memory of the process, in bytes.",
);
static PEAK: Family = family(
    "node_process_resident_memory_peak_bytes",
    MetricKind::Gauge,
    "bytes",
    "Peak resident memory of the process, in bytes.",
);
static VIRTUAL: Family = family(
    "node_process_virtual_memory_bytes",
    MetricKind::Gauge,
    "bytes",
    "Virtual memory of the process, in bytes.",
);
static THREADS: Family = family(
    "node_process_threads",
    MetricKind::Gauge,
    "",
    "Number of threads of the process.",
);
static MAJOR_FAULTS: Family = family(
    "node_process_major_page_faults_total",
    MetricKind::Counter,
    "",
    "Total number of page faults of the process that required reading from a disk.",
);
static START: Family = family(
    "node_process_start_boot_seconds",
    MetricKind::Gauge,
    "seconds",
    "Start time of the process, in seconds since boot.",
);
static READ: Family = family(
    "node_process_read_bytes_total",
    MetricKind::Counter,
    "bytes",
    "Total number of bytes that the process read from devices.",
);
static WRITTEN: Family = family(
    "node_process_written_bytes_total",
    MetricKind::Counter,
    "bytes",
    "Total number of bytes that the process caused to be written to devices.",
);
static SWITCHES: Family = family(
    "node_process_context_switches_total",
    MetricKind::Counter,
    "",
    "Total number of context switches of the main thread, voluntary or not.",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "top_processes",
    tier: Tier::FiveSeconds,
    execution: Execution::Threaded,
    level: 4,
    families: &[
        &CPU,
        &RESIDENT,
        &PEAK,
        &VIRTUAL,
        &THREADS,
        &MAJOR_FAULTS,
        &START,
        &READ,
        &WRITTEN,
        &SWITCHES,
    ],
    open,
};

/// The number of processes selected by CPU time, and by memory.
const TOP_COUNT: usize = 10;

#[derive(Debug)]
struct TopProcesses {
    proc: PathBuf,
    user_hz: f64,
    page_bytes: f64,
    /// By process ID: start time and CPU ticks at the last pass. The start time detects a reused ID.
    last: HashMap<u64, (u64, u64)>,
}

/// The fields of `/proc/<pid>/stat` that are used.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    pid: u64,
    comm: String,
    major_faults: u64,
    ticks: u64,
    threads: u64,
    start: u64,
    virtual_bytes: u64,
    pages: u64,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let host = &context.host;
    let walk = TopProcesses {
        proc: host.proc.clone(),
        user_hz: host.user_hz as f64,
        page_bytes: host.page_bytes as f64,
        last: HashMap::new(),
    };
    open_walk(context, host.proc.clone(), walk)
}

impl SysfsWalk for TopProcesses {
    fn walk(&mut self, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        let Some(proc) = SysfsDir::open(&self.proc) else {
            return Ok(());
        };
        let stats: Vec<ProcessStat> = proc
            .names()
            .iter()
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
            // The process may have ended after it was listed.
            .filter_map(|pid| parse(&proc.bytes(&format!("{pid}/stat")).ok()?))
            .collect();
        for stat in self.select_top(&stats) {
            self.set_process(stat, &proc, put)?;
        }
        let ticks = stats
            .iter()
            .map(|stat| (stat.pid, (stat.start, stat.ticks)));
        self.last = ticks.collect();
        Ok(())
    }
}

impl TopProcesses {
    /// Selects the top processes, sorted by ID so that their order seldom changes.
    fn select_top<'a>(&self, stats: &'a [ProcessStat]) -> Vec<&'a ProcessStat> {
        let used = |stat: &ProcessStat| match self.last.get(&stat.pid) {
            Some((start, ticks)) if *start == stat.start => stat.ticks.saturating_sub(*ticks),
            _ => stat.ticks,
        };
        // Skip idle processes and kernel threads without memory: an idle node has fewer than ten active ones.
        let mut by_cpu: Vec<&ProcessStat> = stats.iter().filter(|stat| used(stat) > 0).collect();
        let mut by_memory: Vec<&ProcessStat> = stats.iter().filter(|stat| stat.pages > 0).collect();
        by_cpu.sort_by_key(|stat| (Reverse(used(stat)), stat.pid));
        by_memory.sort_by_key(|stat| (Reverse(stat.pages), stat.pid));
        let mut chosen: Vec<&ProcessStat> = by_cpu.into_iter().take(TOP_COUNT).collect();
        chosen.extend(by_memory.into_iter().take(TOP_COUNT));
        chosen.sort_by_key(|stat| stat.pid);
        chosen.dedup_by_key(|stat| stat.pid);
        chosen
    }

    fn set_process(
        &self,
        stat: &ProcessStat,
        proc: &SysfsDir,
        put: &mut SeriesWriter<'_>,
    ) -> Result<(), ProcParseError> {
        let pid = stat.pid.to_string();
        let labels = [("comm", &*stat.comm), ("pid", &*pid)];
        put.set(&CPU, &labels, stat.ticks as f64 / self.user_hz)?;
        put.set(&RESIDENT, &labels, stat.pages as f64 * self.page_bytes)?;
        put.set(&VIRTUAL, &labels, stat.virtual_bytes as f64)?;
        put.set(&THREADS, &labels, stat.threads as f64)?;
        put.set(&MAJOR_FAULTS, &labels, stat.major_faults as f64)?;
        put.set(&START, &labels, stat.start as f64 / self.user_hz)?;
        let Some(folder) = proc.subdir(&pid) else {
            return Ok(());
        };
        let status = folder.bytes("status").unwrap_or_default();
        let find = |key: &str| key_value_lines(&status).find(|(found, _)| *found == key);
        let peak = find("VmHWM:").map(|(_, kibibytes)| kibibytes as f64 * 1024.0);
        put.set_if_some(&PEAK, &labels, peak)?;
        let switches = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"].map(find);
        if let [Some((_, own)), Some((_, forced))] = switches {
            put.set(&SWITCHES, &labels, own as f64 + forced as f64)?;
        }
        // Only root may read the I/O of other users' processes.
        let io = folder.bytes("io").unwrap_or_default();
        let find = |key: &str| key_value_lines(&io).find(|(found, _)| *found == key);
        let bytes = |key| find(key).map(|(_, bytes)| bytes as f64);
        put.set_if_some(&READ, &labels, bytes("read_bytes:"))?;
        put.set_if_some(&WRITTEN, &labels, bytes("write_bytes:"))
    }
}

/// Parses `17 (a (b) c) S 1 …`. The name may contain anything, so it ends at the last parenthesis.
fn parse(text: &[u8]) -> Option<ProcessStat> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let comm = text.get(open + 1..close)?;
    let fields: Vec<&[u8]> = Words(text[close + 1..].trim_ascii()).collect();
    // Numbered as in proc(5), where the state is field 3.
    let field = |number: usize| parse_u64(fields.get(number - 3)?);
    Some(ProcessStat {
        pid: parse_u64(text[..open].trim_ascii())?,
        comm: label_value(comm).into_owned(),
        major_faults: field(12)?,
        ticks: field(14)?.checked_add(field(15)?)?,
        threads: field(20)?,
        start: field(22)?,
        virtual_bytes: field(23)?,
        pages: field(24)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: u64, start: u64, ticks: u64, pages: u64) -> ProcessStat {
        let text = format!(
            "{pid} (p{pid}) S 1 1 1 0 -1 4194304 0 0 7 0 {ticks} 0 0 0 20 0 3 0 {start} 4096 {pages} 0"
        );
        parse(text.as_bytes()).expect("valid")
    }

    fn processes(last: &[(u64, (u64, u64))]) -> TopProcesses {
        TopProcesses {
            proc: PathBuf::new(),
            user_hz: 100.0,
            page_bytes: 4096.0,
            last: last.iter().copied().collect(),
        }
    }

    #[test]
    fn a_name_may_contain_parentheses() {
        let text = b"17 (a) (b\n) S 1 1 1 0 -1 4194304 0 0 7 0 30 12 0 0 20 0 3 0 99 4096 5 0\n";
        let stat = parse(text).expect("valid");
        assert_eq!((&*stat.comm, stat.ticks, stat.start), ("a) (b\n", 42, 99));
        assert_eq!((stat.major_faults, stat.threads, stat.pages), (7, 3, 5));
        for bad in [
            &b""[..],
            b"17",
            b"17 (x",
            b"17 )x( S",
            b"17 (x) S 1",
            b"x (x) S 1",
        ] {
            assert_eq!(parse(bad), None);
        }
    }

    #[test]
    fn the_top_processes_since_the_last_pass_are_selected() {
        // Thirty small processes. 100 was busy long ago, 101 is busy now, 102 has much memory, and 103 is a new process with
        // the reused ID of a busy one.
        let mut stats: Vec<ProcessStat> = (1..=30).map(|pid| stat(pid, 1, 5, 1)).collect();
        let mut last: Vec<(u64, (u64, u64))> = (1..=30).map(|pid| (pid, (1, 0))).collect();
        stats.push(stat(100, 1, 1_000, 0));
        stats.push(stat(101, 1, 60, 0));
        stats.push(stat(102, 1, 50, 900));
        stats.push(stat(103, 2, 40, 0));
        last.extend([
            (100, (1, 1_000)),
            (101, (1, 0)),
            (102, (1, 50)),
            (103, (1, 500)),
        ]);
        let processes = processes(&last);
        let chosen: Vec<u64> = processes.select_top(&stats).iter().map(|s| s.pid).collect();
        assert!(!chosen.contains(&100), "neither busy nor large: {chosen:?}");
        assert!(
            [101, 102, 103].iter().all(|pid| chosen.contains(pid)),
            "{chosen:?}"
        );
        assert!(chosen.len() <= 2 * TOP_COUNT && chosen.is_sorted());
    }
}
