//! Everything that comes in from programs, as one thing that the agent starts and stops.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pegel_metric::{Clock, Input, Millis, Selector};
use pegel_store::{PushError, Store};

use crate::admission::{Admission, AdmissionSettings};
use crate::lanes::{JournalError, Lanes, LanesSettings, LanesStatus};
use crate::point_writer::{IncomingPoint, PointWriter, PointsResult};
use crate::program_sampler::{ProgramSampler, ValueSource};
use crate::senders::{Sender, SenderStatus};

#[derive(Debug)]
pub struct Ingest {
    gate: Arc<Admission>,
    points: Arc<PointWriter>,
    clock: Arc<dyn Clock>,
    sampler: ProgramSampler,
    lanes_status: Option<Arc<Mutex<LanesStatus>>>,
}

/// Why programs' metrics cannot be taken in.
#[derive(Debug, thiserror::Error)]
pub enum IngestStartError {
    #[error(transparent)]
    Lanes(#[from] JournalError),
    #[error("cannot start the thread that reads programs' metrics")]
    Thread(#[source] std::io::Error),
}

impl Ingest {
    pub fn start(
        settings: AdmissionSettings,
        lanes: Option<&LanesSettings>,
        store: &Store,
        clock: Arc<dyn Clock>,
        rate: Duration,
    ) -> Result<Ingest, IngestStartError> {
        let gate = Arc::new(Admission::new(settings, store.ledger().clone()));
        gate.set_store_series_count(store.status().series);
        store.latest(&Selector::all(), 0, &mut |series, _| {
            gate.name_owners()
                .restore_owner(series.text(), series.family().input);
        });
        let points = Arc::new(PointWriter::new(gate.clone(), store.clone()));
        let mut sources: Vec<Box<dyn ValueSource>> = Vec::new();
        let mut lanes_status = None;
        if let Some(settings) = lanes {
            let lanes = Lanes::open(settings, gate.clone(), points.clone(), store, clock.clone())?;
            lanes_status = Some(lanes.status());
            sources.push(Box::new(lanes));
        }
        let pulse =
            ProgramSampler::start(sources, store.clone(), gate.clone(), clock.clone(), rate)
                .map_err(IngestStartError::Thread)?;
        Ok(Ingest {
            points,
            gate,
            clock,
            sampler: pulse,
            lanes_status,
        })
    }

    /// From the next pass on it is asked too.
    pub fn add_source(&self, source: Box<dyn ValueSource>) {
        self.sampler.add(source);
    }

    pub fn admission(&self) -> &Arc<Admission> {
        &self.gate
    }

    pub fn sender(&self, input: Input, who: &str) -> Arc<Sender> {
        self.gate.sender(input, who)
    }

    pub fn now(&self) -> Millis {
        self.clock.utc()
    }

    /// The way of points with their own times into the store.
    pub fn point_writer(&self) -> &Arc<PointWriter> {
        &self.points
    }

    /// See [`Points::offer`].
    pub fn store_points(
        &self,
        sender: &Arc<Sender>,
        offered: &[IncomingPoint<'_>],
    ) -> Result<PointsResult, PushError> {
        self.points.write(sender, offered, self.now())
    }

    /// When this returns, what programs counted until now is in the log and can be read, or it says why not.
    /// Waits for the log: not for async workers.
    pub fn refresh(&self) -> Result<(), PushError> {
        self.sampler.refresh()
    }

    /// Why nothing can be stored just now. Waits for the log: not for async workers.
    pub fn check_log(&self) -> Result<(), PushError> {
        self.sampler.check_log()
    }

    pub fn sender_statuses(&self) -> Vec<SenderStatus> {
        self.gate.senders().statuses()
    }

    /// What is known about lanes; nothing where they are not read.
    pub fn lanes_status(&self) -> Option<LanesStatus> {
        let status = self.lanes_status.as_ref()?;
        Some(
            status
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        )
    }

    /// Returns why the lane journal cannot be written, if so.
    pub fn journal_error(&self) -> Option<String> {
        let status = self.lanes_status.as_ref()?;
        let status = status.lock().unwrap_or_else(PoisonError::into_inner);
        status.journal.clone()
    }

    /// Takes the last values and ends the threads.
    pub fn stop(&self) {
        self.sampler.stop();
    }
}
