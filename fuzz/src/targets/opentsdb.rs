//! Requests of OpenTSDB clients (bodies and URIs) and their responses.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use pegel_metric::{Family, Input, MetricKind, Point, Series};
use pegel_query::{
    AnnotationBulkDelete, AnnotationUpdate, Annotations, ExpressionRequest, GexpRequest, LastQuery,
    LookupQuery, OpentsdbError, QUERIES_MAX, QueryEngine, QueryLimits, QueryParams, QueryRequest,
    SuggestQuery,
};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::TempDir;

use super::Target;
use crate::fixed_clock::{FixedClock, NOW};
use crate::memory::bounded;

/// The memory limit of one request, and the allowance for the request itself, its calendar and its
/// response.
const REQUEST_BYTES_MAX: usize = 1 << 20;
const BESIDE_BYTES_MAX: usize = 48 << 20;

const DICTIONARY: &[&[u8]] = &[
    b"\"start\":",
    b"\"end\":",
    b"\"queries\":[",
    b"\"metric\":\"temp\"",
    b"\"aggregator\":\"",
    b"\"downsample\":\"",
    b"\"rate\":true",
    b"\"rateOptions\":{",
    b"\"counterMax\":",
    b"\"filters\":[",
    b"\"groupBy\":true",
    b"\"tagk\":\"room\"",
    b"\"type\":\"",
    b"\"filter\":\"",
    b"\"tags\":{",
    b"\"tsuids\":[",
    b"\"explicitTags\":true",
    b"\"msResolution\":true",
    b"\"timezone\":\"UTC\"",
    b"\"useCalendar\":true",
    b"\"expressions\":[",
    b"\"expr\":\"",
    b"\"time\":{",
    b"start=",
    b"&end=",
    b"&m=",
    b"&exp=",
    b"&tsuid=",
    b"&ms=true",
    b"&arrays",
    b"&tz=UTC",
    b"1h-ago",
    b"now",
    b"1700006000",
    b"1700006400000",
    b"2023/11/14-23:50",
    b"sum:",
    b"p99:",
    b"none:",
    b"rate{counter,,10}:",
    b"10s-avg",
    b"-nan",
    b"-zero",
    b"0all-",
    b"1dc-",
    b"1msc-",
    b"1n-",
    b"temp{room=*}",
    b"{}{room=",
    b"regexp(",
    b"wildcard(",
    b"not_key()",
    b"literal_or(a|b)",
    b"scale(",
    b"divideSeries(",
    b"movingAverage(",
    b",'5m')",
    b"9999999999999999999",
];

