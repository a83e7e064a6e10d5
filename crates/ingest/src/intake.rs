//! Everything that comes in from programs, as one thing that the agent starts and stops.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pegel_metric::{Clock, Input, Millis, Selector};
use pegel_store::{PushError, Store};

use crate::gate::{Gate, GateSettings};
use crate::lanes::{JournalError, Lanes, LanesSettings, LanesStatus};
use crate::points::{Offered, Outcome, Points};
use crate::pulse::{Pulse, Source};
use crate::senders::{Account, Sender};

#[derive(Debug)]
pub struct Intake {
    gate: Arc<Gate>,
    points: Arc<Points>,
    clock: Arc<dyn Clock>,
    pulse: Pulse,
    lanes_status: Option<Arc<Mutex<LanesStatus>>>,
}

/// Why programs' metrics cannot be taken in.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Lanes(#[from] JournalError),
    #[error("cannot start the thread that reads programs' metrics")]
    Thread(#[source] std::io::Error),
}

impl Intake {
    pub fn start(
        settings: GateSettings,
        lanes: Option<&LanesSettings>,
        store: &Store,
        clock: Arc<dyn Clock>,
        rate: Duration,
    ) -> Result<Intake, StartError> {
        let gate = Arc::new(Gate::new(settings, store.ledger().clone()));
        gate.set_stored(store.status().series);
        store.latest(&Selector::all(), 0, &mut |series, _| {
            gate.owners().remember(series.text(), series.family().input);
        });
        let points = Arc::new(Points::new(gate.clone(), store.clone()));
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        let mut lanes_status = None;
        if let Some(settings) = lanes {
            let lanes = Lanes::open(settings, gate.clone(), points.clone(), store, clock.clone())?;
            lanes_status = Some(lanes.status());
            sources.push(Box::new(lanes));
        }
        let pulse = Pulse::start(sources, store.clone(), gate.clone(), clock.clone(), rate)
            .map_err(StartError::Thread)?;
        Ok(Intake {
            points,
            gate,
            clock,
            pulse,
            lanes_status,
        })
    }

    /// From the next pass on it is asked too.
    pub fn add_source(&self, source: Box<dyn Source>) {
        self.pulse.add(source);
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

    /// The way of points with their own times into the store.
    pub fn points_path(&self) -> &Arc<Points> {
        &self.points
    }

    /// See [`Points::offer`].
    pub fn points(
        &self,
        sender: &Arc<Sender>,
        offered: &[Offered<'_>],
    ) -> Result<Outcome, PushError> {
        self.points.offer(sender, offered, self.now())
    }

    /// When this returns, what programs counted until now is in the log and can be read, or it says why not.
    /// Waits for the log: not for async workers.
    pub fn refresh(&self) -> Result<(), PushError> {
        self.pulse.refresh()
    }

    /// Why nothing can be stored just now. Waits for the log: not for async workers.
    pub fn check_log(&self) -> Result<(), PushError> {
        self.pulse.check_log()
    }

    pub fn senders(&self) -> Vec<Account> {
        self.gate.senders().accounts()
    }

    /// What is known about lanes; nothing where they are not read.
    pub fn lanes(&self) -> Option<LanesStatus> {
        let status = self.lanes_status.as_ref()?;
        Some(
            status
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        )
    }

    /// Returns why the lane journal cannot be written, if so.
    pub fn journal_fault(&self) -> Option<String> {
        let status = self.lanes_status.as_ref()?;
        let status = status.lock().unwrap_or_else(PoisonError::into_inner);
        status.journal.clone()
    }

    /// Takes the last values and ends the threads.
    pub fn stop(&self) {
        self.pulse.stop();
    }
}
