//! Writes requests of remote write, versions 1.0 and 2.0.
//!
//! The messages are written directly: a sender has the labels of each series encoded already
//! ([`encode_labels`]), and in a request only samples are new. In version 2.0 labels refer to a
//! table of symbols, and every request has its own; a sender numbers its symbols once
//! ([`RequestEncoderV2::series`] takes these numbers), and the encoder gives each one a place in
//! the request when it is first used.
//!
//! Values are written bit for bit, so that -0 and stale markers arrive as they are.

use super::RemoteMetricType;

/// The tag of a field that contains bytes.
const fn bytes_tag(number: u8) -> u8 {
    number << 3 | 2
}

const VALUE_TAG: u8 = 1 << 3 | 1;
const TIME_TAG: u8 = 2 << 3;
/// Tag and length of a sample, tag and bits of its value, tag of its time.
const SAMPLE_FIXED_LEN: usize = 2 + 9 + 1;

/// Appends the fields `labels` of a series of version 1.0. Labels must be sorted by name, with the
/// metric's name as `__name__`. Equal labels are equal bytes.
pub fn encode_labels<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>, out: &mut Vec<u8>) {
    for (name, value) in labels {
        let len = text_len(name) + text_len(value);
        out.push(bytes_tag(1));
        put_varint(len as u64, out);
        put_bytes(1, name.as_bytes(), out);
        put_bytes(2, value.as_bytes(), out);
    }
}

/// Writes a request of version 1.0, `prometheus.WriteRequest`.
#[derive(Debug, Default)]
pub struct RequestEncoderV1 {
    message: Vec<u8>,
}

impl RequestEncoderV1 {
    /// Adds a series. `labels` are those of [`encode_labels`]; samples must be sorted by time.
    pub fn series(&mut self, labels: &[u8], samples: &[(i64, f64)]) {
        let len = labels.len() + samples_len(samples);
        self.message.push(bytes_tag(1));
        put_varint(len as u64, &mut self.message);
        self.message.extend_from_slice(labels);
        put_samples(samples, &mut self.message);
    }

    /// Returns the message.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Begins another request.
    pub fn clear(&mut self) {
        self.message.clear();
    }
}

/// The metadata of a series in a request of version 2.0. Help and unit are numbers of symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedMetadata {
    pub metric_type: RemoteMetricType,
    pub help: u32,
    pub unit: u32,
}

/// Writes a request of version 2.0, `io.prometheus.write.v2.Request`.
#[derive(Debug, Default)]
pub struct RequestEncoderV2 {
    /// The fields `symbols`, beginning with the empty text.
    symbols: Vec<u8>,
    symbol_count: u32,
    /// The fields `timeseries`.
    series: Vec<u8>,
    message: Vec<u8>,
    references: Vec<u8>,
    /// The place of each symbol in this request, by the sender's number; valid if its round is the
    /// current one.
    places: Vec<(u32, u32)>,
    round: u32,
}

