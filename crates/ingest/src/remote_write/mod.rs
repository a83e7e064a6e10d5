//! Remote write: series of other systems, which a Prometheus or an agent like it sends with all
//! their labels.
//!
//! Series are stored as they were sent, in a namespace of their own ([`Input::RemoteWrite`]): no
//! label is added, and a series of another input with the same name and labels is another series.
//! Names of the node and of the agent are accepted only with a label `instance` that is not the
//! node's, so that nothing of the node can be forged. Relabelling rules of the configuration do not
//! apply; the sender has its own.
//!
//! Nearly all series of a request are known. They are found by a hash of their encoded labels (see
//! `series_cache.rs`), so that labels are decoded, checked and admitted once per series. When
//! [`RemoteWriter::write`] returns, accepted samples are in the log. It waits for the log and must
//! not be called from async workers.

mod metadata;
pub(crate) mod refusals;
mod series_cache;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use pegel_metric::{DropReason, Family, Input, MetricKind, Millis, Point, Series};
use pegel_store::{PushError, Store};
use pegel_wire::remote_write::{
    LabelsError, ProtobufError, RemoteMetricType, SAMPLES_MAX, Samples, SentLabels, WriteItem,
    WriteRequestV1, WriteRequestV2,
};
use serde::Serialize;

use crate::admission::{Admission, AdmissionError, AdmittedSeries};
use crate::senders::{POINT_BYTES, Sender};

pub use metadata::DescribedMetric;
pub use refusals::RefusedSamples;

use metadata::RemoteMetadata;
use series_cache::{SeriesCache, SeriesKey, SeriesKeyHasher};

/// The label that distinguishes the targets of a Prometheus.
const INSTANCE: &str = "instance";
/// The most bytes of labels of new series in one request. Senders stay far below it: in version
/// 2.0 a short request can have many series with the same long labels.
const NEW_LABEL_BYTES_MAX: usize = 128 << 20;
/// How many series are looked up before another request may use the cache.
const SERIES_PER_LOCK: usize = 64;

