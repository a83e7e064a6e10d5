//! One GPU: its identity, whether it responds, and its readings.

use std::time::Duration;

use pegel_metric::{SampleGroup, SeriesError, Slot};

use crate::LiveProcesses;

use super::abi::{NvmlDevice, NvmlError, string_from_field};
use super::families::{INFO, UP};
use super::functions::Functions;
use super::gpu_readings::{GpuError, GpuReadings, GpuSeries, declare_gpu_series};
use super::links::NvLinks;
use super::mig::MigDevices;
use super::processes::GpuProcesses;
use super::query_interval::{DueTime, PassBudget};
use super::xids::{XidCounts, XidEvents};

#[derive(Debug)]
pub(super) struct NvidiaGpu {
    index: u32,
    /// The index as a label.
    label: String,
    /// The name in messages: index and UUID.
    name: String,
    state: NvidiaGpuState,
    up: GpuSeries,
    info: Option<Slot>,
    readings: GpuReadings,
    links: NvLinks,
    processes: GpuProcesses,
    mig: MigDevices,
    xids: XidCounts,
}

#[derive(Debug, Clone, Copy)]
enum NvidiaGpuState {
    Online {
        device: NvmlDevice,
        reports_xids: bool,
    },
    /// Not available; searched for again when it is due.
    Lost(DueTime, NvmlError),
}

