//! Encoding in the text formats of Prometheus and OpenMetrics.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Series};
use pegel_testkit::Exposition;
use pegel_wire::{EncodeResult, openmetrics, prometheus};

use super::Target;

const DICTIONARY: &[&[u8]] = &[
    b"_total",
    b"_created",
    b"__name__",
    b"a{b=\"c\"}\n",
    b"\\n",
    b"\\\"",
];

pub(super) const ENCODE: Target = Target {
    name: "encode",
    run: encode_any,
    dictionary: DICTIONARY,
    seeds: || {
        let lines = [
            "0queue.depth{q=\"a\"}\n1queue_depth{q=\"a\"}\n2queue-depth",
            "0a_total\n1a\n0a_created\n0_total\n0x_total_total\n0x_total",
            "19{a.b=\"1\"}\n19{a-b=\"1\"}\n1twice{a-b=\"1\",a.b=\"2\"}\n1m{__name__=\"x\",_name=\"y\"}",
            "0ü ß{ü=\"\\n\\\\\\\"\"}\n1a{k=\"\u{0}\"}",
        ];
        lines.map(|text| text.as_bytes().to_vec()).to_vec()
    },
};

type Parse = fn(&str) -> Result<Exposition, String>;
type Encode = fn(&[(Arc<Series>, f64)], &mut String) -> EncodeResult;

/// For any series the output can be parsed, no two samples are equal, and labels and values
/// survive.
fn encode_any(input: &[u8]) {
    let mut readings: Vec<(Arc<Series>, f64)> = Vec::new();
    for line in String::from_utf8_lossy(input).split('\n') {
        let kind = match line.as_bytes().first() {
            Some(b'0') => MetricKind::Counter,
            Some(b'1') => MetricKind::Gauge,
            _ => MetricKind::Unknown,
        };
        let text = line.get(1..).unwrap_or_default();
        if let Ok(series) = Series::parse(text, |name| family(name, kind)) {
            // Any double, also those that are not finite.
            let mut hasher = DefaultHasher::new();
            hasher.write(line.as_bytes());
            readings.push((Arc::new(series), f64::from_bits(hasher.finish())));
        }
    }
    let formats: [(Encode, Parse); 2] = [
        (prometheus::encode, Exposition::parse_prometheus),
        (openmetrics::encode, Exposition::parse_openmetrics),
    ];
    for (encode, parse) in formats {
        let mut text = String::new();
        let encoded = encode(&readings, &mut text);
        assert_eq!(encoded.written + encoded.collisions, readings.len());
        let parsed = parse(&text).unwrap_or_else(|error| panic!("{error} in {text:?}"));
        assert_eq!(parsed.samples.len(), encoded.written);
        let mut found = BTreeMap::new();
        for sample in parsed.samples {
            let mut labels = sample.labels;
            labels.sort();
            let other = found.insert((sample.name, labels), sample.value);
            assert_eq!(other, None, "{text:?}");
        }
        if encoded.collisions == 0 {
            readings
                .iter()
                .for_each(|(series, value)| check_value(&found, series, *value));
        }
    }
}

type FoundSamples = BTreeMap<(String, Vec<(String, String)>), f64>;

/// A series whose name and labels need no change is found with its value.
fn check_value(found: &FoundSamples, series: &Series, value: f64) {
    let labels: Vec<(String, String)> = series
        .labels()
        .map(|(key, value)| (key.to_owned(), value.into_owned()))
        .collect();
    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase());
    let survives = is_plain(series.name())
        && labels
            .iter()
            .all(|(key, value)| is_plain(key) && !value.contains('\0'));
    if !survives {
        return;
    }
    let back = found[&(series.name().to_owned(), labels)];
    let is_same = back.to_bits() == value.to_bits() || (back.is_nan() && value.is_nan());
    assert!(is_same, "{series}: {value} became {back}");
}

fn family(name: &str, kind: MetricKind) -> Arc<Family> {
    Arc::new(Family {
        name: name.to_owned().into(),
        kind,
        help: "Help \\ \"me\"\nnow".into(),
        unit: "seconds".into(),
        level: 1,
        input: Input::Collect,
    })
}
