//! The columns of a trace file, formatted as Nextflow formats them.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pegel_metric::Millis;
use pegel_record::{BlockContent, RecordEvent, RecordReader};
use serde_json::Value;

use super::record_info::RecordInfo;
use super::source::LoadedRecord;
use crate::format::number::exact;

/// Nextflow's default columns, its optional columns, and columns of Pegel.
const COLUMNS: [&str; 22] = [
    "task_id",
    "hash",
    "native_id",
    "name",
    "status",
    "exit",
    "submit",
    "duration",
    "realtime",
    "%cpu",
    "peak_rss",
    "peak_vmem",
    "rchar",
    "wchar",
    "read_bytes",
    "write_bytes",
    "attempt",
    "hostname",
    "cpu_time",
    "peak_processes",
    "peak_gpu_memory",
    "peak_gpu_utilization",
];

/// How quantities are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceUnits {
    /// `1.2 GB`, `3m 4s`, `98.5%`.
    Readable,
    /// Bytes, milliseconds, numbers.
    Raw,
}

/// The highest values of the node's GPUs while the task ran.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct GpuPeaks {
    /// The sum over all GPUs.
    pub memory_bytes: Option<f64>,
    /// Of the busiest GPU, 0 to 1.
    pub utilization: Option<f64>,
}

impl GpuPeaks {
    /// Reads the highest values from the samples.
    pub(super) fn read(record: &LoadedRecord) -> GpuPeaks {
        let mut peaks = GpuPeaks::default();
        let raise = |peak: &mut Option<f64>, value: f64| {
            if value.is_finite() {
                *peak = Some(peak.map_or(value, |old| old.max(value)));
            }
        };
        for event in RecordReader::new(&record.bytes) {
            let RecordEvent::Block {
                content: BlockContent::Samples(samples),
                ..
            } = event
            else {
                continue;
            };
            // GPUs of one node are sampled together: their values are at the same positions.
            let mut memory: Vec<f64> = Vec::new();
            for one in &samples {
                let name = one.series.split('{').next().unwrap_or_default();
                match name {
                    "node_nvidia_memory_used_bytes" => {
                        memory.resize(memory.len().max(one.values.len()), 0.0);
                        for (sum, value) in memory.iter_mut().zip(&one.values) {
                            *sum += value;
                        }
                    }
                    "node_nvidia_gpu_utilization_ratio" => {
                        for value in &one.values {
                            raise(&mut peaks.utilization, *value);
                        }
                    }
                    _ => {}
                }
            }
            for sum in memory {
                raise(&mut peaks.memory_bytes, sum);
            }
        }
        peaks
    }
}

/// One line of a trace.
#[derive(Debug, Default)]
pub(super) struct TraceTask {
    /// `ab/cdef01`, if the task is named by Nextflow's hash.
    pub hash: Option<String>,
    pub name: Option<String>,
    pub exit: Option<i64>,
    pub begin: Option<Millis>,
    end: Option<Millis>,
    attempt: Option<String>,
    node: Option<String>,
    native_id: Option<String>,
    has_ended: bool,
    /// The section `peaks` of the summary.
    peaks: Value,
    gpu: GpuPeaks,
}

/// A task without an end runs if its newest sample is not older: object stores get a block per
/// minute.
const RUNNING_WITHIN: Millis = 180_000;

impl TraceTask {
    pub(super) fn new(info: &RecordInfo, gpu: GpuPeaks) -> TraceTask {
        let summary = info.summary.clone().unwrap_or_default();
        let number = |key: &str| summary.get(key).and_then(Value::as_i64);
        let task = info
            .identity
            .as_ref()
            .map(|identity| identity.task.as_str());
        let peaks = summary.get("peaks").cloned().unwrap_or_default();
        let gpu_peak = |key: &str| peaks.get(key).and_then(Value::as_f64);
        TraceTask {
            hash: task.and_then(nextflow_hash),
            name: task.map(str::to_owned),
            exit: number("exit_status"),
            begin: number("begin").or(info.range.map(|(start, _)| start)),
            // The record may have outlived its task.
            end: number("task_end")
                .or_else(|| number("end"))
                .or(info.range.map(|(_, end)| end)),
            attempt: info
                .identity
                .as_ref()
                .map(|identity| identity.attempt.clone()),
            node: info.node.clone(),
            native_id: summary
                .get("native_id")
                .and_then(Value::as_str)
                .map(str::to_owned),
            has_ended: info.has_ended || info.summary.is_some(),
            gpu: GpuPeaks {
                memory_bytes: gpu_peak("gpu_memory_bytes").or(gpu.memory_bytes),
                utilization: gpu_peak("gpu_utilization_ratio").or(gpu.utilization),
            },
            peaks,
        }
    }

