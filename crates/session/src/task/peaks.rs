//! The usage of a task so far.

use pegel_metric::Millis;
use serde::{Deserialize, Serialize};

/// The source of the memory peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeakSource {
    /// The kernel's peak of the task's cgroup.
    #[serde(rename = "memory.peak")]
    CgroupPeak,
    /// The same in cgroups v1.
    #[serde(rename = "memory.max_usage_in_bytes")]
    CgroupPeakV1,
    /// The largest sampled usage of the cgroup: the kernel keeps no peak (before Linux 5.19), or
    /// its peak was reached before the task was watched.
    #[serde(rename = "memory.current")]
    CgroupSamples,
    /// The peak of the largest process.
    #[serde(rename = "VmHWM")]
    LargestProcess,
}

/// The process of the task with the highest peak of resident memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargestProcess {
    pub name: String,
    pub pid: u32,
    /// The highest `VmHWM` that was seen.
    pub memory_bytes: u64,
}

/// Peaks and totals of a task since it is watched; the [module](super) states which are exact.
/// Values that the kernel does not report are `None`. No value ever decreases.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskPeaks {
    /// The peak of the memory: of the cgroup, with its page cache, or of the largest process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_source: Option<PeakSource>,
    /// The largest sum of the processes' resident memory; shared memory counts for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_sum_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_seconds: Option<f64>,
    /// Fetched from and sent to storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// Passed to read and write calls, whatever was behind them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rchar: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wchar: Option<u64>,
    /// The largest number of processes at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_process: Option<LargestProcess>,
    /// The number of samples, and the times of the first and the last.
    pub samples: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_sample: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sample: Option<Millis>,
}

impl TaskPeaks {
    /// Records a process whose resident memory peaked at `bytes`.
    pub(super) fn record_process(&mut self, name: &str, pid: u32, bytes: u64) {
        let largest = self.largest_process.as_ref();
        if bytes > largest.map_or(0, |largest| largest.memory_bytes) {
            self.largest_process = Some(LargestProcess {
                name: name.to_owned(),
                pid,
                memory_bytes: bytes,
            });
        }
    }
}

/// Raises a value; an unknown one changes nothing.
pub(super) fn raise<T: PartialOrd>(value: &mut Option<T>, to: Option<T>) {
    if let Some(to) = to
        && value.as_ref().is_none_or(|value| to > *value)
    {
        *value = Some(to);
    }
}
