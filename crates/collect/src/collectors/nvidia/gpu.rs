//! One GPU: what it is, whether it answers, and its readings.

use std::time::Duration;

use pegel_metric::{Group, SeriesError, Slot};

use super::abi::{Device, Refusal, text_of};
use super::answers::{Answers, Trouble, declare};
use super::beat::{Due, Pass};
use super::families::{INFO, UP};
use super::functions::Functions;
use super::links::Links;
use super::mig::Mig;
use super::processes::Processes;
use super::xids::{Events, Xids};

#[derive(Debug)]
pub(super) struct Gpu {
    index: u32,
    /// The index as a label.
    label: String,
    /// As a person would look for it.
    name: String,
    state: State,
    up: Option<Slot>,
    info: Option<Slot>,
    answers: Answers,
    links: Links,
    processes: Processes,
    mig: Mig,
    xids: Xids,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Answers {
        device: Device,
        tells_xids: bool,
    },
    /// Not there; looked for again when it is due.
    Gone(Due, Refusal),
}

impl Gpu {
    /// The GPU is looked for in its first pass.
    pub(super) fn new(index: u32) -> Gpu {
        let label = index.to_string();
        Gpu {
            index,
            name: format!("GPU {label}"),
            label,
            state: State::Gone(Due::default(), Refusal::Missing),
            up: None,
            info: None,
            answers: Answers::new(),
            links: Links::default(),
            processes: Processes::new(),
            mig: Mig::new(),
            xids: Xids::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Why it does not answer.
    pub(super) fn missing(&self) -> Option<Refusal> {
        match self.state {
            State::Answers { .. } => None,
            State::Gone(_, refusal) => Some(refusal),
        }
    }

    pub(super) fn is(&self, other: Device) -> bool {
        matches!(self.state, State::Answers { device, .. } if device == other)
    }

    pub(super) fn xid(&mut self, number: u64) {
        tracing::warn!(
            gpu = self.name,
            xid = number,
            "the driver reported an error"
        );
        self.xids.happened(number);
    }

    /// A GPU that is gone is no error: the others are asked all the same.
    pub(super) fn collect(
        &mut self,
        nvml: &Functions,
        facts: &Facts,
        events: &Events,
        pass: &mut Pass,
        out: &mut Group,
    ) -> Result<(), Trouble> {
        match self.try_collect(nvml, facts, events, pass, out) {
            Err(Trouble::Gpu(refusal)) => self.lose(refusal, pass.now, out),
            result => result?,
        }
        self.publish(out)?;
        Ok(())
    }

    fn try_collect(
        &mut self,
        nvml: &Functions,
        facts: &Facts,
        events: &Events,
        pass: &mut Pass,
        out: &mut Group,
    ) -> Result<(), Trouble> {
        let device = match self.state {
            State::Answers { device, .. } => device,
            State::Gone(due, _) if due.is_due(pass.now) => self.find(nvml, facts, events, out)?,
            State::Gone(..) => return Ok(()),
        };
        let gpu = &self.label;
        self.answers.collect(nvml, device, gpu, pass, out)?;
        self.links.collect(nvml, device, gpu, pass, out)?;
        self.processes.collect(nvml, device, gpu, pass, out)?;
        self.mig.collect(nvml, device, gpu, pass, out)
    }

    fn find(
        &mut self,
        nvml: &Functions,
        facts: &Facts,
        events: &Events,
        out: &mut Group,
    ) -> Result<Device, Trouble> {
        let device = nvml.handle.ask(self.index).map_err(|refusal| {
            // Whatever the reason, this GPU is not there for us.
            Trouble::of(refusal).unwrap_or(Trouble::Gpu(refusal))
        })?;
        let uuid = nvml.uuid.ask(device).unwrap_or_default();
        self.info = Some(facts.declare(nvml, device, &self.label, &uuid, out)?);
        self.name = format!("GPU {} ({uuid})", self.label);
        self.state = State::Answers {
            device,
            tells_xids: events.register(nvml, device),
        };
        Ok(device)
    }

    /// Nothing of this pass or an earlier one is published.
    fn lose(&mut self, refusal: Refusal, now: Duration, out: &mut Group) {
        self.answers.forget(out);
        self.links.forget(out);
        self.processes.forget(out);
        self.mig.forget(out);
        if let Some(info) = self.info.take() {
            out.retire(info);
        }
        let mut due = Due::default();
        due.refused(now);
        self.state = State::Gone(due, refusal);
    }

    fn publish(&mut self, out: &mut Group) -> Result<(), SeriesError> {
        let up = match self.up {
            Some(up) => up,
            None => *self.up.insert(declare(out, &UP, &self.label, &[])?),
        };
        let State::Answers { tells_xids, .. } = self.state else {
            out.set(up, 0.0);
            return Ok(());
        };
        out.set(up, 1.0);
        if let Some(info) = self.info {
            out.set(info, 1.0);
        }
        if tells_xids {
            self.xids.set(&self.label, out)?;
        }
        Ok(())
    }
}

/// What all GPUs of a node share.
#[derive(Debug)]
pub(super) struct Facts {
    driver: String,
    cuda: String,
}

impl Facts {
    pub(super) fn ask(nvml: &Functions) -> Facts {
        let cuda = nvml.cuda_version.ask(0);
        Facts {
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
        device: Device,
        gpu: &str,
        uuid: &str,
        out: &mut Group,
    ) -> Result<Slot, SeriesError> {
        let name = nvml.name.ask(device).unwrap_or_default();
        let vbios = nvml.vbios.ask(device).unwrap_or_default();
        let bus = nvml.pci.ask(device).map(|pci| text_of(&pci.bus_id));
        let bus = bus.unwrap_or_default();
        let minor = nvml.minor.ask(device).map(|minor| minor.to_string());
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
        declare(out, &INFO, gpu, &labels)
    }
}
