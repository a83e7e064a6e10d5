//! The processes that use a GPU, and the GPU memory that they use.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pegel_metric::{SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::proc_parse::ProcParseError;

use super::abi::{NvmlDevice, Process};
use super::families::{PROCESS_MEMORY, PROCESSES};
use super::functions::Functions;
use super::gpu_readings::{GpuError, GpuSeries, declare_gpu_series};
use super::query_interval::{DueTime, PassBudget, QueryInterval};

/// Above this number, processes are counted but not listed.
const LIST_MAX: usize = 1024;
/// Only this number of processes, those with the most memory, get a series.
const SERIES_MAX: usize = 64;
/// Reported by the driver for an unknown size.
const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct GpuProcesses {
    due: DueTime,
    buffer: Vec<Process>,
    processes: Vec<GpuProcess>,
    count_series: GpuSeries,
    slots: CursorMap<Slot>,
    /// The list differs from the one that was taken last.
    is_changed: bool,
    /// As of the last query.
    count: Option<f64>,
    current: Vec<(Slot, f64)>,
}

#[derive(Debug, Clone, Copy)]
struct GpuProcess {
    pid: u32,
    kind: &'static str,
    memory: u64,
}

impl GpuProcesses {
    pub(super) fn new() -> GpuProcesses {
        GpuProcesses {
            due: DueTime::default(),
            buffer: vec![Process::default(); SERIES_MAX],
            processes: Vec::new(),
            count_series: GpuSeries::default(),
            is_changed: false,
            slots: CursorMap::new(),
            count: None,
            current: Vec::new(),
        }
    }

    pub(super) fn retire_all(&mut self, out: &mut SampleGroup) {
        self.slots.begin_pass();
        self.slots.sweep(|slot| out.retire(slot));
        self.count_series.retire(out);
        *self = GpuProcesses::new();
        self.is_changed = true;
    }

    /// Returns the processes and their memory if they were queried since the last call. A process
    /// with compute and graphics contexts is listed once: the driver reports its total for both.
    pub(super) fn take_changed(&mut self) -> Option<BTreeMap<u32, u64>> {
        std::mem::take(&mut self.is_changed).then(|| {
            let mut memory = BTreeMap::new();
            for process in &self.processes {
                let largest: &mut u64 = memory.entry(process.pid).or_default();
                *largest = process.memory.max(*largest);
            }
            memory
        })
    }

    pub(super) fn collect(
        &mut self,
        nvml: &Functions,
        device: NvmlDevice,
        gpu: &str,
        pass: &PassBudget,
        out: &mut SampleGroup,
    ) -> Result<(), GpuError> {
        if self.due.is_due(pass.now) {
            self.query(nvml, device, pass)?;
            if out.keeps_level(PROCESS_MEMORY.level) {
                self.declare_processes(gpu, out)?;
            }
        }
        let Some(count) = self.count else {
            return Ok(());
        };
        self.count_series.set(out, &PROCESSES, gpu, &[], count)?;
        for &(slot, memory) in &self.current {
            out.set(slot, memory);
        }
        Ok(())
    }

    fn query(
        &mut self,
        nvml: &Functions,
        device: NvmlDevice,
        pass: &PassBudget,
    ) -> Result<(), GpuError> {
        self.processes.clear();
        self.is_changed = true;
        let mut counts = [None; 2];
        let kinds = [
            ("compute", nvml.compute_processes),
            ("graphics", nvml.graphics_processes),
        ];
        for (count, (kind, function)) in counts.iter_mut().zip(kinds) {
            let mut answer = function.query(device, &mut self.buffer);
            if let Ok(needed @ 0..=LIST_MAX) = answer
                && needed > self.buffer.len()
            {
                // Twice as many as needed: more processes may start before the next call.
                self.buffer.resize(2 * needed, Process::default());
                answer = function.query(device, &mut self.buffer);
            }
            match answer {
                Ok(found) => {
                    *count = Some(found);
                    let listed = self.buffer.get(..found).unwrap_or(&[]);
                    self.processes
                        .extend(listed.iter().map(|process| GpuProcess {
                            pid: process.pid,
                            kind,
                            memory: process.memory,
                        }));
                }
                Err(error) => {
                    if let Some(fatal) = GpuError::from_nvml(error) {
                        return Err(fatal);
                    }
                }
            }
        }
        self.count = match counts {
            [None, None] => None,
            counts => Some(counts.into_iter().flatten().sum::<usize>() as f64),
        };
        match self.count {
            Some(_) => self.due.succeeded(QueryInterval::TenSeconds, pass.now),
            None => self.due.failed(pass.now),
        }
        self.processes.retain(|process| process.memory != UNKNOWN);
        self.processes
            .sort_unstable_by_key(|process| (Reverse(process.memory), process.pid));
        self.processes.truncate(SERIES_MAX);
        // A stable order, so that each process finds its slot with the first comparison.
        self.processes
            .sort_unstable_by_key(|process| (process.kind, process.pid));
        Ok(())
    }

    fn declare_processes(&mut self, gpu: &str, out: &mut SampleGroup) -> Result<(), GpuError> {
        self.current.clear();
        self.slots.begin_pass();
        for process in &self.processes {
            let key = format!("{} {}", process.kind, process.pid);
            let slot = self.slots.entry(key.as_bytes(), || {
                let pid = process.pid.to_string();
                let labels = [("pid", &*pid), ("type", process.kind)];
                Ok(declare_gpu_series(out, &PROCESS_MEMORY, gpu, &labels)?)
            });
            match slot {
                Ok(slot) => self.current.push((*slot, process.memory as f64)),
                Err(ProcParseError::Series(error)) => return Err(GpuError::Series(error)),
                // Cannot occur: far fewer names than the limit, and nothing is parsed.
                Err(_) => {}
            }
        }
        self.slots.sweep(|slot| out.retire(slot));
        Ok(())
    }
}
