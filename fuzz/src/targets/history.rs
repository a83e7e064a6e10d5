//! Answers of the engine of the history: matrices, remote read, lists of series.

use pegel_history::fuzzing::{BYTES_MAX, RANGE, read_answers};
use pegel_wire::prompb::{Label, Message, QueryResult, ReadResponse, Sample, TimeSeries};

use super::Target;
use crate::memory::bounded;

pub(super) const HISTORY: Target = Target {
    name: "history",
    run: history,
    dictionary: &[
        b"\"status\":\"success\"",
        b"\"resultType\":\"matrix\"",
        b"\"metric\":{\"__name__\":\"m\",\"instance\":\"n1\"}",
        b"\"values\":[[1500,\"1\"]]",
        b"\"NaN\"",
        b"\"+Inf\"",
        b"\"warnings\":[\"a\"]",
        b"\"isPartial\":true",
        b"\"histograms\":[]",
        b"__name__",
        b"instance",
    ],
    seeds,
};

fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"m","instance":"n1"},"values":[[1000,"1.5"],[1000.5,"NaN"],[2000,"+Inf"]]}]}}"#,
        r#"{"status":"success","isPartial":true,"data":{"resultType":"matrix","result":[]},"warnings":["no store"],"infos":null}"#,
        r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#,
        r#"{"status":"success","data":[{"__name__":"m","instance":"n1","a":"b"},{"__name__":"n","instance":"n1"}]}"#,
    ];
    let texts = texts.iter().map(|text| text.as_bytes().to_vec());
    texts.chain([remote_read()]).collect()
}

fn remote_read() -> Vec<u8> {
    let label = |(name, value): (&str, &str)| Label {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let sample = |timestamp: i64| Sample {
        timestamp,
        value: timestamp as f64,
    };
    let series = TimeSeries {
        labels: [("__name__", "m"), ("instance", "n1")].map(label).to_vec(),
        samples: [1_000_000, 1_500_000].map(sample).to_vec(),
        ..TimeSeries::default()
    };
    let response = ReadResponse {
        results: vec![QueryResult {
            timeseries: vec![series],
        }],
    };
    let packed = snap::raw::Encoder::new().compress_vec(&response.encode_to_vec());
    packed.unwrap_or_default()
}

/// Series that are accepted are those of this agent, with samples in the range and in order.
fn history(bytes: &[u8]) {
    let accepted = bounded(8 * BYTES_MAX, || read_answers(bytes));
    for series in accepted.iter().flatten() {
        assert_eq!(series.labels.get("instance"), "n1");
        assert_eq!(series.times.len(), series.values.len());
        assert!(series.times.is_sorted_by(|a, b| a < b));
        assert!(
            series
                .times
                .iter()
                .all(|time| (RANGE.0..=RANGE.1).contains(time))
        );
    }
}