impl NvidiaGpu {
    /// Creates a GPU, which is opened in its first pass.
    pub(super) fn new(index: u32) -> NvidiaGpu {
        let label = index.to_string();
        NvidiaGpu {
            index,
            name: format!("GPU {label}"),
            label,
            state: NvidiaGpuState::Lost(DueTime::default(), NvmlError::MissingFunction),
            up: GpuSeries::default(),
            info: None,
            readings: GpuReadings::new(),
            links: NvLinks::default(),
            processes: GpuProcesses::new(),
            mig: MigDevices::new(),
            xids: XidCounts::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns why the GPU does not respond.
    pub(super) fn lost_reason(&self) -> Option<NvmlError> {
        match self.state {
            NvidiaGpuState::Online { .. } => None,
            NvidiaGpuState::Lost(_, error) => Some(error),
        }
    }

    pub(super) fn has_handle(&self, other: NvmlDevice) -> bool {
        matches!(self.state, NvidiaGpuState::Online { device, .. } if device == other)
    }

    /// Passes the processes of the GPU to the table of processes if they may have changed.
    pub(super) fn publish_processes(&mut self, live: &LiveProcesses) {
        if let Some(processes) = self.processes.take_changed() {
            live.set_gpu(&self.label, processes.into_iter());
        }
    }

    /// Removes the processes of the GPU from the table of processes.
    pub(super) fn withdraw_processes(&self, live: &LiveProcesses) {
        live.set_gpu(&self.label, std::iter::empty());
    }

    pub(super) fn record_xid(&mut self, number: u64) {
        tracing::warn!(
            gpu = self.name,
            xid = number,
            "the driver reported an Xid error"
        );
        self.xids.record(number);
    }

    /// Reads the GPU. A lost GPU is not an error: the other GPUs are still read.
    pub(super) fn collect(
        &mut self,
        nvml: &Functions,
        driver: &NvidiaDriverInfo,
        events: &XidEvents,
        pass: &mut PassBudget,
        out: &mut SampleGroup,
    ) -> Result<(), GpuError> {
        match self.try_collect(nvml, driver, events, pass, out) {
            Err(GpuError::GpuLost(error)) => self.mark_lost(error, pass.now, out),
            result => result?,
        }
        self.publish(out)?;
        Ok(())
    }

    fn try_collect(
        &mut self,
        nvml: &Functions,
        driver: &NvidiaDriverInfo,
        events: &XidEvents,
        pass: &mut PassBudget,
        out: &mut SampleGroup,
    ) -> Result<(), GpuError> {
        let device = match self.state {
            NvidiaGpuState::Online { device, .. } => device,
            NvidiaGpuState::Lost(due, _) if due.is_due(pass.now) => {
                self.open(nvml, driver, events, out)?
            }
            NvidiaGpuState::Lost(..) => return Ok(()),
        };
        let gpu = &self.label;
        self.readings.collect(nvml, device, gpu, pass, out)?;
        self.links.collect(nvml, device, gpu, pass, out)?;
        self.processes.collect(nvml, device, gpu, pass, out)?;
        self.mig.collect(nvml, device, gpu, pass, out)
    }

    fn open(
        &mut self,
        nvml: &Functions,
        driver: &NvidiaDriverInfo,
        events: &XidEvents,
        out: &mut SampleGroup,
    ) -> Result<NvmlDevice, GpuError> {
        let device = nvml.handle.query(self.index).map_err(|error| {
            // Without a handle the GPU counts as lost, whatever the error.
            GpuError::from_nvml(error).unwrap_or(GpuError::GpuLost(error))
        })?;
        let uuid = nvml.uuid.query(device).unwrap_or_default();
        self.info = Some(driver.declare(nvml, device, &self.label, &uuid, out)?);
        self.name = format!("GPU {} ({uuid})", self.label);
        self.state = NvidiaGpuState::Online {
            device,
            reports_xids: events.register(nvml, device),
        };
        Ok(device)
    }

    /// Retires all series of the GPU except `node_nvidia_up`.
    fn mark_lost(&mut self, error: NvmlError, now: Duration, out: &mut SampleGroup) {
        self.readings.retire_all(out);
        self.links.retire_all(out);
        self.processes.retire_all(out);
        self.mig.retire_all(out);
        if let Some(info) = self.info.take() {
            out.retire(info);
        }
        let mut due = DueTime::default();
        due.failed(now);
        self.state = NvidiaGpuState::Lost(due, error);
    }

    fn publish(&mut self, out: &mut SampleGroup) -> Result<(), SeriesError> {
        let NvidiaGpuState::Online { reports_xids, .. } = self.state else {
            return self.up.set(out, &UP, &self.label, &[], 0.0);
        };
        self.up.set(out, &UP, &self.label, &[], 1.0)?;
        if let Some(info) = self.info {
            out.set(info, 1.0);
        }
        if reports_xids {
            self.xids.set(&self.label, out)?;
        }
        Ok(())
    }
}

/// Versions of the driver and CUDA, common to all GPUs of the node.
#[derive(Debug)]
pub(super) struct NvidiaDriverInfo {
    driver: String,
    cuda: String,
}

impl NvidiaDriverInfo {
    pub(super) fn query(nvml: &Functions) -> NvidiaDriverInfo {
        let cuda = nvml.cuda_version.query(0);
        NvidiaDriverInfo {
            driver: nvml.driver_version.text().unwrap_or_default(),
            // 13000 is 13.0, and 12020 is 12.2.
            cuda: cuda.map_or_else(
                |_| String::new(),
                |number| format!("{}.{}", number / 1000, number % 1000 / 10),
            ),
        }
    }

    fn declare(
        &self,
        nvml: &Functions,
        device: NvmlDevice,
        gpu: &str,
        uuid: &str,
        out: &mut SampleGroup,
    ) -> Result<Slot, SeriesError> {
        let name = nvml.name.query(device).unwrap_or_default();
        let vbios = nvml.vbios.query(device).unwrap_or_default();
        let bus = nvml
            .pci
            .query(device)
            .map(|pci| string_from_field(&pci.bus_id));
        let bus = bus.unwrap_or_default();
        let minor = nvml.minor.query(device).map(|minor| minor.to_string());
        let minor = minor.unwrap_or_default();
        let labels = [
            ("uuid", uuid),
            ("name", &*name),
            ("driver", &*self.driver),
            ("cuda", &*self.cuda),
            ("vbios", &*vbios),
            ("pci_bus_id", &*bus),
            ("minor", &*minor),
        ];
        declare_gpu_series(out, &INFO, gpu, &labels)
    }
}
