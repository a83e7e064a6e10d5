//! Input from programs as a whole, as the agent starts and stops it.
//!
//! [`Ingest`] owns admission, the writers of points and of remote write, the lanes and the program
//! sampler. The agent creates it, HTTP handlers and the push socket call it. After [`Ingest::stop`]
//! the last values are in the store. Methods that wait for the log must not be called from async
//! workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pegel_metric::{Clock, Input, Millis, Selector, Series};
use pegel_store::{PushError, RangeQuery, Store};

use crate::admission::{Admission, AdmissionSettings, is_name_lasting};
use crate::lanes::{JournalError, Lanes, LanesSettings, LanesStatus, MpiProcesses};
use crate::point_writer::{IncomingPoint, PointWriter, PointsResult};
use crate::program_sampler::{ProgramSampler, ValueSource};
use crate::remote_write::RemoteWriter;
use crate::senders::{Sender, SenderStatus};

#[derive(Debug)]
pub struct Ingest {
    admission: Arc<Admission>,
    points: Arc<PointWriter>,
    remote: RemoteWriter,
    clock: Arc<dyn Clock>,
    sampler: ProgramSampler,
    lanes_status: Option<Arc<Mutex<LanesStatus>>>,
    mpi_processes: Arc<MpiProcesses>,
}

/// The error when input from programs cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum IngestStartError {
    #[error(transparent)]
    Lanes(#[from] JournalError),
    #[error("cannot start the thread that samples programs' metrics")]
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
        let admission = Arc::new(Admission::new(settings, store.ledger().clone()));
        admission.set_store_series_count(store.status().series);
        restore_name_owners(&admission, store);
        let points = Arc::new(PointWriter::new(admission.clone(), store.clone()));
        let mut sources: Vec<Box<dyn ValueSource>> = Vec::new();
        let mut lanes_status = None;
        let mut mpi_processes = Arc::default();
        if let Some(settings) = lanes {
            let lanes = Lanes::open(
                settings,
                admission.clone(),
                points.clone(),
                store,
                clock.clone(),
            )?;
            lanes_status = Some(lanes.status());
            mpi_processes = lanes.mpi_processes();
            sources.push(Box::new(lanes));
        }
        let sampler = ProgramSampler::start(
            sources,
            store.clone(),
            admission.clone(),
            clock.clone(),
            rate,
        )
        .map_err(IngestStartError::Thread)?;
        Ok(Ingest {
            remote: RemoteWriter::new(admission.clone(), store.clone()),
            points,
            admission,
            clock,
            sampler,
            lanes_status,
            mpi_processes,
        })
    }

    /// Adds a source. It is sampled from the next pass on.
    pub fn add_source(&self, source: Box<dyn ValueSource>) {
        self.sampler.add(source);
    }

    /// Returns the MPI processes of this node.
    pub fn mpi_processes(&self) -> &Arc<MpiProcesses> {
        &self.mpi_processes
    }

    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    pub fn sender(&self, input: Input, who: &str) -> Arc<Sender> {
        self.admission.sender(input, who)
    }

    /// Charges a client of HTTP for bytes that it has written outside of the store. Returns false
    /// if its allowance is used up.
    pub fn try_charge(&self, who: &str, bytes: u64) -> bool {
        self.sender(Input::Put, who).try_charge(bytes)
    }

    pub fn now(&self) -> Millis {
        self.clock.utc()
    }

    pub(crate) fn store(&self) -> &Store {
        self.points.store()
    }

    /// Returns the writer of points with their own timestamps.
    pub fn point_writer(&self) -> &Arc<PointWriter> {
        &self.points
    }

    /// Returns the writer of samples of remote write.
    pub fn remote_writer(&self) -> &RemoteWriter {
        &self.remote
    }

    /// See [`PointWriter::write`].
    pub fn store_points(
        &self,
        sender: &Arc<Sender>,
        offered: &[IncomingPoint<'_>],
    ) -> Result<PointsResult, PushError> {
        self.points.write(sender, offered, self.now())
    }

    /// See [`ProgramSampler::refresh`].
    pub fn refresh(&self) -> Result<(), PushError> {
        self.sampler.refresh()
    }

    /// See [`ProgramSampler::write_awaited`].
    pub fn write_awaited(&self) -> Result<(), PushError> {
        self.sampler.write_awaited()
    }

    /// Returns an error if nothing can be stored now. Blocks on the log: do not call from async
    /// workers.
    pub fn check_log(&self) -> Result<(), PushError> {
        self.sampler.check_log()
    }

    pub fn sender_statuses(&self) -> Vec<SenderStatus> {
        self.admission.senders().statuses()
    }

    /// Returns the state of the lanes, or `None` if lanes are not read.
    pub fn lanes_status(&self) -> Option<LanesStatus> {
        let status = self.lanes_status.as_ref()?;
        Some(status.lock().clone())
    }

    /// Returns the processes of running programs with lanes, by job and user.
    pub fn lane_jobs(&self) -> BTreeMap<(String, u32), Vec<u32>> {
        let status = self.lanes_status.as_ref();
        status.map_or_else(BTreeMap::new, |status| status.lock().jobs.clone())
    }

    /// Returns why the lane journal cannot be written, if so.
    pub fn journal_error(&self) -> Option<String> {
        let status = self.lanes_status.as_ref()?;
        let status = status.lock();
        status.journal.clone()
    }

    /// Takes the last values and stops the threads.
    pub fn stop(&self) {
        self.sampler.stop();
    }
}

/// Records the owners of all names that the store has samples of, also of series that are not live
/// any more.
fn restore_name_owners(admission: &Admission, store: &Store) {
    let restore = |series: &Arc<Series>| {
        let (text, input) = (series.text(), series.family().input);
        let owners = admission.name_owners();
        owners.restore_owner(text, input, is_name_lasting(series));
    };
    store.latest(&Selector::all(), 0, &mut |series, _| restore(series));
    let all = RangeQuery::new(Selector::all(), 0, Millis::MAX, None);
    if let Err(error) = store.series(&all, &mut |series| restore(series)) {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(
            error,
            "cannot list the series of the store; statsd may take names of points that are not in use"
        );
    }
}