impl RequestEncoderV2 {
    /// Begins a request.
    pub fn clear(&mut self) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.places.clear();
            self.round = 1;
        }
        self.symbols.clear();
        self.series.clear();
        self.message.clear();
        put_bytes(4, b"", &mut self.symbols);
        self.symbol_count = 1;
    }

    /// Adds a series. `labels` are numbers of symbols, name and value in turn, sorted by name;
    /// `text` returns the text of a symbol, which is empty for the number 0.
    pub fn series<'t>(
        &mut self,
        labels: &[u32],
        metadata: EncodedMetadata,
        samples: &[(i64, f64)],
        text: impl Fn(u32) -> &'t str,
    ) {
        let mut references = std::mem::take(&mut self.references);
        references.clear();
        for label in labels {
            let place = self.place(*label, &text);
            put_varint(u64::from(place), &mut references);
        }
        let help = self.place(metadata.help, &text);
        let unit = self.place(metadata.unit, &text);
        let mut described = [0; 24];
        let described = metadata_fields(metadata.metric_type, help, unit, &mut described);
        let len = 1 + varint_len(references.len() as u64) + references.len();
        let len = len + samples_len(samples) + 2 + described.len();
        self.series.push(bytes_tag(5));
        put_varint(len as u64, &mut self.series);
        put_bytes(1, &references, &mut self.series);
        put_samples(samples, &mut self.series);
        put_bytes(5, described, &mut self.series);
        self.references = references;
    }

    /// Returns the place of a symbol in the request, and adds it if it is new.
    fn place<'t>(&mut self, symbol: u32, text: &impl Fn(u32) -> &'t str) -> u32 {
        if symbol == 0 {
            return 0;
        }
        let at = symbol as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, (0, 0));
        }
        let (round, place) = self.places[at];
        if round == self.round {
            return place;
        }
        let place = self.symbol_count;
        self.symbol_count += 1;
        put_bytes(4, text(symbol).as_bytes(), &mut self.symbols);
        self.places[at] = (self.round, place);
        place
    }

    /// Forgets the numbers of symbols, before the sender assigns new ones.
    pub fn forget_symbols(&mut self) {
        self.places.clear();
    }

    /// Returns the message.
    pub fn message(&mut self) -> &[u8] {
        if self.message.is_empty() {
            self.message.extend_from_slice(&self.symbols);
            self.message.extend_from_slice(&self.series);
        }
        &self.message
    }

    /// Returns the size of the message so far.
    pub fn len(&self) -> usize {
        self.symbols.len() + self.series.len()
    }

    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }
}

/// Writes the fields of a message `Metadata`: at most 18 bytes.
fn metadata_fields(
    metric_type: RemoteMetricType,
    help: u32,
    unit: u32,
    buffer: &mut [u8; 24],
) -> &[u8] {
    let mut len = 0;
    for (tag, number) in [(1, metric_type.0), (3, help.into()), (4, unit.into())] {
        if number == 0 {
            continue;
        }
        buffer[len] = tag << 3;
        len += 1;
        let mut rest = number & u64::from(u32::MAX);
        while rest >= 0x80 {
            buffer[len] = rest as u8 | 0x80;
            rest >>= 7;
            len += 1;
        }
        buffer[len] = rest as u8;
        len += 1;
    }
    &buffer[..len]
}

fn samples_len(samples: &[(i64, f64)]) -> usize {
    let time_len = |(time, _): &(i64, f64)| varint_len(*time as u64);
    samples.len() * SAMPLE_FIXED_LEN + samples.iter().map(time_len).sum::<usize>()
}

/// Appends fields `samples`, which have the same form in both versions.
fn put_samples(samples: &[(i64, f64)], out: &mut Vec<u8>) {
    for &(time, value) in samples {
        let time_len = varint_len(time as u64);
        let mut fixed = [0; SAMPLE_FIXED_LEN];
        fixed[0] = bytes_tag(2);
        fixed[1] = (SAMPLE_FIXED_LEN - 2 + time_len) as u8;
        fixed[2] = VALUE_TAG;
        fixed[3..11].copy_from_slice(&value.to_bits().to_le_bytes());
        fixed[11] = TIME_TAG;
        out.extend_from_slice(&fixed);
        put_varint(time as u64, out);
    }
}