/// A decompressed request.
#[derive(Debug, Clone, Copy)]
pub enum RemoteMessage<'a> {
    V1(&'a [u8]),
    V2(&'a [u8]),
}

/// The result of a request. Samples that were kept are readable and survive a kill.
#[derive(Debug, Default)]
pub struct RemoteWriteResult {
    pub kept: u64,
    pub refused: RefusedSamples,
}

/// Why a request was refused as a whole.
#[derive(Debug, thiserror::Error)]
pub enum RemoteWriteError {
    #[error("malformed protobuf message: {0}")]
    Malformed(#[from] ProtobufError),
    #[error(transparent)]
    Store(#[from] PushError),
}

/// Why a series is refused.
#[derive(Debug, thiserror::Error)]
enum RemoteSeriesError {
    #[error(transparent)]
    Labels(#[from] LabelsError),
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    #[error(
        "the name {0:?} belongs to the node and the agent; it requires a label instance that is not this node's"
    )]
    OfNode(String),
}

impl RemoteSeriesError {
    fn reason(&self) -> DropReason {
        match self {
            RemoteSeriesError::Labels(LabelsError::Malformed(_)) => DropReason::Malformed,
            RemoteSeriesError::Labels(_) | RemoteSeriesError::OfNode(_) => DropReason::BadName,
            RemoteSeriesError::Admission(error) => error.reason(),
        }
    }
}

/// Stores the requests of remote write.
#[derive(Debug)]
pub struct RemoteWriter {
    admission: Arc<Admission>,
    store: Store,
    /// All series share it: what senders say about metrics is in `metadata`.
    family: Arc<Family>,
    hasher: SeriesKeyHasher,
    /// Locked while known series are looked up. Not locked while others are checked and admitted.
    cache: Mutex<SeriesCache>,
    metadata: Mutex<RemoteMetadata>,
    /// Copies of counts in both, which `/status` reads without waiting for a request.
    series: AtomicU64,
    described: AtomicU64,
    requests: AtomicU64,
    histograms: AtomicU64,
    exemplars: AtomicU64,
}

/// The state of remote write, as shown in `/status`.
#[derive(Debug, Serialize)]
pub struct RemoteWriteStatus {
    pub requests: u64,
    /// Series that were written within the last ten minutes.
    pub series: u64,
    pub histograms_refused: u64,
    pub exemplars_ignored: u64,
    /// Metrics of which senders told type, help or unit.
    pub metadata: u64,
}

/// What one request collects.
#[derive(Default)]
struct Collected {
    points: Vec<Point>,
    refused: RefusedSamples,
    /// All series and samples, including those that are refused.
    series: usize,
    samples: usize,
    histograms: u64,
    exemplars: u64,
}

impl RemoteWriter {
    pub fn new(admission: Arc<Admission>, store: Store) -> RemoteWriter {
        let family = Family::new("", MetricKind::Unknown, "", 1, "").of_input(Input::RemoteWrite);
        RemoteWriter {
            admission,
            store,
            family: Arc::new(family),
            hasher: SeriesKeyHasher::new(),
            cache: Mutex::default(),
            metadata: Mutex::default(),
            series: AtomicU64::new(0),
            described: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            histograms: AtomicU64::new(0),
            exemplars: AtomicU64::new(0),
        }
    }

    /// Stores the samples of a request. `own_instance` is the label `instance` of this node's
    /// series, with the port that was chosen when the agent started. Fails as a whole if the
    /// message is malformed or the store accepts nothing at this time; otherwise a refused sample
    /// does not affect the others.
    pub fn write(
        &self,
        sender: &Arc<Sender>,
        message: RemoteMessage<'_>,
        own_instance: &str,
        now: Millis,
    ) -> Result<RemoteWriteResult, RemoteWriteError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let request = RequestContext {
            writer: self,
            sender,
            own_instance,
            now,
            new_label_bytes: Cell::new(0),
        };
        let mut collected = match message {
            RemoteMessage::V1(message) => request.collect_v1(message),
            RemoteMessage::V2(message) => request.collect_v2(message),
        }
        .inspect_err(|_| {
            self.admission.count_received(sender, 1);
            let reason = DropReason::Malformed;
            self.admission.count_dropped(sender, reason, 1);
        })?;
        self.histograms
            .fetch_add(collected.histograms, Ordering::Relaxed);
        self.exemplars
            .fetch_add(collected.exemplars, Ordering::Relaxed);
        collected.refuse_histograms();
        let count = collected.points.len() as u64;
        if count > 0 && !sender.try_charge(count * POINT_BYTES) {
            collected.points.clear();
            let limit = || "the sender exceeds limits.sender_bytes".to_owned();
            collected.refused.add(DropReason::SenderRate, count, limit);
        }
        self.push(sender, collected)
    }

    fn push(
        &self,
        sender: &Arc<Sender>,
        collected: Collected,
    ) -> Result<RemoteWriteResult, RemoteWriteError> {
        let Collected {
            points,
            mut refused,
            ..
        } = collected;
        for (reason, count) in refused.counts() {
            self.admission.count_received(sender, count);
            self.admission.count_dropped(sender, reason, count);
        }
        if points.is_empty() {
            return Ok(RemoteWriteResult { kept: 0, refused });
        }
        let count = points.len() as u64;
        sender.add_received(count);
        // The store counts samples that reach it in the ledger; the sender's account is updated
        // here.
        let pushed = self.store.push(Input::RemoteWrite, points);
        let pushed = pushed.inspect_err(|error| sender.add_dropped(error.reason(), count))?;
        for (_, reason) in pushed.refused {
            sender.add_dropped(reason, 1);
            refused.add(reason, 1, || refusals::of_store(reason).to_owned());
        }
        let kept = pushed.kept;
        Ok(RemoteWriteResult { kept, refused })
    }

    /// Returns what senders told about metrics, sorted by name.
    pub fn metadata(&self) -> Vec<DescribedMetric> {
        self.metadata.lock().all()
    }

    pub fn status(&self) -> RemoteWriteStatus {
        RemoteWriteStatus {
            requests: self.requests.load(Ordering::Relaxed),
            series: self.series.load(Ordering::Relaxed),
            histograms_refused: self.histograms.load(Ordering::Relaxed),
            exemplars_ignored: self.exemplars.load(Ordering::Relaxed),
            metadata: self.described.load(Ordering::Relaxed),
        }
    }
}

/// One request while its series are looked up.
struct RequestContext<'a> {
    writer: &'a RemoteWriter,
    sender: &'a Arc<Sender>,
    own_instance: &'a str,
    now: Millis,
    /// The length of the labels of series that were not known.
    new_label_bytes: Cell<usize>,
}

