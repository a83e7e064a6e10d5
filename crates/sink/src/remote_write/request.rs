//! Splits a round into requests and encodes them. The same samples always give the same requests,
//! because a round that is repeated must not differ from what the receiver may have stored.

use bytes::Bytes;
use pegel_metric::Millis;
use pegel_wire::remote_write::{RequestEncoderV1, RequestEncoderV2};

use super::round::GroupedSamples;
use super::series_table::TargetSeries;

/// The most bytes of a message before compression, unless a single series has more.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// The approximate size of an encoded sample.
const SAMPLE_BYTES: usize = 20;

/// The contents of one request.
#[derive(Debug, Default)]
pub(super) struct PlannedRequest<'r> {
    series: Vec<(u32, &'r [(Millis, f64)])>,
    pub samples: u64,
    bytes: usize,
    pub is_late: bool,
}

/// Splits the samples of a round into requests. Returns the requests of each shard in order. The
/// same samples give the same requests in every process. Late samples are in separate requests,
/// after the others.
pub(super) fn plan_requests<'r>(
    (in_order, late): (&'r GroupedSamples, &'r GroupedSamples),
    table: &TargetSeries,
    shards: u32,
    samples_per_request: u32,
) -> Vec<Vec<PlannedRequest<'r>>> {
    let mut planned: Vec<Vec<PlannedRequest<'r>>> = Vec::new();
    planned.resize_with(shards as usize, Vec::new);
    for (list, is_late) in [(in_order, false), (late, true)] {
        // The requests that are being filled.
        let mut open: Vec<PlannedRequest<'r>> = Vec::new();
        open.resize_with(shards as usize, || PlannedRequest {
            is_late,
            ..PlannedRequest::default()
        });
        for (slot, samples) in list.iter() {
            let known = table.slot(slot);
            let shard = (known.hash % shards) as usize;
            let request = &mut open[shard];
            for chunk in samples.chunks(samples_per_request as usize) {
                let bytes = known.labels.len() + chunk.len() * SAMPLE_BYTES;
                let is_full = request.samples + chunk.len() as u64 > u64::from(samples_per_request)
                    || request.bytes + bytes > MESSAGE_BYTES_MAX;
                if is_full && request.samples > 0 {
                    planned[shard].push(std::mem::take(request));
                    request.is_late = is_late;
                }
                request.series.push((slot, chunk));
                request.samples += chunk.len() as u64;
                request.bytes += bytes;
            }
        }
        for (requests, rest) in planned.iter_mut().zip(open) {
            requests.extend((rest.samples > 0).then_some(rest));
        }
    }
    planned
}

impl PlannedRequest<'_> {
    /// Returns the time of the newest sample.
    pub(super) fn newest(&self) -> Millis {
        let last = |(_, samples): &(u32, &[(Millis, f64)])| samples.last().map(|last| last.0);
        let newest = self.series.iter().filter_map(last).max();
        newest.unwrap_or(Millis::MIN)
    }
}

/// Encodes and compresses requests; reuses its buffers.
#[derive(Debug, Default)]
pub(super) struct RequestBytes {
    v1: RequestEncoderV1,
    v2: RequestEncoderV2,
    snappy: Snappy,
    /// The numbering of the symbols that the encoder has, see [`TargetSeries::numbering`].
    numbering: u32,
}

struct Snappy(snap::raw::Encoder);

impl Default for Snappy {
    fn default() -> Snappy {
        Snappy(snap::raw::Encoder::new())
    }
}

impl std::fmt::Debug for Snappy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snappy")
    }
}

impl RequestBytes {
    /// Returns the compressed message of a request.
    pub(super) fn encode(
        &mut self,
        request: &PlannedRequest<'_>,
        table: &TargetSeries,
        is_v2: bool,
    ) -> Bytes {
        let packed = match is_v2 {
            true => {
                self.write_v2(request, table);
                self.snappy.0.compress_vec(self.v2.message())
            }
            false => {
                self.v1.clear();
                for (slot, samples) in &request.series {
                    self.v1.series(&table.slot(*slot).labels, samples);
                }
                self.snappy.0.compress_vec(self.v1.message())
            }
        };
        // Compression fails only beyond four gigabytes.
        packed.unwrap_or_default().into()
    }

    fn write_v2(&mut self, request: &PlannedRequest<'_>, table: &TargetSeries) {
        if self.numbering != table.numbering() {
            self.numbering = table.numbering();
            self.v2.forget_symbols();
        }
        self.v2.clear();
        for (slot, samples) in &request.series {
            let slot = table.slot(*slot);
            let text = |number| table.symbols.text(number);
            self.v2.series(&slot.symbols, slot.metadata, samples, text);
        }
    }
}
