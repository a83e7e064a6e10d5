//! Parsing and encoding of the text formats of Prometheus and OpenMetrics.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Series};
use pegel_wire::{
    EncodeResult, Exposition, ExpositionParseError, MetricType, openmetrics, prometheus,
};

use super::Target;
use crate::memory::bounded;

const DICTIONARY: &[&[u8]] = &[
    b"# TYPE ",
    b"# HELP ",
    b"# UNIT ",
    b"# EOF\n",
    b" counter\n",
    b" gauge\n",
    b" untyped\n",
    b" unknown\n",
    b" histogram\n",
    b"_total",
    b"_created",
    b"__name__",
    b"a{b=\"c\"} 1\n",
    b"\\n",
    b"\\\"",
    b" 1700000000000",
    b" # {id=\"x\"} 1",
];

pub(super) const PROMETHEUS: Target = Target {
    name: "prometheus",
    run: |input| round_trip(input, prometheus::parse, prometheus::encode),
    dictionary: DICTIONARY,
    seeds: || seeds(false),
};

pub(super) const OPENMETRICS: Target = Target {
    name: "openmetrics",
    run: |input| round_trip(input, openmetrics::parse, openmetrics::encode),
    dictionary: DICTIONARY,
    seeds: || seeds(true),
};

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

type Readings = Vec<(Arc<Series>, f64)>;
type Parse = fn(&[u8]) -> Result<Exposition, ExpositionParseError>;
type Encode = fn(&[(Arc<Series>, f64)], &mut String) -> EncodeResult;

/// Parsed input survives a round trip through the encoder.
fn round_trip(input: &[u8], parse: Parse, encode: Encode) {
    // Names, labels and values are copied from the input once; vectors and maps double their capacity.
    let parsed = bounded(64 * input.len() + (1 << 16), || parse(input));
    let Ok(parsed) = parsed else { return };
    let mut kinds: BTreeMap<&str, MetricKind> = BTreeMap::new();
    for family in &parsed.families {
        kinds.insert(&family.name, kind_of(family.kind));
    }
    let mut seen = HashSet::new();
    let mut readings: Readings = Vec::new();
    for sample in &parsed.samples {
        let labels: Vec<(&str, &str)> = sample
            .labels
            .iter()
            .map(|(key, value)| (&**key, &**value))
            .collect();
        let kind = kinds
            .get(&*sample.name)
            .copied()
            .unwrap_or(MetricKind::Unknown);
        // A sample beyond the limits of a series cannot be written.
        let Ok(series) = Series::new(family(&sample.name, kind), &labels) else {
            continue;
        };
        if seen.insert(series.text().to_owned()) {
            readings.push((Arc::new(series), sample.value));
        }
    }
    let mut text = String::new();
    let encoded = encode(&readings, &mut text);
    assert_eq!(encoded.written + encoded.collisions, readings.len());
    let again = parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error} in {text:?}"));
    assert_eq!(again.samples.len(), encoded.written);
    let mut found: BTreeMap<String, f64> = BTreeMap::new();
    for sample in &again.samples {
        let labels: Vec<(&str, &str)> = sample
            .labels
            .iter()
            .map(|(key, value)| (&**key, &**value))
            .collect();
        let series =
            Series::new(family(&sample.name, MetricKind::Unknown), &labels).expect("was one");
        assert!(
            found
                .insert(series.text().to_owned(), sample.value)
                .is_none(),
            "{series} twice"
        );
    }
    for (series, value) in &readings {
        if series.label("__name__").is_some() {
            continue;
        }
        // The parser rejects NUL, so values round-trip exactly.
        let back = found.get(series.text());
        let is_same = back.is_some_and(|back| {
            back.to_bits() == value.to_bits() || (back.is_nan() && value.is_nan())
        });
        assert!(
            is_same || encoded.collisions > 0,
            "{series}: {value} became {back:?}"
        );
    }
}

/// For any series name the output can be parsed, and no two samples are equal.
fn encode_any(input: &[u8]) {
    let mut readings: Readings = Vec::new();
    for line in String::from_utf8_lossy(input).split('\n') {
        let kind = match line.as_bytes().first() {
            Some(b'0') => MetricKind::Counter,
            Some(b'1') => MetricKind::Gauge,
            _ => MetricKind::Unknown,
        };
        let text = line.get(1..).unwrap_or_default();
        if let Ok(series) = Series::parse(text, |name| family(name, kind)) {
            readings.push((Arc::new(series), readings.len() as f64));
        }
    }
    let formats: [(Encode, Parse); 2] = [
        (prometheus::encode, prometheus::parse),
        (openmetrics::encode, openmetrics::parse),
    ];
    for (encode, parse) in formats {
        let mut text = String::new();
        let encoded = encode(&readings, &mut text);
        assert_eq!(encoded.written + encoded.collisions, readings.len());
        let parsed = parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error} in {text:?}"));
        assert_eq!(parsed.samples.len(), encoded.written);
        let distinct: HashSet<String> = parsed
            .samples
            .iter()
            .map(|sample| {
                let mut labels = sample.labels.clone();
                labels.sort();
                format!("{}{labels:?}", sample.name)
            })
            .collect();
        assert_eq!(distinct.len(), encoded.written, "{text:?}");
    }
}

fn kind_of(kind: Option<MetricType>) -> MetricKind {
    match kind {
        Some(MetricType::Counter) => MetricKind::Counter,
        Some(MetricType::Gauge) => MetricKind::Gauge,
        _ => MetricKind::Unknown,
    }
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

fn seeds(is_openmetrics: bool) -> Vec<Vec<u8>> {
    let texts = [
        "# a comment\n\n# HELP up Up \\\\ or\\ndown.\n# TYPE up gauge\nup 1\n",
        "# TYPE c_total counter\nc_total{b=\"x\\\"y\\\\z\\n\",a=\"1\"} 1.5e3 1700000000000\nc_total NaN\n",
        "\tx { a = \"1\" , b=\"2\", }  -Inf\t\r\ny +Inf\nz 5e-324\n",
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 3\nh_sum 0.1\nh_count 3\n",
        "# TYPE a gauge\na{__name__=\"b\",_name=\"c\"} 1\na:b{c=\"\u{fc}\"} 2\n",
    ];
    let end = if is_openmetrics {
        "# UNIT a_seconds seconds\na_total 1 1.25 # {id=\"x\"} 1 1.5\n# EOF\n"
    } else {
        ""
    };
    texts
        .iter()
        .map(|text| format!("{text}{end}").into_bytes())
        .collect()
}
