//! The top processes: ten by CPU time since the last pass and ten by memory, from `/proc/<pid>`.
//!
//! Runs on a thread of its own and reads the stat file of every process; further files only of the
//! selected ones.

use std::cmp::Reverse;
use std::collections::HashMap;

use pegel_machine::ProcessStat;

use super::cgroup_families::key_value_lines;
use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::{ProcParseError, label_value};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Context, OpenResult, Tier};

families! {
    CPU Counter 4 "node_process_cpu_seconds_total" "seconds" "Total CPU time used by the process, in seconds.";
    RESIDENT Gauge 4 "node_process_resident_memory_bytes" "bytes" "Resident memory of the process, in bytes.";
    PEAK Gauge 4 "node_process_resident_memory_peak_bytes" "bytes" "Peak resident memory of the process, in bytes.";
    VIRTUAL Gauge 4 "node_process_virtual_memory_bytes" "bytes" "Virtual memory of the process, in bytes.";
    THREADS Gauge 4 "node_process_threads" "" "Number of threads of the process.";
    MAJOR_FAULTS Counter 4 "node_process_major_page_faults_total" "" "Total number of page faults of the process that required reading from a disk.";
    START Gauge 4 "node_process_start_boot_seconds" "seconds" "Start time of the process, in seconds since boot.";
    READ Counter 4 "node_process_read_bytes_total" "bytes" "Total number of bytes that the process read from devices.";
    WRITTEN Counter 4 "node_process_written_bytes_total" "bytes" "Total number of bytes that the process caused to be written to devices.";
    SWITCHES Counter 4 "node_process_context_switches_total" "" "Total number of context switches of the main thread, voluntary or not.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("top_processes", Tier::FiveSeconds, FAMILIES, open);

/// The number of processes selected by CPU time, and by memory.
const TOP_COUNT: usize = 10;

#[derive(Debug)]
struct TopProcesses {
    user_hz: f64,
    page_bytes: f64,
    /// By process ID: start time and CPU ticks at the last pass. The start time detects a reused
    /// ID.
    last: HashMap<u64, (u64, u64)>,
}

fn open(context: &Context) -> OpenResult {
    let host = &context.host;
    let walk = TopProcesses {
        user_hz: host.user_hz as f64,
        page_bytes: host.page_bytes as f64,
        last: HashMap::new(),
    };
    open_walk(context, "proc", walk)
}

impl SysfsWalk for TopProcesses {
    fn walk(&mut self, proc: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        let names = proc.names().into_iter();
        let pids = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        // A process may have ended after it was listed.
        let texts = pids.filter_map(|pid| proc.bytes(&format!("{pid}/stat")).ok());
        let texts: Vec<Vec<u8>> = texts.collect();
        let stats = texts.iter().filter_map(|text| ProcessStat::parse(text));
        let stats: Vec<ProcessStat<'_>> = stats.collect();
        for stat in self.select_top(&stats) {
            self.set_process(stat, proc, put)?;
        }
        let ticks = stats
            .iter()
            .map(|stat| (stat.pid, (stat.start_ticks, stat.cpu_ticks)));
        self.last = ticks.collect();
        Ok(())
    }
}

impl TopProcesses {
    /// Selects the top processes, sorted by ID so that their order seldom changes.
    fn select_top<'a>(&self, stats: &'a [ProcessStat<'a>]) -> Vec<&'a ProcessStat<'a>> {
        let used = |stat: &ProcessStat<'_>| match self.last.get(&stat.pid) {
            Some((start, ticks)) if *start == stat.start_ticks => {
                stat.cpu_ticks.saturating_sub(*ticks)
            }
            _ => stat.cpu_ticks,
        };
        // Skip idle processes and kernel threads without memory: an idle node has fewer than ten
        // active ones.
        let mut by_cpu: Vec<&ProcessStat<'_>> =
            stats.iter().filter(|stat| used(stat) > 0).collect();
        let mut by_memory: Vec<&ProcessStat<'_>> = stats
            .iter()
            .filter(|stat| stat.resident_pages > 0)
            .collect();
        by_cpu.sort_by_key(|stat| (Reverse(used(stat)), stat.pid));
        by_memory.sort_by_key(|stat| (Reverse(stat.resident_pages), stat.pid));
        let mut chosen: Vec<&ProcessStat<'_>> = by_cpu.into_iter().take(TOP_COUNT).collect();
        chosen.extend(by_memory.into_iter().take(TOP_COUNT));
        chosen.sort_by_key(|stat| stat.pid);
        chosen.dedup_by_key(|stat| stat.pid);
        chosen
    }

    fn set_process(
        &self,
        stat: &ProcessStat<'_>,
        proc: &SysfsDir,
        put: &mut SeriesWriter<'_>,
    ) -> Result<(), ProcParseError> {
        let pid = stat.pid.to_string();
        let comm = label_value(stat.comm);
        let labels = [("comm", &*comm), ("pid", &*pid)];
        put.set(&CPU, &labels, stat.cpu_ticks as f64 / self.user_hz)?;
        put.set(
            &RESIDENT,
            &labels,
            stat.resident_pages as f64 * self.page_bytes,
        )?;
        put.set(&VIRTUAL, &labels, stat.virtual_bytes as f64)?;
        put.set(&THREADS, &labels, stat.threads as f64)?;
        put.set(&MAJOR_FAULTS, &labels, stat.major_faults as f64)?;
        put.set(&START, &labels, stat.start_ticks as f64 / self.user_hz)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: u64, start: u64, ticks: u64, pages: u64) -> ProcessStat<'static> {
        ProcessStat {
            pid,
            comm: b"p",
            major_faults: 7,
            cpu_ticks: ticks,
            threads: 3,
            start_ticks: start,
            virtual_bytes: 4096,
            resident_pages: pages,
        }
    }

    fn processes(last: &[(u64, (u64, u64))]) -> TopProcesses {
        TopProcesses {
            user_hz: 100.0,
            page_bytes: 4096.0,
            last: last.iter().copied().collect(),
        }
    }

    #[test]
    fn the_top_processes_since_the_last_pass_are_selected() {
        // Thirty small processes. 100 was busy long ago, 101 is busy now, 102 has much memory, and
        // 103 is a new process with the reused ID of a busy one.
        let mut stats: Vec<ProcessStat<'_>> = (1..=30).map(|pid| stat(pid, 1, 5, 1)).collect();
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
