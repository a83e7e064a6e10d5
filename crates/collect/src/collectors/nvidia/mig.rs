//! The MIG devices into which a GPU is partitioned.

use pegel_metric::{SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::proc_parse::ProcParseError;

use super::abi::{Memory2, NOT_FOUND, NvmlDevice};
use super::families::{MIG_ENABLED, MIG_FREE, MIG_INFO, MIG_MULTIPROCESSORS, MIG_TOTAL, MIG_USED};
use super::functions::Functions;
use super::gpu_readings::{GpuError, GpuSeries, declare_gpu_series};
use super::query_interval::{DueTime, PassBudget, QueryInterval};

/// More MIG devices than any GPU supports.
const DEVICES_MAX: u32 = 16;

#[derive(Debug)]
pub(super) struct MigDevices {
    due: DueTime,
    enabled_series: GpuSeries,
    /// By index and UUID of the device.
    slots: CursorMap<MigSlots>,
    /// As of the last query.
    is_enabled: Option<bool>,
    current: Vec<(Slot, f64)>,
}

#[derive(Debug)]
struct MigSlots {
    info: Slot,
    multiprocessors: Slot,
    memory: [Slot; 3],
}

impl MigSlots {
    fn retire(self, out: &mut SampleGroup) {
        let slots = [self.info, self.multiprocessors].into_iter();
        slots.chain(self.memory).for_each(|slot| out.retire(slot));
    }
}

impl MigDevices {
    pub(super) fn new() -> MigDevices {
        MigDevices {
            due: DueTime::default(),
            enabled_series: GpuSeries::default(),
            slots: CursorMap::new(),
            is_enabled: None,
            current: Vec::new(),
        }
    }

    pub(super) fn retire_all(&mut self, out: &mut SampleGroup) {
        self.slots.begin_pass();
        self.slots.sweep(|slots| slots.retire(out));
        self.enabled_series.retire(out);
        *self = MigDevices::new();
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
            self.query_mode(nvml, device, pass)?;
            self.query_devices(nvml, device, gpu, out)?;
        }
        let Some(is_enabled) = self.is_enabled else {
            return Ok(());
        };
        let value = f64::from(is_enabled);
        self.enabled_series
            .set(out, &MIG_ENABLED, gpu, &[], value)?;
        for &(slot, value) in &self.current {
            out.set(slot, value);
        }
        Ok(())
    }

    fn query_mode(
        &mut self,
        nvml: &Functions,
        device: NvmlDevice,
        pass: &PassBudget,
    ) -> Result<(), GpuError> {
        match nvml.mig_mode.query(device) {
            Ok((current, _pending)) => {
                self.is_enabled = Some(current != 0);
                self.due.succeeded(QueryInterval::TenSeconds, pass.now);
            }
            Err(error) => {
                self.is_enabled = None;
                self.due.failed(pass.now);
                if let Some(fatal) = GpuError::from_nvml(error) {
                    return Err(fatal);
                }
            }
        }
        Ok(())
    }

    fn query_devices(
        &mut self,
        nvml: &Functions,
        device: NvmlDevice,
        gpu: &str,
        out: &mut SampleGroup,
    ) -> Result<(), GpuError> {
        self.current.clear();
        self.slots.begin_pass();
        let count = match self.is_enabled {
            Some(true) => nvml.mig_count_max.query(device).unwrap_or(0),
            _ => 0,
        };
        for index in 0..count.min(DEVICES_MAX) {
            match nvml.mig_handle.query(device, index) {
                Ok(part) => self.query_device(nvml, part, index, gpu, out)?,
                Err(NOT_FOUND) => {}
                Err(error) => {
                    if let Some(fatal) = GpuError::from_nvml(error) {
                        return Err(fatal);
                    }
                }
            }
        }
        self.slots.sweep(|slots| slots.retire(out));
        Ok(())
    }

    fn query_device(
        &mut self,
        nvml: &Functions,
        part: NvmlDevice,
        index: u32,
        gpu: &str,
        out: &mut SampleGroup,
    ) -> Result<(), GpuError> {
        let uuid = nvml.uuid.query(part).unwrap_or_default();
        let instances = [nvml.gpu_instance, nvml.compute_instance].map(|function| {
            function
                .query(part)
                .map_or_else(|_| String::new(), |id| id.to_string())
        });
        let mig = index.to_string();
        let make = || {
            let part = [("mig", &*mig)];
            let info = [
                ("mig", &*mig),
                ("uuid", &*uuid),
                ("gpu_instance", &*instances[0]),
                ("compute_instance", &*instances[1]),
            ];
            Ok(MigSlots {
                info: declare_gpu_series(out, &MIG_INFO, gpu, &info)?,
                multiprocessors: declare_gpu_series(out, &MIG_MULTIPROCESSORS, gpu, &part)?,
                memory: [
                    declare_gpu_series(out, &MIG_TOTAL, gpu, &part)?,
                    declare_gpu_series(out, &MIG_USED, gpu, &part)?,
                    declare_gpu_series(out, &MIG_FREE, gpu, &part)?,
                ],
            })
        };
        let slots = match self.slots.entry(format!("{mig} {uuid}").as_bytes(), make) {
            Ok(slots) => slots,
            Err(ProcParseError::Series(error)) => return Err(GpuError::Series(error)),
            // Cannot occur: far fewer names than the limit, and nothing is parsed.
            Err(_) => return Ok(()),
        };
        self.current.push((slots.info, 1.0));
        if let Ok(attributes) = nvml.attributes.query(part) {
            let count = f64::from(attributes.multiprocessors);
            self.current.push((slots.multiprocessors, count));
        }
        let memory = nvml.memory2.query_with(part, Memory2::request());
        let memory = memory.map(|memory| [memory.total, memory.used, memory.free]);
        let memory = memory.or_else(|_| {
            let memory = nvml.memory.query(part)?;
            Ok::<_, super::abi::NvmlError>([memory.total, memory.used, memory.free])
        });
        if let Ok(memory) = memory {
            let values = memory.map(|bytes| bytes as f64);
            self.current.extend(slots.memory.into_iter().zip(values));
        }
        Ok(())
    }
}