impl RequestContext<'_> {
    fn collect_v1(&self, message: &[u8]) -> Result<Collected, ProtobufError> {
        let writer = self.writer;
        let mut collected = Collected::with_room_for(message);
        let mut cache = self.cache();
        for item in WriteRequestV1::new(message) {
            match item? {
                WriteItem::Series(series) => {
                    collected.count_series(series.histograms, series.exemplars)?;
                    let key = writer.hasher.of_bytes(series.label_bytes());
                    let place = self.place_of(&mut cache, key, || self.admit(&series.labels()?));
                    self.check_new_labels()?;
                    let known = place.map(|place| cache.series(place));
                    collected.add(known, series.samples)?;
                    self.give_way(&mut cache, &collected);
                }
                WriteItem::Metadata(metadata) => MutexGuard::unlocked(&mut cache, || {
                    let is_trusted = self.sender.is_trusted();
                    self.describe(|known| known.add_v1(&metadata, is_trusted));
                }),
            }
        }
        Ok(collected)
    }

    fn collect_v2(&self, message: &[u8]) -> Result<Collected, ProtobufError> {
        let writer = self.writer;
        let request = WriteRequestV2::new(message)?;
        let symbols = writer.hasher.of_symbols(&request.symbols);
        let mut collected = Collected::with_room_for(message);
        let mut cache = self.cache();
        request.visit_series(|series, references| {
            collected.count_series(series.histograms, series.exemplars)?;
            let admit = || -> Result<AdmittedSeries, RemoteSeriesError> {
                let labels = request.labels(references)?;
                let admitted = self.admit(&labels)?;
                if series.metadata.metric_type != RemoteMetricType(0) {
                    let (name, is_trusted) = (labels.name, self.sender.is_trusted());
                    self.describe(|known| {
                        known.add_v2(name, &series.metadata, &request, is_trusted);
                    });
                }
                Ok(admitted)
            };
            let place = match writer.hasher.of_references(references, &symbols) {
                Ok(key) => self.place_of(&mut cache, key, admit),
                Err(error) => Err(error.into()),
            };
            self.check_new_labels()?;
            let known = place.map(|place| cache.series(place));
            collected.add(known, series.samples)?;
            self.give_way(&mut cache, &collected);
            Ok(())
        })?;
        Ok(collected)
    }

    /// Locks the cache.
    fn cache(&self) -> MutexGuard<'_, SeriesCache> {
        let mut cache = self.writer.cache.lock();
        cache.remove_unused(self.now);
        self.count_cached(&cache);
        cache
    }

    fn count_cached(&self, cache: &SeriesCache) {
        let count = cache.len() as u64;
        self.writer.series.store(count, Ordering::Relaxed);
    }

    /// Returns the place of a series in the cache. A new one is decoded, checked and admitted while
    /// other requests use the cache.
    #[inline]
    fn place_of(
        &self,
        cache: &mut MutexGuard<'_, SeriesCache>,
        key: SeriesKey,
        admit: impl FnOnce() -> Result<AdmittedSeries, RemoteSeriesError>,
    ) -> Result<usize, RemoteSeriesError> {
        if let Some(place) = cache.find(key, self.now) {
            return Ok(place);
        }
        let admitted = MutexGuard::unlocked(cache, admit)?;
        // Another request may have admitted it meanwhile.
        if let Some(place) = cache.find(key, self.now) {
            return Ok(place);
        }
        let place = cache.insert(key, admitted, self.now);
        self.count_cached(cache);
        Ok(place)
    }

    /// Lets other requests use the cache from time to time.
    fn give_way(&self, cache: &mut MutexGuard<'_, SeriesCache>, collected: &Collected) {
        if collected.series.is_multiple_of(SERIES_PER_LOCK) {
            MutexGuard::bump(cache);
        }
    }

    /// Adds what a sender told about metrics.
    fn describe(&self, add: impl FnOnce(&mut RemoteMetadata)) {
        let mut metadata = self.writer.metadata.lock();
        add(&mut metadata);
        let count = metadata.len() as u64;
        self.writer.described.store(count, Ordering::Relaxed);
    }

    /// Admits a new series.
    fn admit(&self, labels: &SentLabels<'_>) -> Result<AdmittedSeries, RemoteSeriesError> {
        let admission = &self.writer.admission;
        Series::check_lengths(labels.name, &labels.labels).map_err(AdmissionError::from)?;
        self.count_new_labels(labels);
        let is_reserved = admission.check_reserved(labels.name).is_err();
        if is_reserved && !self.is_of_other_node(labels) {
            return Err(RemoteSeriesError::OfNode(labels.name.to_owned()));
        }
        let family = &self.writer.family;
        let series = admission.admit_as_sent(self.sender, family, labels.name, &labels.labels)?;
        Ok(series)
    }

    fn count_new_labels(&self, labels: &SentLabels<'_>) {
        let of_labels = labels.labels.iter();
        let of_labels = of_labels.map(|(key, value)| key.len() + value.len());
        let bytes = labels.name.len() + of_labels.sum::<usize>();
        self.new_label_bytes
            .set(self.new_label_bytes.get().saturating_add(bytes));
    }

    fn check_new_labels(&self) -> Result<(), ProtobufError> {
        if self.new_label_bytes.get() > NEW_LABEL_BYTES_MAX {
            let what = "bytes of labels of new series";
            return Err(ProtobufError::TooMany(what, NEW_LABEL_BYTES_MAX));
        }
        Ok(())
    }

    /// Returns whether labels name another system than this node, which has a name for each of its
    /// ports.
    fn is_of_other_node(&self, labels: &SentLabels<'_>) -> bool {
        let labels = &labels.labels;
        self.writer.admission.is_of_other_instance(labels)
            && !labels.contains(&(INSTANCE, self.own_instance))
    }
}

