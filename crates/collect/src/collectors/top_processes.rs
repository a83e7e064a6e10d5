//! The processes of the node, from `/proc/<pid>`: stored history of the top ones by CPU time,
//! memory, I/O and GPU memory, and a table of all of them for `GET /api/v1/processes`.
//!
//! Runs on a thread of its own. [`process_scan`] decides which files are read in a pass; on an idle
//! node these are a few per second. The table is in [`LiveProcesses`]. It has the command lines of
//! processes, which the server shows to their owners and to the agent's administrators only; they
//! are never stored.

mod process_details;
mod process_scan;
mod top_selection;
mod tracked_process;
mod user_names;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pegel_machine::{ProcDir, boot_time_seconds, key_value_lines};
use pegel_metric::{Clock, ProcessTable, SampleGroup};
use pegel_plain_file::read_plain;

use self::process_details::DetailReader;
use self::process_scan::ProcessScan;
use self::top_selection::select_top;
use self::tracked_process::{KernelUnits, ScanTime, TrackedProcess};
use self::user_names::UserNames;
use crate::dynamic_series::{DynamicSeries, SeriesWriter};
use crate::families::families;
use crate::live_processes::LiveProcesses;
use crate::proc_file::SharedFile;
use crate::proc_parse::{ProcParseError, Words, parse_u64};
use crate::{
    CollectError, Collector, CollectorEntry, Context, CurrentOperation, OpenOutcome, OpenResult,
    Tier,
};

families! {
    CPU Counter 3 "node_process_cpu_seconds_total" "seconds" "Total CPU time used by the process, in seconds.";
    RESIDENT Gauge 3 "node_process_resident_memory_bytes" "bytes" "Resident memory of the process, in bytes.";
    PEAK Gauge 4 "node_process_resident_memory_peak_bytes" "bytes" "Peak resident memory of the process, in bytes.";
    VIRTUAL Gauge 4 "node_process_virtual_memory_bytes" "bytes" "Virtual memory of the process, in bytes.";
    GPU_MEMORY Gauge 3 "node_process_gpu_memory_bytes" "bytes" "GPU memory used by the process on all GPUs, in bytes.";
    THREADS Gauge 3 "node_process_threads" "" "Number of threads of the process.";
    MAJOR_FAULTS Counter 4 "node_process_major_page_faults_total" "" "Total number of page faults of the process that required reading from a disk.";
    START Gauge 4 "node_process_start_boot_seconds" "seconds" "Start time of the process, in seconds since boot.";
    READ Counter 3 "node_process_read_bytes_total" "bytes" "Total number of bytes that the process read from devices.";
    WRITTEN Counter 3 "node_process_written_bytes_total" "bytes" "Total number of bytes that the process caused to be written to devices.";
    SWITCHES Counter 4 "node_process_context_switches_total" "" "Total number of context switches of the main thread, voluntary or not.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("top_processes", Tier::FiveSeconds, FAMILIES, open);

/// Upper bound on the size of `/proc/stat`, which has the boot time.
const PROC_STAT_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug)]
struct TopProcesses {
    path: PathBuf,
    scan: ProcessScan,
    series: DynamicSeries,
    clock: Arc<dyn Clock>,
    live: Arc<LiveProcesses>,
    /// Read by the sampler thread in every pass of the CPU collectors.
    proc_stat: Arc<SharedFile>,
    operation: CurrentOperation,
    pass: u64,
    last_pass: Option<Duration>,
}

fn open(context: &Context) -> OpenResult {
    let host = &context.host;
    let stat = read_plain(&host.proc.join("stat"), PROC_STAT_BYTES_MAX).unwrap_or_default();
    let units = KernelUnits {
        user_hz: host.user_hz as f64,
        page_bytes: host.page_bytes,
        boot_time: boot_time_seconds(&stat).unwrap_or(0) as f64,
    };
    let Ok(proc) = ProcDir::open(&host.proc) else {
        return OpenOutcome::absent(host.proc.clone());
    };
    let mut pids = Vec::new();
    if proc.list(&mut pids).is_err() || pids.is_empty() {
        return OpenOutcome::absent(host.proc.clone());
    }
    let details = DetailReader::new(UserNames::new(&host.root));
    OpenOutcome::active(TopProcesses {
        path: host.proc.clone(),
        scan: ProcessScan::new(proc, units, details),
        series: DynamicSeries::default(),
        clock: context.clock.clone(),
        live: context.live_processes.clone(),
        proc_stat: context.proc_stat.clone(),
        operation: context.operation.clone(),
        pass: 0,
        last_pass: None,
    })
}