    fn peak(&self, key: &str) -> Option<f64> {
        self.peaks.get(key).and_then(Value::as_f64)
    }

    fn duration(&self) -> Option<Millis> {
        Some(self.end?.saturating_sub(self.begin?).max(0))
    }

    fn status(&self) -> &'static str {
        match (self.exit, self.has_ended) {
            (Some(0), _) => "COMPLETED",
            (Some(_), _) => "FAILED",
            // The session ended; the exit status of the task is unknown.
            (None, true) => "UNKNOWN",
            (None, false) if self.is_recent() => "RUNNING",
            // Its node was lost.
            (None, false) => "ABORTED",
        }
    }

    /// Whether the record has a recent sample.
    fn is_recent(&self) -> bool {
        let now = Timestamp::now().as_millisecond();
        self.end
            .is_some_and(|end| now.saturating_sub(end) < RUNNING_WITHIN)
    }

    /// Returns the peak of the resident memory. Without a cgroup of its own, the larger of what the
    /// largest process had and of the sampled sum over all processes.
    fn peak_rss(&self) -> Option<f64> {
        let peak = self.peak("memory_bytes");
        match self.peaks.get("memory_source").and_then(Value::as_str) {
            Some("VmHWM") => match (peak, self.peak("rss_sum_bytes")) {
                (Some(peak), Some(sum)) => Some(peak.max(sum)),
                (peak, sum) => peak.or(sum),
            },
            _ => peak,
        }
    }

    /// Returns the share of one CPU, in percent.
    fn cpu_percent(&self) -> Option<f64> {
        let seconds = self.duration()? as f64 / 1000.0;
        (seconds > 0.0).then_some(self.peak("cpu_seconds")? / seconds * 100.0)
    }
}

pub(super) fn header_line() -> String {
    COLUMNS.join("\t") + "\n"
}

pub(super) fn task_line(number: usize, task: &TraceTask, units: TraceUnits) -> String {
    let bytes = |value: Option<f64>| value.map(|value| units.bytes(value));
    let time = |value: Option<Millis>| value.map(|value| units.duration(value));
    let percent = |value: Option<f64>| value.map(|value| units.percent(value));
    let plain = |key: &str| task.peak(key).map(exact);
    let duration = task.duration();
    let cells: [Option<String>; COLUMNS.len()] = [
        Some(number.to_string()),
        task.hash.clone(),
        task.native_id.clone(),
        task.name.clone(),
        Some(task.status().to_owned()),
        task.exit.map(|exit| exit.to_string()),
        task.begin.map(|begin| units.date(begin)),
        time(duration),
        time(duration),
        percent(task.cpu_percent()),
        bytes(task.peak_rss()),
        bytes(task.peak("virtual_bytes")),
        bytes(task.peak("rchar")),
        bytes(task.peak("wchar")),
        bytes(task.peak("read_bytes")),
        bytes(task.peak("written_bytes")),
        task.attempt.clone(),
        task.node.clone(),
        time(
            task.peak("cpu_seconds")
                .map(|seconds| (seconds * 1000.0) as Millis),
        ),
        plain("processes"),
        bytes(task.gpu.memory_bytes),
        percent(task.gpu.utilization.map(|ratio| ratio * 100.0)),
    ];
    // A name must not add a column or a line.
    let cell = |cell: &Option<String>| match cell.as_deref() {
        None | Some("") => "-".to_owned(),
        Some(text) => text.replace(|c: char| c.is_control(), " "),
    };
    cells.iter().map(cell).collect::<Vec<String>>().join("\t") + "\n"
}

