//! The parts into which a GPU is split (MIG): each is a device of its own.

use pegel_metric::{Group, Slot};

use crate::roster::Roster;
use crate::scan::Fault;

use super::abi::{Device, Memory2, NOT_FOUND};
use super::answers::{Trouble, declare};
use super::beat::{Beat, Due, Pass};
use super::families::{MIG_ENABLED, MIG_FREE, MIG_INFO, MIG_MULTIPROCESSORS, MIG_TOTAL, MIG_USED};
use super::functions::Functions;

/// More than any GPU can be split into.
const DEVICES_MAX: u32 = 16;

#[derive(Debug)]
pub(super) struct Mig {
    due: Due,
    enabled_slot: Option<Slot>,
    /// By the identity of the device.
    slots: Roster<Slots>,
    /// As of the last answer.
    is_enabled: Option<bool>,
    current: Vec<(Slot, f64)>,
}

#[derive(Debug)]
struct Slots {
    info: Slot,
    multiprocessors: Slot,
    memory: [Slot; 3],
}

impl Slots {
    fn retire(self, out: &mut Group) {
        let slots = [self.info, self.multiprocessors].into_iter();
        slots.chain(self.memory).for_each(|slot| out.retire(slot));
    }
}

impl Mig {
    pub(super) fn new() -> Mig {
        Mig {
            due: Due::default(),
            enabled_slot: None,
            slots: Roster::new(),
            is_enabled: None,
            current: Vec::new(),
        }
    }

    pub(super) fn forget(&mut self, out: &mut Group) {
        self.slots.begin();
        self.slots.sweep(|slots| slots.retire(out));
        if let Some(slot) = self.enabled_slot {
            out.retire(slot);
        }
        *self = Mig::new();
    }

    pub(super) fn collect(
        &mut self,
        nvml: &Functions,
        device: Device,
        gpu: &str,
        pass: &Pass,
        out: &mut Group,
    ) -> Result<(), Trouble> {
        if self.due.is_due(pass.now) {
            self.ask_mode(nvml, device, pass)?;
            self.ask_devices(nvml, device, gpu, out)?;
        }
        let Some(is_enabled) = self.is_enabled else {
            return Ok(());
        };
        let slot = match self.enabled_slot {
            Some(slot) => slot,
            None => *self
                .enabled_slot
                .insert(declare(out, &MIG_ENABLED, gpu, &[])?),
        };
        out.set(slot, f64::from(is_enabled));
        for &(slot, value) in &self.current {
            out.set(slot, value);
        }
        Ok(())
    }

    fn ask_mode(&mut self, nvml: &Functions, device: Device, pass: &Pass) -> Result<(), Trouble> {
        match nvml.mig_mode.ask(device) {
            Ok((current, _pending)) => {
                self.is_enabled = Some(current != 0);
                self.due.answered(Beat::Slow, pass.now);
            }
            Err(refusal) => {
                self.is_enabled = None;
                self.due.refused(pass.now);
                if let Some(trouble) = Trouble::of(refusal) {
                    return Err(trouble);
                }
            }
        }
        Ok(())
    }

    fn ask_devices(
        &mut self,
        nvml: &Functions,
        device: Device,
        gpu: &str,
        out: &mut Group,
    ) -> Result<(), Trouble> {
        self.current.clear();
        self.slots.begin();
        let count = match self.is_enabled {
            Some(true) => nvml.mig_count_max.ask(device).unwrap_or(0),
            _ => 0,
        };
        for index in 0..count.min(DEVICES_MAX) {
            match nvml.mig_handle.ask(device, index) {
                Ok(part) => self.ask_device(nvml, part, index, gpu, out)?,
                Err(NOT_FOUND) => {}
                Err(refusal) => {
                    if let Some(trouble) = Trouble::of(refusal) {
                        return Err(trouble);
                    }
                }
            }
        }
        self.slots.sweep(|slots| slots.retire(out));
        Ok(())
    }

    fn ask_device(
        &mut self,
        nvml: &Functions,
        part: Device,
        index: u32,
        gpu: &str,
        out: &mut Group,
    ) -> Result<(), Trouble> {
        let uuid = nvml.uuid.ask(part).unwrap_or_default();
        let instances = [nvml.gpu_instance, nvml.compute_instance].map(|function| {
            function
                .ask(part)
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
            Ok(Slots {
                info: declare(out, &MIG_INFO, gpu, &info)?,
                multiprocessors: declare(out, &MIG_MULTIPROCESSORS, gpu, &part)?,
                memory: [
                    declare(out, &MIG_TOTAL, gpu, &part)?,
                    declare(out, &MIG_USED, gpu, &part)?,
                    declare(out, &MIG_FREE, gpu, &part)?,
                ],
            })
        };
        let slots = match self.slots.entry(format!("{mig} {uuid}").as_bytes(), make) {
            Ok(slots) => slots,
            Err(Fault::Series(error)) => return Err(Trouble::Series(error)),
            // Far fewer names than a roster holds, and no text that could be wrong.
            Err(_) => return Ok(()),
        };
        self.current.push((slots.info, 1.0));
        if let Ok(attributes) = nvml.attributes.ask(part) {
            let count = f64::from(attributes.multiprocessors);
            self.current.push((slots.multiprocessors, count));
        }
        let memory = nvml.memory2.fill(part, Memory2::asked());
        let memory = memory.map(|memory| [memory.total, memory.used, memory.free]);
        let memory = memory.or_else(|_| {
            let memory = nvml.memory.ask(part)?;
            Ok::<_, super::abi::Refusal>([memory.total, memory.used, memory.free])
        });
        if let Ok(memory) = memory {
            let values = memory.map(|bytes| bytes as f64);
            self.current.extend(slots.memory.into_iter().zip(values));
        }
        Ok(())
    }
}