fn put_bytes(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(bytes_tag(number));
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Returns the length of a field that contains a text.
fn text_len(text: &str) -> usize {
    1 + varint_len(text.len() as u64) + text.len()
}

#[inline]
fn varint_len(number: u64) -> usize {
    let bits = 64 - (number | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[inline]
fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    let mut bytes = [0; 10];
    let mut len = 0;
    while number >= 0x80 {
        bytes[len] = number as u8 | 0x80;
        number >>= 7;
        len += 1;
    }
    bytes[len] = number as u8;
    out.extend_from_slice(&bytes[..=len]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompb::{Message, WriteRequest, write_v2};
    use crate::remote_write::{WriteItem, WriteRequestV1, WriteRequestV2};

    const SAMPLES: [(i64, f64); 5] = [
        (i64::MIN, -0.0),
        (-1, f64::from_bits(0x7ff0_0000_0000_0002)),
        (0, 0.0),
        (1_700_000_000_000, 1.5),
        (i64::MAX, f64::NEG_INFINITY),
    ];

    fn bits(samples: impl Iterator<Item = (i64, f64)>) -> Vec<(i64, u64)> {
        samples
            .map(|(time, value)| (time, value.to_bits()))
            .collect()
    }

    #[test]
    fn version_1_reads_back_bit_for_bit() {
        let long = "x".repeat(16_000);
        let labels = [("__name__", "m"), ("a", long.as_str()), ("b", "ü")];
        let mut encoded = Vec::new();
        encode_labels(labels.into_iter(), &mut encoded);
        let mut encoder = RequestEncoderV1::default();
        encoder.series(&encoded, &SAMPLES);
        encoder.series(&encoded, &[]);
        let items: Vec<_> = WriteRequestV1::new(encoder.message()).collect();
        let [Ok(WriteItem::Series(first)), Ok(WriteItem::Series(second))] = &items[..] else {
            panic!("{items:?}");
        };
        let read = first.labels().expect("valid");
        assert_eq!((read.name, &read.labels[..]), ("m", &labels[1..]));
        assert_eq!(first.label_bytes(), second.label_bytes());
        let read = first.samples.map(|sample| sample.expect("valid"));
        let read = bits(read.map(|sample| (sample.time, sample.value)));
        assert_eq!(read, bits(SAMPLES.into_iter()));
        // Another decoder agrees.
        let decoded = WriteRequest::decode(encoder.message()).expect("valid");
        let first = &decoded.timeseries[0];
        assert_eq!((first.labels.len(), first.samples.len()), (3, 5));
        assert_eq!(first.labels[1].value, long);
        encoder.clear();
        assert!(encoder.message().is_empty());
    }

    #[test]
    fn version_2_shares_symbols_and_begins_anew_with_each_request() {
        let texts = ["", "__name__", "m", "host", "n1", "n2", "Help.", "seconds"];
        let metadata = EncodedMetadata {
            metric_type: RemoteMetricType(2),
            help: 6,
            unit: 7,
        };
        let mut encoder = RequestEncoderV2::default();
        for round in 0..3 {
            encoder.clear();
            assert!(encoder.is_empty());
            encoder.series(&[1, 2, 3, 5], metadata, &SAMPLES, |at| texts[at as usize]);
            if round == 1 {
                encoder.series(&[1, 2, 3, 4], metadata, &SAMPLES[..1], |at| {
                    texts[at as usize]
                });
            }
            let expected = if round == 1 { 8 } else { 7 };
            let message = encoder.message().to_vec();
            let decoded = write_v2::Request::decode(&*message).expect("valid");
            assert_eq!(decoded.symbols.len(), expected, "{:?}", decoded.symbols);
            let described = decoded.timeseries[0].metadata.expect("described");
            let symbol = |at: u32| decoded.symbols[at as usize].as_str();
            assert_eq!(described.r#type, 2);
            assert_eq!(
                (symbol(described.help_ref), symbol(described.unit_ref)),
                ("Help.", "seconds")
            );
            let request = WriteRequestV2::new(&message).expect("valid");
            let mut hosts = Vec::new();
            let visited = request.visit_series(|series, references| {
                let labels = request.labels(references).expect("valid");
                assert_eq!(labels.name, "m");
                hosts.push(labels.labels[0].1.to_owned());
                if hosts.len() == 1 {
                    let read = series.samples.map(|sample| sample.expect("valid"));
                    let read = bits(read.map(|sample| (sample.time, sample.value)));
                    assert_eq!(read, bits(SAMPLES.into_iter()));
                }
                Ok(())
            });
            visited.expect("valid");
            assert_eq!(hosts, ["n2", "n1"][..hosts.len()]);
            assert_eq!(hosts.len(), decoded.timeseries.len());
        }
    }

    #[test]
    fn lengths_of_numbers_are_those_that_are_written() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1u64 << shift) - 1] {
                let mut out = Vec::new();
                put_varint(number, &mut out);
                assert_eq!(out.len(), varint_len(number), "{number}");
            }
        }
    }
}