impl TraceUnits {
    fn bytes(self, value: f64) -> String {
        if self == TraceUnits::Raw {
            return format!("{value:.0}");
        }
        let names = ["B", "KB", "MB", "GB", "TB", "PB"];
        let mut value = value;
        let mut at = 0;
        while value >= 1024.0 && at + 1 < names.len() {
            value /= 1024.0;
            at += 1;
        }
        let number = format!("{value:.1}");
        format!("{} {}", number.trim_end_matches(".0"), names[at])
    }

    fn percent(self, value: f64) -> String {
        match self {
            TraceUnits::Raw => format!("{value:.1}"),
            TraceUnits::Readable => format!("{value:.1}%"),
        }
    }

    /// Formats `12ms`, `1.8s`, `3m 4s`, `1h 2m 3s`, `2d 1h 0m 5s`.
    fn duration(self, millis: Millis) -> String {
        if self == TraceUnits::Raw {
            return millis.to_string();
        }
        if millis < 1000 {
            return format!("{millis}ms");
        }
        if millis < 60_000 {
            let seconds = format!("{:.1}", millis as f64 / 1000.0);
            return format!("{}s", seconds.trim_end_matches(".0"));
        }
        let seconds = (millis + 500) / 1000;
        let parts = [
            (seconds / 86_400, "d"),
            (seconds / 3600 % 24, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
        ];
        let shown = parts.iter().skip_while(|(count, _)| *count == 0);
        let texts: Vec<String> = shown
            .map(|(count, unit)| format!("{count}{unit}"))
            .collect();
        texts.join(" ")
    }

    fn date(self, millis: Millis) -> String {
        let time = Timestamp::from_millisecond(millis);
        match time {
            Ok(time) if self == TraceUnits::Readable => {
                let local = time.to_zoned(TimeZone::system());
                local.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
            }
            _ => millis.to_string(),
        }
    }
}

/// Returns the hash that Nextflow shows for a task that is named by its work directory.
fn nextflow_hash(task: &str) -> Option<String> {
    let is_hash = task.len() == 8 && task.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| format!("{}/{}", &task[..2], &task[2..]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_have_the_forms_of_nextflow() {
        let units = TraceUnits::Readable;
        for (bytes, text) in [(0.0, "0 B"), (1536.0, "1.5 KB"), (6_291_456.0, "6 MB")] {
            assert_eq!(units.bytes(bytes), text);
        }
        for (millis, text) in [
            (12, "12ms"),
            (1800, "1.8s"),
            (2000, "2s"),
            (184_000, "3m 4s"),
            (3_723_000, "1h 2m 3s"),
            (90_000_000, "1d 1h 0m 0s"),
        ] {
            assert_eq!(units.duration(millis), text);
        }
        assert_eq!(TraceUnits::Raw.bytes(1e12), "1000000000000");
        assert_eq!(TraceUnits::Raw.duration(1800), "1800");
    }

    #[test]
    fn a_line_has_the_summary_of_the_record() {
        let info = RecordInfo {
            summary: Some(json!({
                "begin": 1_000, "end": 60_000, "task_end": 11_000, "exit_status": 0,
                "peaks": {"memory_bytes": 1_048_576, "cpu_seconds": 15, "read_bytes": 10,
                          "written_bytes": 20, "processes": 3}
            })),
            identity: Some(pegel_session::SessionIdentity {
                workflow: "w".into(),
                task: "abcdef01".into(),
                attempt: "1".into(),
            }),
            node: Some("n\t1".into()),
            ..RecordInfo::default()
        };
        let line = task_line(
            1,
            &TraceTask::new(&info, GpuPeaks::default()),
            TraceUnits::Raw,
        );
        assert_eq!(
            line,
            "1\tab/cdef01\t-\tabcdef01\tCOMPLETED\t0\t1000\t10000\t10000\t150.0\t1048576\t-\t-\t-\
             \t10\t20\t1\tn 1\t15000\t3\t-\t-\n"
        );
        assert_eq!(line.matches('\t').count() + 1, COLUMNS.len());
    }

    #[test]
    fn a_record_without_an_end_was_aborted() {
        let task = TraceTask::new(&RecordInfo::default(), GpuPeaks::default());
        let line = task_line(2, &task, TraceUnits::Readable);
        assert!(line.starts_with("2\t-\t-\t-\tABORTED\t-\t-\t"), "{line}");
    }
}
