use std::sync::Arc;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use pegel_metric::{Family, Input, MetricKind, STALE_NAN};

use super::*;

fn series(name: &str, labels: &[(&str, &str)]) -> Series {
    let mut family = Family::new("", MetricKind::Gauge, "", 0, "");
    family.input = Input::Http;
    Series::named(Arc::new(family), name, labels).expect("a series")
}

/// Values whose bits a careless writer would change.
fn points() -> Vec<(Millis, f64)> {
    let bits = [
        0.0f64.to_bits(),
        (-0.0f64).to_bits(),
        f64::INFINITY.to_bits(),
        f64::NEG_INFINITY.to_bits(),
        f64::NAN.to_bits(),
        STALE_NAN.to_bits(),
        0x7ff8_0000_dead_beef,
        1,
        f64::MAX.to_bits(),
        0.1f64.to_bits(),
    ];
    let values = bits.iter().map(|bits| f64::from_bits(*bits));
    (-3i64..).map(|n| n * 86_400_000 + 7).zip(values).collect()
}

fn write(format: SampleFileFormat, all: &[(Series, Vec<(Millis, f64)>)]) -> FinishedFile {
    let mut writer = SampleWriter::new(format, "n1").expect("a writer");
    for (series, points) in all {
        writer.add(series, points).expect("added");
    }
    writer.finish().expect("finished")
}

#[test]
fn every_bit_of_times_and_values_reads_back() {
    let all = [
        (series("a", &[]), points()),
        (series("b", &[("k", "v\"\\\n,ü"), ("a", "1")]), points()),
    ];
    let file = write(SampleFileFormat::Parquet, &all);
    let reader = SerializedFileReader::new(bytes_of(&file)).expect("a Parquet file");
    let rows = reader.get_row_iter(None).expect("rows");
    let rows: Vec<_> = rows.map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), 20);
    assert_eq!(file.samples, 20);
    let expected = all
        .iter()
        .flat_map(|(series, points)| points.iter().map(move |point| (series, point)));
    for (row, (series, (time, value))) in rows.iter().zip(expected) {
        assert_eq!(row.get_timestamp_millis(0).expect("a time"), *time);
        assert_eq!(row.get_string(1).expect("a name"), series.name());
        let labels: serde_json::Value =
            serde_json::from_str(row.get_string(2).expect("labels")).expect("JSON");
        for (key, value) in series.labels() {
            assert_eq!(labels[key], *value);
        }
        assert_eq!(
            row.get_double(3).expect("a value").to_bits(),
            value.to_bits()
        );
        assert_eq!(row.get_string(4).expect("a kind"), "gauge");
        assert_eq!(row.get_string(5).expect("an input"), "http");
    }
}

fn bytes_of(file: &FinishedFile) -> bytes::Bytes {
    file.bytes.clone().into()
}

#[test]
fn the_same_samples_give_the_same_bytes_and_others_another_digest() {
    let all = [(series("a", &[("x", "1")]), points())];
    let (first, second) = (
        write(SampleFileFormat::Parquet, &all),
        write(SampleFileFormat::Parquet, &all),
    );
    assert_eq!(first.bytes, second.bytes);
    assert_eq!(first.digest, second.digest);
    assert_eq!(first.digest, write(SampleFileFormat::Csv, &all).digest);
    let mut other = points();
    other[4].1 = f64::from_bits(other[4].1.to_bits() + 1);
    let other = write(
        SampleFileFormat::Parquet,
        &[(series("a", &[("x", "1")]), other)],
    );
    assert_ne!(first.digest, other.digest);
}

#[test]
fn row_groups_are_bounded_and_have_the_limits_of_their_columns() {
    let count = 600_000;
    let many: Vec<(Millis, f64)> = (0..count).map(|n| (n, n as f64)).collect();
    let file = write(
        SampleFileFormat::Parquet,
        &[(series("a", &[]), many.clone()), (series("b", &[]), many)],
    );
    let reader = SerializedFileReader::new(bytes_of(&file)).expect("a Parquet file");
    let metadata = reader.metadata();
    let rows: i64 = metadata
        .row_groups()
        .iter()
        .map(|group| group.num_rows())
        .sum();
    assert_eq!(rows, 2 * count);
    assert_eq!(metadata.num_row_groups(), 5);
    for group in metadata.row_groups() {
        assert!(group.num_rows() <= 256 << 10);
        for column in 0..4 {
            let statistics = group.column(column).statistics().expect("statistics");
            assert!(statistics.min_bytes_opt().is_some() && statistics.max_bytes_opt().is_some());
        }
    }
    let first = metadata
        .row_group(0)
        .column(1)
        .statistics()
        .expect("of the names");
    assert_eq!(first.max_bytes_opt(), Some(&b"a"[..]));
}

#[test]
fn csv_quotes_texts_and_keeps_values() {
    let file = write(
        SampleFileFormat::Csv,
        &[(
            series("a", &[("k", "x,\"y")]),
            vec![(5, 0.1), (6, f64::NAN)],
        )],
    );
    let text = String::from_utf8(file.bytes).expect("UTF-8");
    let expected = concat!(
        "time,name,labels,value,kind,input\n",
        "5,a,\"{\"\"k\"\":\"\"x,\\\"\"y\"\"}\",0.1,gauge,http\n",
        "6,a,\"{\"\"k\"\":\"\"x,\\\"\"y\"\"}\",NaN,gauge,http\n",
    );
    assert_eq!(text, expected);
}

#[test]
fn a_file_beyond_its_limit_ends_at_once() {
    let bytes_max = 1 << 20;
    // 40 MB as CSV, a few kilobytes as Parquet.
    let long = "x".repeat(4000);
    let many: Vec<(Millis, f64)> = (0..10_000).map(|n| (n, 1.0)).collect();
    let series = series("a", &[("k", &long)]);
    let mut writer =
        SampleWriter::with_limit(SampleFileFormat::Csv, "n", bytes_max).expect("a writer");
    let error = writer.add(&series, &many).expect_err("too large");
    assert_eq!(error.to_string(), "the file exceeds 1048576 bytes");
    let row = 2 * long.len();
    assert!(writer.bytes() <= bytes_max + row, "{}", writer.bytes());
    let mut writer =
        SampleWriter::with_limit(SampleFileFormat::Parquet, "n", bytes_max).expect("a writer");
    writer.add(&series, &many).expect("small");
    assert_eq!(writer.finish().expect("finished").samples, 10_000);
}

#[test]
fn a_file_that_is_large_enough_is_full() {
    let mut writer = SampleWriter::new(SampleFileFormat::Parquet, "n").expect("a writer");
    let many: Vec<(Millis, f64)> = (0..1_000_000).map(|n| (n, 1.0)).collect();
    for round in 0..5 {
        assert!(!writer.is_full(), "{round}");
        writer
            .add(&series("a", &[("n", &round.to_string())]), &many)
            .expect("added");
    }
    assert!(writer.is_full());
}