impl Collector for TopProcesses {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.operation.set(&self.path.to_string_lossy());
        let now = self.begin_pass();
        let busy_ticks = self.proc_stat.last_text(busy_ticks).flatten();
        self.scan
            .pass(&now, busy_ticks)
            .map_err(|source| CollectError::Read {
                path: self.path.clone(),
                source,
            })?;
        let gpu_memory = self.live.gpu_memory();
        for (pid, process) in &mut self.scan.processes {
            process.gpu_memory = gpu_memory.get(pid).copied();
        }
        let top = select_top(&mut self.scan.processes, &now);
        let mut put = self.series.begin_pass(out);
        for pid in top {
            let set = set_process(&self.scan, pid, &mut put);
            set.map_err(|fault| fault.at_path(&self.path))?;
        }
        put.end_pass();
        self.publish(&now);
        Ok(())
    }
}

impl TopProcesses {
    fn begin_pass(&mut self) -> ScanTime {
        let now = self.clock.monotonic();
        self.pass += 1;
        ScanTime {
            number: self.pass,
            monotonic: now,
            utc: self.clock.utc() as f64 / 1000.0,
            previous: self.last_pass.replace(now).filter(|last| *last < now),
        }
    }

    fn publish(&self, now: &ScanTime) {
        let scan = &self.scan;
        let rows = scan.processes.iter();
        let interval = now
            .previous
            .map_or(0.0, |last| (now.monotonic - last).as_secs_f64());
        self.live.set_table(ProcessTable {
            time: self.clock.utc(),
            interval,
            rows: rows
                .map(|(pid, process)| process.row(*pid, &scan.units))
                .collect(),
        });
    }
}

impl Drop for TopProcesses {
    /// A table that no one updates would look current.
    fn drop(&mut self) {
        self.live.clear_table();
    }
}

fn set_process(
    scan: &ProcessScan,
    pid: u32,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let Some(process) = scan.processes.get(&pid) else {
        return Ok(());
    };
    let units = &scan.units;
    let pid_text = pid.to_string();
    let all_labels = [
        ("comm", &*process.comm),
        ("pid", &*pid_text),
        ("user", &*process.details.user),
    ];
    // The user of a process that is about to end may be unknown.
    let is_user_known = process.details.uid.is_some();
    let labels = &all_labels[..if is_user_known { 3 } else { 2 }];
    let resident = process.resident_pages.saturating_mul(units.page_bytes);
    put.set(&CPU, labels, process.cpu_ticks as f64 / units.user_hz)?;
    put.set(&RESIDENT, labels, resident as f64)?;
    put.set(&THREADS, labels, process.threads as f64)?;
    let io = process.io;
    put.set_if_some(&READ, labels, io.map(|io| io.read as f64))?;
    put.set_if_some(&WRITTEN, labels, io.map(|io| io.written as f64))?;
    let gpu_memory = process.gpu_memory.map(|bytes| bytes as f64);
    put.set_if_some(&GPU_MEMORY, labels, gpu_memory)?;
    if put.keeps_level(PEAK.level) {
        set_details(process, &scan.status(pid), units, labels, put)?;
    }
    Ok(())
}

/// Sets the metrics of the highest level, some of which need a further file.
fn set_details(
    process: &TrackedProcess,
    status: &[u8],
    units: &KernelUnits,
    labels: &[(&str, &str)],
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    put.set(&VIRTUAL, labels, process.virtual_bytes as f64)?;
    put.set(&MAJOR_FAULTS, labels, process.major_faults as f64)?;
    put.set(&START, labels, process.start_ticks as f64 / units.user_hz)?;
    let find = |key: &str| key_value_lines(status).find(|(found, _)| *found == key);
    let peak = find("VmHWM:").map(|(_, kibibytes)| kibibytes as f64 * 1024.0);
    put.set_if_some(&PEAK, labels, peak)?;
    let switches = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"].map(find);
    if let [Some((_, own)), Some((_, forced))] = switches {
        put.set(&SWITCHES, labels, own as f64 + forced as f64)?;
    }
    Ok(())
}

/// Returns the CPU time in user and kernel mode in the first line of `/proc/stat`; interrupts
/// belong to no process.
fn busy_ticks(text: &[u8]) -> Option<u64> {
    let line = text.split(|&byte| byte == b'\n').next()?;
    let mut words = Words(line);
    (words.next()? == b"cpu").then_some(())?;
    words.take(3).try_fold(0_u64, |sum, word| {
        Some(sum.saturating_add(parse_u64(word)?))
    })
}

#[cfg(test)]
mod tests;