impl Collected {
    /// Reserves memory for as many points as a message of this size usually has.
    fn with_room_for(message: &[u8]) -> Collected {
        Collected {
            points: Vec::with_capacity((message.len() / 128).min(SAMPLES_MAX)),
            ..Collected::default()
        }
    }

    /// Counts a series, with its samples that are not stored.
    fn count_series(&mut self, histograms: u64, exemplars: u64) -> Result<(), ProtobufError> {
        if self.series == SAMPLES_MAX {
            return Err(ProtobufError::TooMany("series", SAMPLES_MAX));
        }
        self.series += 1;
        self.histograms += histograms;
        self.exemplars += exemplars;
        Ok(())
    }

    fn count_sample(&mut self) -> Result<(), ProtobufError> {
        if self.samples == SAMPLES_MAX {
            return Err(ProtobufError::TooMany("samples", SAMPLES_MAX));
        }
        self.samples += 1;
        Ok(())
    }

    /// Adds the samples of a series, or counts them as refused.
    fn add(
        &mut self,
        series: Result<&Arc<Series>, RemoteSeriesError>,
        samples: Samples<'_>,
    ) -> Result<(), ProtobufError> {
        match series {
            Ok(series) => {
                for sample in samples {
                    let sample = sample?;
                    self.count_sample()?;
                    self.points.push(Point {
                        series: series.clone(),
                        time: sample.time,
                        value: sample.value,
                    });
                }
            }
            Err(error) => {
                let mut count = 0;
                for sample in samples {
                    sample?;
                    self.count_sample()?;
                    count += 1;
                }
                self.refused
                    .add(error.reason(), count, || error.to_string());
            }
        }
        Ok(())
    }

    fn refuse_histograms(&mut self) {
        let reason = || "native histograms are not supported".to_owned();
        self.refused
            .add(DropReason::Unsupported, self.histograms, reason);
    }
}
