//! Everything that comes in from programs, as one thing that the agent starts and stops.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Clock, Input, Millis};
use pegel_store::{PushError, Store};

use crate::gate::{Gate, GateSettings};
use crate::points::{Offered, Outcome, Points};
use crate::pulse::{Pulse, Source};
use crate::senders::{Account, Sender};

#[derive(Debug)]
pub struct Intake {
    gate: Arc<Gate>,
    points: Points,
    clock: Arc<dyn Clock>,
    pulse: Pulse,
}

impl Intake {
    pub fn start(
        settings: GateSettings,
        sources: impl FnOnce(&Arc<Gate>) -> Vec<Box<dyn Source>>,
        store: &Store,
        clock: Arc<dyn Clock>,
        rate: Duration,
    ) -> std::io::Result<Intake> {
        let gate = Arc::new(Gate::new(settings, store.ledger().clone()));
        gate.set_stored(store.status().series);
        let sources = sources(&gate);
        let pulse = Pulse::start(sources, store.clone(), gate.clone(), clock.clone(), rate)?;
        Ok(Intake {
            points: Points::new(gate.clone(), store.clone()),
            gate,
            clock,
            pulse,
        })
    }

    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    pub fn sender(&self, input: Input, who: &str) -> Arc<Sender> {
        self.gate.sender(input, who)
    }

    pub fn now(&self) -> Millis {
        self.clock.utc()
    }

    /// See [`Points::offer`].
    pub fn points(
        &self,
        sender: &Arc<Sender>,
        offered: &[Offered<'_>],
    ) -> Result<Outcome, PushError> {
        self.points.offer(sender, offered, self.now())
    }

    /// When this returns, what programs counted until now can be read.
    pub fn refresh(&self) {
        self.pulse.refresh();
    }

    pub fn senders(&self) -> Vec<Account> {
        self.gate.senders().accounts()
    }

    /// Takes the last values and ends the threads.
    pub fn stop(&self) {
        self.pulse.stop();
    }
}
