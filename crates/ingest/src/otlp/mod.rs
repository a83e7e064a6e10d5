//! Metrics of OpenTelemetry (OTLP): gauges, sums, histograms and summaries that programs send over
//! HTTP or gRPC.
//!
//! ```text
//! request ──► visitor: names, labels ──► admission ──► streams: totals, resets ──► store
//! └──────────────── many at once ─────────────────┘    └───────── one at a time ─────────┘
//! ```
//!
//! Series belong to the input `otlp` and are subject to the same rules as those of all inputs.
//! Increases (delta temporality) are added to running totals (`streams.rs`) before they are stored.
//! When [`OtlpWriter::write`] returns, accepted samples are in the log. Totals survive a restart:
//! the agent continues from the last stored value. One request at a time changes the totals.
//! `write` waits for the log and must not be called from async workers.

mod expand;
mod labels;
mod request;
mod restored_totals;
mod series_state;
mod settings;
mod streams;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pegel_metric::{DropReason, Input, Millis};
use pegel_store::{PushError, Store};
use pegel_wire::otlp::{OtlpError, read_json, read_protobuf};
use serde::Serialize;

use crate::admission::Admission;
use crate::point_writer::PointWriter;
use crate::remote_write::{RefusedSamples, refusals};
use crate::senders::{POINT_BYTES, Sender};

pub use settings::OtlpInputSettings;

use request::{CollectedSamples, OtlpRequest};
use restored_totals::retention;
use streams::OtlpStreams;

/// The most samples of one request.
const SAMPLES_MAX: usize = 100_000;

