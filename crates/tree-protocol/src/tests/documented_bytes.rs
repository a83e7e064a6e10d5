//! The examples of docs/tree-protocol.md are the bytes that the encoders write.

use bytes::Bytes;

use crate::{
    PartialCell, PartialTickEncoder, SelectEnd, SelectWriter, SelectedSeries, ValueTickEncoder,
    encode_times, encode_values,
};

#[track_caller]
fn assert_documented(bytes: &[u8]) {
    const PAGE: &str = include_str!("../../../../docs/tree-protocol.md");
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let hex = hex.join(" ");
    // Spaces around the bytes: no part of a longer example is mistaken for this one.
    let lines = PAGE.lines().filter_map(|line| line.split('│').next());
    let mut examples = lines.map(str::trim);
    assert!(
        examples.any(|example| example == hex),
        "docs/tree-protocol.md has no line with: {hex}"
    );
}

#[test]
fn ticks_of_values() {
    let mut encoder = ValueTickEncoder::new();
    let first = [(0, 1000.0), (1, 12.34), (2, 4_194_304.0), (40, 1.0 / 3.0)];
    assert_documented(&encoder.encode(&first));
    let second = [(0, 1003.0), (1, 12.34), (40, f64::INFINITY)];
    assert_documented(&encoder.encode(&second));
}

#[test]
fn a_tick_of_partials() {
    let cell = PartialCell {
        count: 3,
        sum: 1507.0,
        min: 7.0,
        max: 1000.0,
        total: 0.0,
        sketch: Bytes::from_static(&[0xaa, 0xbb]),
    };
    let mut encoder = PartialTickEncoder::new();
    assert_documented(&encoder.encode(&[(0, cell.clone())]));
    let next = PartialCell {
        sum: 1508.5,
        max: 1001.5,
        ..cell
    };
    assert_documented(&encoder.encode(&[(0, next)]));
}

#[test]
fn columns_and_a_response() {
    let times: Vec<i64> = (0..6).map(|tick| 1_700_000_000_000 + tick * 1000).collect();
    let values = [5.0, 6.0, 6.0, 6.0, 6.0, 6.0];
    let (times, values) = (encode_times(&times), encode_values(&values));
    assert_documented(&times);
    assert_documented(&values);
    let series = SelectedSeries {
        text: "up".into(),
        kind: 2,
        times: times.into(),
        values: values.into(),
        ..SelectedSeries::default()
    };
    let mut writer = SelectWriter::new(1000);
    writer.series(&series).expect("written");
    let length = writer.len();
    let end = SelectEnd {
        answered: 1,
        expected: 1,
        late: Vec::new(),
        nodes: Vec::new(),
    };
    let response = writer.finish(end);
    assert_documented(&response[..length]);
    assert_documented(&response[length..]);
}
