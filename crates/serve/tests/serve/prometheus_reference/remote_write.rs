//! Sends samples to Prometheus by remote write 1.0: protobuf in a snappy block of literals.

use pegel_metric::Millis;
use pegel_testkit::{AgentAddress, post};

use super::samples::ReferenceSeries;

pub(super) fn send(address: &AgentAddress, series: &[ReferenceSeries]) -> Result<(), String> {
    let mut message = Vec::new();
    for one in series {
        put_bytes(&mut message, 1, &encode_series(one));
    }
    let headers = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "snappy"),
        ("x-prometheus-remote-write-version", "0.1.0"),
    ];
    let response = post(address, "/api/v1/write", &headers, &snappy(&message));
    let response = response.map_err(|error| error.to_string())?;
    match response.status {
        204 => Ok(()),
        status => Err(format!("{status}: {}", response.text())),
    }
}

fn encode_series(series: &ReferenceSeries) -> Vec<u8> {
    let mut labels = series.labels.clone();
    labels.push(("__name__".into(), series.name.into()));
    labels.sort();
    let mut out = Vec::new();
    for (name, value) in &labels {
        let mut label = Vec::new();
        put_bytes(&mut label, 1, name.as_bytes());
        put_bytes(&mut label, 2, value.as_bytes());
        put_bytes(&mut out, 1, &label);
    }
    for (time, value) in &series.samples {
        put_bytes(&mut out, 2, &encode_sample(*time, *value));
    }
    out
}

fn encode_sample(time: Millis, value: f64) -> Vec<u8> {
    // Field 1, a double; field 2, a varint.
    let mut out = vec![0x09];
    out.extend(value.to_bits().to_le_bytes());
    out.push(0x10);
    put_varint(&mut out, time as u64);
    out
}

fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, bytes.len() as u64);
    for chunk in bytes.chunks(1 << 16) {
        // A literal whose length less one is in the next two bytes.
        out.push(61 << 2);
        out.extend(((chunk.len() - 1) as u16).to_le_bytes());
        out.extend_from_slice(chunk);
    }
    out
}