/// A decompressed request.
#[derive(Debug, Clone, Copy)]
pub enum OtlpMessage<'a> {
    Protobuf(&'a [u8]),
    Json(&'a [u8]),
}

/// The result of a request.
#[derive(Debug, Default)]
pub struct OtlpResult {
    /// Samples that are in the log: readable, and not lost if the agent is killed.
    pub kept: u64,
    /// Data points that were refused, as a whole or in part.
    pub rejected_points: u64,
    /// The samples of the refused data points.
    pub refused: RefusedSamples,
}

/// The reason why a request was refused as a whole.
#[derive(Debug, thiserror::Error)]
pub enum OtlpWriteError {
    #[error(transparent)]
    Malformed(#[from] OtlpError),
    #[error(transparent)]
    Store(#[from] PushError),
}

/// The state of the input, as shown in `/status`.
#[derive(Debug, Serialize)]
pub struct OtlpInputStatus {
    pub requests: u64,
    pub data_points: u64,
    /// Series with totals that were written within the last ten minutes.
    pub totals: u64,
    /// Samples of increases that were sent again, and were not added again.
    pub repeated: u64,
    /// Resets of cumulative streams that were detected only by their start times.
    pub resets: u64,
    pub exemplars_ignored: u64,
}

/// Stores the requests of OTLP.
#[derive(Debug)]
pub struct OtlpWriter {
    /// Has its own cache of series.
    points: PointWriter,
    admission: Arc<Admission>,
    settings: OtlpInputSettings,
    streams: Mutex<OtlpStreams>,
    requests: AtomicU64,
    data_points: AtomicU64,
    repeated: AtomicU64,
    exemplars: AtomicU64,
    /// Copies of counts in `streams`, which may be locked for as long as a request waits for the
    /// log.
    totals: AtomicU64,
    resets: AtomicU64,
}

impl OtlpWriter {
    pub fn new(admission: Arc<Admission>, store: Store, settings: OtlpInputSettings) -> OtlpWriter {
        OtlpWriter {
            points: PointWriter::new(admission.clone(), store),
            admission,
            settings,
            streams: Mutex::default(),
            requests: AtomicU64::new(0),
            data_points: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            exemplars: AtomicU64::new(0),
            totals: AtomicU64::new(0),
            resets: AtomicU64::new(0),
        }
    }

    /// Stores the metrics of a request. Fails as a whole if the message is malformed or the store
    /// accepts nothing now; then nothing is changed. Otherwise a refused data point does not affect
    /// the others.
    pub fn write(
        &self,
        sender: &Arc<Sender>,
        message: OtlpMessage<'_>,
        now: Millis,
    ) -> Result<OtlpResult, OtlpWriteError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let request = self.read(sender, message, now);
        let request = request.inspect_err(|error| self.count_failed(sender, error))?;
        let mut streams = self.streams.lock();
        streams.begin(now, retention(self.points.store()));
        let collected = request.apply(&mut streams).inspect_err(|error| {
            streams.roll_back();
            self.count_failed(sender, error);
        })?;
        self.data_points
            .fetch_add(u64::from(collected.visited), Ordering::Relaxed);
        self.exemplars
            .fetch_add(collected.exemplars, Ordering::Relaxed);
        self.count_repeated(sender, collected.repeated);
        let pushed = self.push(sender, collected);
        let is_stored = matches!(&pushed, Ok(result) if !result.refused.is_temporary());
        if !is_stored {
            streams.roll_back();
        }
        self.totals.store(streams.len() as u64, Ordering::Relaxed);
        self.resets.store(streams.resets, Ordering::Relaxed);
        pushed
    }

    /// Parses a request and finds its series. Does not wait for other requests.
    fn read<'a>(
        &'a self,
        sender: &'a Arc<Sender>,
        message: OtlpMessage<'_>,
        now: Millis,
    ) -> Result<OtlpRequest<'a>, OtlpError> {
        let mut request = OtlpRequest::new(self, sender, now);
        match message {
            OtlpMessage::Protobuf(message) => read_protobuf(message, &mut request),
            OtlpMessage::Json(body) => read_json(body, &mut request),
        }?;
        Ok(request)
    }

    /// Counts a request that failed as a whole.
    fn count_failed(&self, sender: &Sender, error: &OtlpError) {
        self.admission.count_received(sender, 1);
        let reason = match error {
            OtlpError::TooMany(..) => DropReason::TooLarge,
            _ => DropReason::Malformed,
        };
        self.admission.count_dropped(sender, reason, 1);
    }

    /// Counts increases that were sent again as stored: their total contains them.
    fn count_repeated(&self, sender: &Sender, count: u64) {
        if count > 0 {
            self.admission.count_received(sender, count);
            self.admission.count_kept(sender, count);
            self.admission.ledger().add_duplicates(count);
            self.repeated.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn push(
        &self,
        sender: &Arc<Sender>,
        collected: CollectedSamples,
    ) -> Result<OtlpResult, OtlpWriteError> {
        let CollectedSamples {
            mut points,
            data_points,
            mut refused,
            visited,
            rejected,
            ..
        } = collected;
        let mut rejected_points = u64::from(rejected);
        let count = points.len() as u64;
        if count > 0 && !sender.try_charge(count * POINT_BYTES) {
            // Nothing is stored, so that the client can send the whole request again.
            points.clear();
            rejected_points = u64::from(visited);
            refused = RefusedSamples::default();
            let limit = || "the sender exceeds limits.sender_bytes".to_owned();
            refused.add(DropReason::SenderRate, count, limit);
        }
        for (reason, count) in refused.counts() {
            self.admission.count_received(sender, count);
            self.admission.count_dropped(sender, reason, count);
        }
        let mut kept = 0;
        if !points.is_empty() {
            sender.add_received(count);
            // The store counts samples that reach it in the ledger; the sender's account is updated
            // here.
            let pushed = self.points.store().push(Input::Otlp, points);
            let pushed = pushed.inspect_err(|error| sender.add_dropped(error.reason(), count))?;
            let mut last = None;
            for (at, reason) in pushed.refused {
                sender.add_dropped(reason, 1);
                refused.add(reason, 1, || refusals::of_store(reason).to_owned());
                let data_point = data_points.get(at).copied();
                rejected_points += u64::from(last.replace(data_point) != Some(data_point));
            }
            kept = pushed.kept;
        }
        Ok(OtlpResult {
            kept,
            rejected_points,
            refused,
        })
    }

    pub fn status(&self) -> OtlpInputStatus {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        OtlpInputStatus {
            requests: load(&self.requests),
            data_points: load(&self.data_points),
            totals: load(&self.totals),
            repeated: load(&self.repeated),
            resets: load(&self.resets),
            exemplars_ignored: load(&self.exemplars),
        }
    }
}
