//! Errors that the driver reports by number (Xid). The driver keeps no history: only errors after
//! the registration for events are seen.

use pegel_metric::{SampleGroup, SeriesError};

use super::abi::{NvmlDevice, NvmlError, NvmlEventSet};
use super::families::{XID_ERRORS, XID_LAST};
use super::functions::Functions;
use super::gpu_readings::GpuSeries;

/// The event type of an Xid error; the event's data is the Xid.
const XID: u64 = 8;
/// Upper bound on the events of one pass; further ones wait for the next pass.
const EVENTS_MAX: usize = 256;
/// Upper bound on the distinct Xids of one GPU; further ones show only in `node_nvidia_xid_last`.
const NUMBERS_MAX: usize = 64;

/// The event set, shared by all GPUs; `None` if the driver does not support events.
#[derive(Debug)]
pub(super) struct XidEvents(Option<NvmlEventSet>);

impl XidEvents {
    pub(super) fn new(nvml: &Functions) -> XidEvents {
        XidEvents(nvml.event_set.create().ok())
    }

    /// Registers a GPU. Returns whether its errors will be reported.
    pub(super) fn register(&self, nvml: &Functions, device: NvmlDevice) -> bool {
        self.0
            .is_some_and(|set| nvml.event_register.call(device, XID, set).is_ok())
    }

    /// Calls `on_event` with the device and Xid of each error since the last pass.
    pub(super) fn drain(
        &self,
        nvml: &Functions,
        mut on_event: impl FnMut(NvmlDevice, u64),
    ) -> Result<(), NvmlError> {
        let Some(set) = self.0 else { return Ok(()) };
        for _ in 0..EVENTS_MAX {
            match nvml.event_wait.poll(set)? {
                Some(event) if event.kind == XID => on_event(event.device, event.data),
                Some(_) => {}
                None => break,
            }
        }
        Ok(())
    }

    pub(super) fn free(&mut self, nvml: &Functions) {
        if let Some(set) = self.0.take() {
            let _ = nvml.event_free.call(set);
        }
    }
}

/// The errors of one GPU.
#[derive(Debug, Default)]
pub(super) struct XidCounts {
    last: u64,
    last_series: GpuSeries,
    counts: Vec<XidCount>,
}

#[derive(Debug)]
struct XidCount {
    number: u64,
    /// The number as a label.
    label: String,
    count: f64,
    series: GpuSeries,
}

impl XidCounts {
    pub(super) fn record(&mut self, number: u64) {
        self.last = number;
        match self.counts.iter().position(|count| count.number == number) {
            Some(known) => self.counts[known].count += 1.0,
            None if self.counts.len() < NUMBERS_MAX => self.counts.push(XidCount {
                number,
                label: number.to_string(),
                count: 1.0,
                series: GpuSeries::default(),
            }),
            None => {}
        }
    }

    pub(super) fn set(&mut self, gpu: &str, out: &mut SampleGroup) -> Result<(), SeriesError> {
        let last = self.last as f64;
        self.last_series.set(out, &XID_LAST, gpu, &[], last)?;
        for xid in &mut self.counts {
            let labels = [("xid", &*xid.label)];
            xid.series.set(out, &XID_ERRORS, gpu, &labels, xid.count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::present_series;

    #[test]
    fn errors_are_counted_by_xid_up_to_a_bound() {
        let (mut xids, mut group) = (XidCounts::default(), SampleGroup::new("nvidia", 3, 1000));
        xids.set("0", &mut group).expect("valid");
        assert_eq!(
            present_series(&mut group),
            ["node_nvidia_xid_last{gpu=\"0\"} 0"]
        );
        for number in [79, 31, 31] {
            xids.record(number);
        }
        xids.set("0", &mut group).expect("valid");
        let expected = [
            "node_nvidia_xid_last{gpu=\"0\"} 31",
            "node_nvidia_xid_errors_total{gpu=\"0\",xid=\"79\"} 1",
            "node_nvidia_xid_errors_total{gpu=\"0\",xid=\"31\"} 2",
        ];
        assert_eq!(present_series(&mut group), expected);
        (0..1000).for_each(|number| xids.record(number));
        xids.set("0", &mut group).expect("valid");
        let found = present_series(&mut group);
        assert_eq!(found.len(), 1 + NUMBERS_MAX);
        assert_eq!(found[0], "node_nvidia_xid_last{gpu=\"0\"} 999");
    }
}
