//! The NVLinks of a GPU: state, throughput and errors.

use pegel_metric::{SampleGroup, SeriesError, Slot};

use super::abi::{FieldValue, NvmlDevice};
use super::families::{LINK_ERRORS, LINK_RECEIVE, LINK_TRANSMIT, LINK_UP};
use super::fields::field_number;
use super::functions::Functions;
use super::gpu_readings::{GpuError, declare_gpu_series};
use super::query_interval::{DueTime, PassBudget, QueryInterval};

/// More links than any GPU has.
const LINKS_MAX: usize = 32;
/// Field IDs of the data sent and received over a link, in KiB.
const TRANSMIT: u32 = 138;
const RECEIVE: u32 = 139;
/// The error counters, by their number in NVML.
const ERRORS: [&str; 4] = ["replay", "recovery", "crc_flit", "crc_data"];

#[derive(Debug, Default)]
pub(super) struct NvLinks {
    due: DueTime,
    links: Vec<NvLink>,
    request: Vec<FieldValue>,
}

/// The series of a link; values that the driver does not report are `None`.
#[derive(Debug, Default)]
struct NvLink {
    is_up: NvLinkSeries,
    transmit: NvLinkSeries,
    receive: NvLinkSeries,
    errors: [NvLinkSeries; ERRORS.len()],
}

/// A series and its last value.
#[derive(Debug, Default)]
struct NvLinkSeries {
    slot: Option<Slot>,
    value: Option<f64>,
}

impl NvLinks {
    pub(super) fn retire_all(&mut self, out: &mut SampleGroup) {
        self.due = DueTime::default();
        for mut link in self.links.drain(..) {
            let slots = link.all_series().filter_map(|known| known.slot);
            slots.for_each(|slot| out.retire(slot));
        }
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
            match self.query_states(nvml, device)? {
                0 => self.due.failed(pass.now),
                _ => {
                    self.due.succeeded(QueryInterval::TenSeconds, pass.now);
                    self.query_errors(nvml, device)?;
                    self.query_throughput(nvml, device)?;
                }
            }
        }
        for (number, link) in self.links.iter_mut().enumerate() {
            link.set(gpu, number, out)?;
        }
        Ok(())
    }

    /// Queries the state of each link and returns the number of links.
    fn query_states(&mut self, nvml: &Functions, device: NvmlDevice) -> Result<usize, GpuError> {
        let mut count = 0;
        while count < LINKS_MAX {
            let is_up = match nvml.link_state.query(device, count as u32) {
                Ok(state) => f64::from(state != 0),
                Err(error) => match GpuError::from_nvml(error) {
                    Some(fatal) => return Err(fatal),
                    None => break,
                },
            };
            if self.links.len() == count {
                self.links.push(NvLink::default());
            }
            self.links[count].is_up.value = Some(is_up);
            count += 1;
        }
        for link in &mut self.links[count..] {
            link.all_series().for_each(|known| known.value = None);
        }
        Ok(count)
    }

    fn query_errors(&mut self, nvml: &Functions, device: NvmlDevice) -> Result<(), GpuError> {
        for (number, link) in self.links.iter_mut().enumerate() {
            for (counter, known) in link.errors.iter_mut().enumerate() {
                let result = nvml
                    .link_errors
                    .query(device, number as u32, counter as u32);
                if let Some(fatal) = result.err().and_then(GpuError::from_nvml) {
                    return Err(fatal);
                }
                known.value = result.ok().map(|count| count as f64);
            }
        }
        Ok(())
    }

    fn query_throughput(&mut self, nvml: &Functions, device: NvmlDevice) -> Result<(), GpuError> {
        self.request.clear();
        for link in 0..self.links.len() as u32 {
            self.request
                .extend([TRANSMIT, RECEIVE].map(|id| FieldValue {
                    id,
                    scope: link,
                    ..FieldValue::default()
                }));
        }
        let result = nvml.fields.query(device, &mut self.request);
        if let Some(fatal) = result.err().and_then(GpuError::from_nvml) {
            return Err(fatal);
        }
        for (link, answers) in self.links.iter_mut().zip(self.request.chunks_exact(2)) {
            let bytes = |answer| {
                let number = result.and_then(|()| field_number(answer));
                number.ok().map(|kib| kib * 1024.0)
            };
            link.transmit.value = bytes(&answers[0]);
            link.receive.value = bytes(&answers[1]);
        }
        Ok(())
    }
}

impl NvLink {
    fn all_series(&mut self) -> impl Iterator<Item = &mut NvLinkSeries> {
        let one = [&mut self.is_up, &mut self.transmit, &mut self.receive];
        one.into_iter().chain(&mut self.errors)
    }

    fn set(&mut self, gpu: &str, number: usize, out: &mut SampleGroup) -> Result<(), SeriesError> {
        let families = [&LINK_UP, &LINK_TRANSMIT, &LINK_RECEIVE];
        let known = [&mut self.is_up, &mut self.transmit, &mut self.receive];
        for (family, known) in families.into_iter().zip(known) {
            known.set(out, |out| {
                declare_gpu_series(out, family, gpu, &[("link", &number.to_string())])
            })?;
        }
        for (error, known) in ERRORS.into_iter().zip(&mut self.errors) {
            known.set(out, |out| {
                let link = number.to_string();
                declare_gpu_series(out, &LINK_ERRORS, gpu, &[("link", &link), ("error", error)])
            })?;
        }
        Ok(())
    }
}

impl NvLinkSeries {
    fn set(
        &mut self,
        out: &mut SampleGroup,
        declare: impl FnOnce(&mut SampleGroup) -> Result<Slot, SeriesError>,
    ) -> Result<(), SeriesError> {
        let Some(value) = self.value else {
            return Ok(());
        };
        let slot = match self.slot {
            Some(slot) => slot,
            None => *self.slot.insert(declare(out)?),
        };
        out.set(slot, value);
        Ok(())
    }
}