pub(super) const JSON: Target = Target {
    name: "opentsdb_json",
    run: json,
    dictionary: DICTIONARY,
    seeds: || {
        [
            r#"{"start":1700006000000,"queries":[{"metric":"temp","aggregator":"sum","downsample":"1s-avg","rate":true,"rateOptions":{"counter":true,"counterMax":65535,"resetValue":100,"dropResets":false},"filters":[{"type":"wildcard","tagk":"room","filter":"*","groupBy":false}],"explicitTags":true}],"msResolution":false,"globalAnnotations":true,"showQuery":true}"#,
            r#"{"start":1700006000,"end":1700006300,"queries":[{"metric":"temp","aggregator":"p95","downsample":"7ms-dev-nan","tags":{"room":"a|b"}},{"aggregator":"none","metric":"loose"}]}"#,
            r#"{"start":"1y-ago","timezone":"Europe/Berlin","useCalendar":true,"showTSUIDs":true,"queries":[{"metric":"temp","aggregator":"avg","downsample":"1n-count-zero","filters":[{"type":"regexp","tagk":"room","filter":"^[ab]$","groupBy":true}]}]}"#,
            r#"{"time":{"start":"1h-ago","aggregator":"sum","downsampler":{"interval":"1m","aggregator":"max","fillPolicy":{"policy":"scalar","value":"1"}}},"filters":[{"id":"f","tags":[{"type":"iwildcard","tagk":"room","filter":"A*","groupBy":true}]}],"metrics":[{"id":"a","metric":"temp","filter":"f"},{"id":"b","metric":"loose"}],"expressions":[{"id":"e","expr":"(a + b) / -2 % 3","join":{"operator":"intersection"}}],"outputs":[{"id":"e"}]}"#,
            r#"{"queries":[{"metric":"temp","tags":{"room":"a"}},{"tsuids":["00"]}],"resolve":true,"backScan":24}"#,
            r#"{"type":"metrics","q":"te","max":10,"metric":"temp","tags":[{"key":"room","value":"*"}],"limit":3}"#,
            r#"{"startTime":"1369141261","endTime":1369141300,"tsuid":"0A","description":"d","custom":{"k":"v"},"global":true}"#,
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
};

pub(super) const URI: Target = Target {
    name: "opentsdb_m",
    run: uri,
    dictionary: DICTIONARY,
    seeds: || {
        [
            "start=15m-ago&m=sum:temp",
            "start=15m-ago&m=avg:rate{counter,65535,1000}:10s-max-zero:explicit_tags:temp{room=*}{room=regexp(a{1,2}|b)}&ms=true",
            "start=2023/11/14-23:50&end=now&m=none:0all-median:temp{room=a|b}&arrays&show_query&show_tsuids",
            "start=1700006000&end=1700006400000&m=mimmin:1ms-first:loose&m=ep99r7:1dc-p99-nan:temp{room=va*}",
            "start=1h-ago&exp=scale(divideSeries(sum:temp{room=a},sum:temp{room=b}),10)&exp=movingAverage(sum:loose,'5m')",
            "start=1h-ago&tsuid=sum:00,0A&timeseries=temp{room=a}&back_scan=2&type=tagv&q=a",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
};

struct OpentsdbFixture {
    engine: QueryEngine,
    _dir: TempDir,
}

static FIXTURE: LazyLock<OpentsdbFixture> = LazyLock::new(|| {
    let dir = TempDir::new();
    let mut options = StoreOptions::new(dir.join("store"));
    options.clock = Arc::new(FixedClock);
    let store = Store::open(options).expect("opens");
    for (name, room, every) in [
        ("temp", "a", 1_000),
        ("temp", "b", 1_700),
        ("loose", "", 5_003),
    ] {
        let family = Arc::new(Family {
            name: name.into(),
            ..Family::new("", MetricKind::Gauge, "", 1, "")
        });
        let labels = [("room", room)];
        let labels = if room.is_empty() {
            &[][..]
        } else {
            &labels[..]
        };
        let series = Arc::new(Series::new(family, labels).expect("valid"));
        let point = |number: i64| Point {
            series: series.clone(),
            time: NOW - 900_000 + number * every,
            value: (number % 97) as f64 - 20.0,
        };
        let points = (0..900_000 / every).map(point).collect();
        store.push(Input::Push, points).expect("taken");
    }
    let annotations = Annotations::open(dir.path()).expect("opens");
    let mut engine = QueryEngine::new(store, Arc::new(annotations), "nid1", false);
    engine.limits = QueryLimits {
        bytes_max: REQUEST_BYTES_MAX,
        time_max: Duration::from_millis(500),
    };
    OpentsdbFixture { engine, _dir: dir }
});

/// A response is valid JSON, or an error with a status.
fn check(answer: impl FnOnce(&QueryEngine, &mut Vec<u8>) -> Result<(), OpentsdbError>) {
    let engine = &FIXTURE.engine;
    let mut out = Vec::new();
    let answered = bounded(REQUEST_BYTES_MAX + BESIDE_BYTES_MAX, || {
        answer(engine, &mut out)
    });
    match answered {
        Ok(()) => drop(serde_json::from_slice::<serde_json::Value>(&out).expect("JSON")),
        Err(problem) => told(&problem),
    }
}

fn told(problem: &OpentsdbError) {
    assert!(
        matches!(problem.status(), 400 | 404 | 413 | 504),
        "{problem:?}"
    );
    assert!(!problem.to_string().is_empty());
}

fn write(out: &mut Vec<u8>, value: &impl serde::Serialize) -> Result<(), OpentsdbError> {
    serde_json::to_writer(out, value).map_err(|error| OpentsdbError::Write(error.into()))
}

fn asked(request: Result<QueryRequest, OpentsdbError>) {
    let request = match request {
        Ok(request) => request,
        Err(problem) => return told(&problem),
    };
    assert!(request.start <= request.end);
    assert!((1..=QUERIES_MAX).contains(&request.queries.len()));
    check(|engine, out| engine.query(&request, out));
}

fn json(input: &[u8]) {
    asked(QueryRequest::from_json(input, &QueryParams::default(), NOW));
    if let Ok(expressions) = ExpressionRequest::from_json(input, NOW) {
        check(|engine, out| engine.exp(&expressions, out));
    }
    if let Ok(last) = LastQuery::from_json(input) {
        check(|engine, out| write(out, &engine.last(&last, NOW)?));
    }
    if let Ok(suggest) = SuggestQuery::from_json(input) {
        check(|engine, out| write(out, &engine.suggest(&suggest)?));
    }
    if let Ok(lookup) = LookupQuery::from_json(input) {
        check(|engine, out| write(out, &engine.lookup(&lookup)?));
    }
    if let Ok(Ok((tsuid, start))) = AnnotationUpdate::from_json(input).map(|change| change.key()) {
        assert!(tsuid.bytes().all(|byte| byte.is_ascii_hexdigit()) && start > 0);
    }
    if let Ok(bulk) = AnnotationBulkDelete::from_json(input, NOW) {
        assert!(bulk.global || !bulk.tsuids.is_empty());
    }
}

fn uri(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key.to_owned(), value.to_owned())
    };
    let pairs = QueryParams::new(text.split('&').map(pair).collect());
    asked(QueryRequest::from_uri(&pairs, NOW));
    if let Ok(gexp) = GexpRequest::from_uri(&pairs, NOW) {
        check(|engine, out| engine.gexp(&gexp, out));
    }
    if let Ok(last) = LastQuery::from_uri(&pairs) {
        check(|engine, out| write(out, &engine.last(&last, NOW)?));
    }
    if let Ok(suggest) = SuggestQuery::from_uri(&pairs) {
        check(|engine, out| write(out, &engine.suggest(&suggest)?));
    }
    if let Ok(lookup) = LookupQuery::from_uri(&pairs) {
        check(|engine, out| write(out, &engine.lookup(&lookup)?));
    }
}
