//! What a response contains besides its points.

use pegel_query::{AnnotationUpdate, OpentsdbError, QueryParams, QueryRequest};
use serde_json::{Value, json};

use crate::fixture::{NOW, QueryFixture, T0};

fn ask(fixture: &QueryFixture, extra: &str) -> Value {
    let body = format!(
        r#"{{"start":{T0},"end":{NOW},"queries":[{{"metric":"m","aggregator":"sum","downsample":"10s-avg"}}]{extra}}}"#
    );
    fixture.query_json(&body).expect("answered")
}

fn note(fixture: &QueryFixture, json: &str) {
    let change = AnnotationUpdate::from_json(json.as_bytes()).expect("valid");
    fixture
        .engine
        .annotations
        .put(change, false, None)
        .expect("stored")
        .expect("new");
}

fn example_fixture() -> QueryFixture {
    let fixture = QueryFixture::new();
    fixture.put("m{core=\"0\"}", &[(0, 1.0)]);
    fixture.put("m{core=\"1\"}", &[(0, 2.0)]);
    fixture
}

#[test]
fn an_element_has_the_documented_fields_and_no_others() {
    let fixture = example_fixture();
    let key = (T0 / 1_000).to_string();
    let plain = json!([{"metric": "m", "tags": {"host": "nid1"}, "aggregateTags": ["core"], "dps": {&key: 3}}]);
    assert_eq!(ask(&fixture, ""), plain);
    let full = ask(&fixture, r#","showQuery":true,"showTSUIDs":true"#);
    assert_eq!(full[0]["tsuids"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        full[0]["query"],
        json!({
            "aggregator": "sum", "metric": "m", "tsuids": null, "downsample": "10s-avg", "rate": false, "filters": [],
            "explicitTags": false, "index": 0, "rateOptions": null, "tags": {},
        })
    );
    let summary = ask(&fixture, r#","showSummary":true"#);
    assert_eq!(summary[1]["statsSummary"]["datapoints"], 1);
    assert_eq!(summary[1]["statsSummary"]["rawDatapoints"], 2);
    assert!(summary[1]["statsSummary"]["timeTotal"].is_number());
}

#[test]
fn tsuids_lead_back_to_their_series() {
    let fixture = example_fixture();
    let ids = ask(&fixture, r#","showTSUIDs":true"#)[0]["tsuids"].clone();
    let of = |ids: &Value| {
        let body = format!(
            r#"{{"start":{T0},"end":{NOW},"queries":[{{"aggregator":"sum","tsuids":{ids}}}]}}"#
        );
        fixture.query_json(&body)
    };
    let both = of(&ids).expect("answered");
    assert_eq!(
        (&both[0]["metric"], &both[0]["aggregateTags"]),
        (&json!("m"), &json!(["core"]))
    );
    let one = of(&json!([ids[0]])).expect("answered");
    assert_eq!(one[0]["aggregateTags"], json!([]));
    assert_eq!(
        of(&json!(["00"])).expect("answered"),
        json!([]),
        "nobody has this name"
    );
    fixture.put("other", &[(0, 1.0)]);
    let body = format!(
        r#"{{"start":{T0},"end":{NOW},"showTSUIDs":true,"queries":[{{"metric":"other","aggregator":"sum"}}]}}"#
    );
    let other = fixture.query_json(&body).expect("answered")[0]["tsuids"][0].clone();
    let problem = of(&json!([ids[0], other])).expect_err("two metrics");
    assert_eq!(
        problem.to_string(),
        "The tsuids of one sub-query must belong to one metric"
    );
}

#[test]
fn annotations_come_with_their_series() {
    let fixture = example_fixture();
    let ids = ask(&fixture, r#","showTSUIDs":true"#)[0]["tsuids"].clone();
    let second = T0 / 1_000 + 5;
    let id = ids[0].as_str().expect("an id");
    note(
        &fixture,
        &format!(r#"{{"startTime":{second},"tsuid":"{id}","description":"own"}}"#),
    );
    note(
        &fixture,
        &format!(r#"{{"startTime":{second},"tsuid":"00","description":"of another"}}"#),
    );
    note(
        &fixture,
        &format!(r#"{{"startTime":{second},"description":"all"}}"#),
    );
    note(&fixture, r#"{"startTime":1,"description":"long ago"}"#);
    let texts = |answer: &Value, field: &str| {
        let list = answer[0][field].as_array().cloned().unwrap_or_default();
        let text = |note: &Value| (note["description"].clone(), note["startTime"].clone());
        list.iter().map(text).collect::<Vec<_>>()
    };
    let answer = ask(&fixture, "");
    assert_eq!(
        texts(&answer, "annotations"),
        [(json!("own"), json!(second))]
    );
    assert!(answer[0].get("globalAnnotations").is_none());
    let answer = ask(&fixture, r#","globalAnnotations":true"#);
    assert_eq!(
        texts(&answer, "globalAnnotations"),
        [(json!("all"), json!(second))]
    );
    let answer = ask(
        &fixture,
        r#","globalAnnotations":true,"noAnnotations":true"#,
    );
    assert!(answer[0].get("annotations").is_none() && answer[0].get("globalAnnotations").is_none());
}

#[test]
fn a_bucket_without_value_has_the_form_that_its_reader_understands() {
    let fixture = QueryFixture::new();
    fixture.put("m", &[(0, 1.0), (20_000, 2.0)]);
    let end = T0 + 20_000;
    let json = |fill: &str, extra: &str, arrays: &str| {
        let body = format!(
            r#"{{"start":{T0},"end":{end},"queries":[{{"metric":"m","aggregator":"sum","downsample":"10s-avg-{fill}"}}]{extra}}}"#
        );
        let pairs = QueryParams::from([("arrays", arrays)]);
        let request = QueryRequest::from_json(body.as_bytes(), &pairs, NOW).expect("valid");
        let mut out = Vec::new();
        fixture.engine.query(&request, &mut out).expect("answered");
        let text = String::from_utf8(out).expect("text");
        text.split_once("\"dps\":")
            .expect("points")
            .1
            .strip_suffix("}]")
            .expect("its end")
            .to_owned()
    };
    let [a, b, c] = [0, 10, 20].map(|second| T0 / 1_000 + second);
    for fill in ["nan", "null"] {
        assert_eq!(
            json(fill, "", "false"),
            format!(r#"{{"{a}":1,"{c}":2}}"#),
            "numbers only"
        );
        assert_eq!(json(fill, "", "true"), format!("[[{a},1],[{c},2]]"));
        assert_eq!(
            json(fill, r#","msResolution":false"#, "false"),
            format!(r#"{{"{a}":1,"{b}":null,"{c}":2}}"#)
        );
        assert_eq!(
            json(fill, r#","showQuery":true"#, "true"),
            format!("[[{a},1],[{b},null],[{c},2]]")
        );
    }
    assert_eq!(
        json("zero", "", "false"),
        format!(r#"{{"{a}":1,"{b}":0,"{c}":2}}"#)
    );
    let uri = |fill: &str| {
        let (start, end) = (T0.to_string(), end.to_string());
        let m = format!("sum:10s-avg-{fill}:m");
        let pairs = QueryParams::from([("start", start.as_str()), ("end", &end), ("m", &m)]);
        let answer = fixture
            .run(&QueryRequest::from_uri(&pairs, NOW).expect("valid"))
            .expect("answered");
        answer[0]["dps"][&b.to_string()].clone()
    };
    assert_eq!((uri("nan"), uri("null")), (json!("NaN"), Value::Null));
}

#[test]
fn an_unknown_metric_is_an_error_and_a_known_one_without_samples_is_not() {
    let mut fixture = example_fixture();
    let of = |fixture: &QueryFixture, metric: &str, start: &str| {
        fixture.query_json(&format!(
            r#"{{"start":"{start}","queries":[{{"metric":"{metric}","aggregator":"sum"}}]}}"#
        ))
    };
    let status_and_message = |problem: OpentsdbError| (problem.status(), problem.to_string());
    let unknown = (400, "No such name for 'metrics': 'no.such'".to_owned());
    assert_eq!(
        of(&fixture, "no.such", "2h-ago").map_err(status_and_message),
        Err(unknown)
    );
    assert_eq!(of(&fixture, "m", "1m-ago").expect("answered"), json!([]));
    // A metric that was missing a moment ago may exist now.
    fixture.put("no.such", &[(0, 1.0)]);
    assert_eq!(
        of(&fixture, "no.such", "2h-ago")
            .expect("answered")
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    fixture.engine.dragon_compat = true;
    assert_eq!(
        of(&fixture, "still.no.such", "2h-ago").expect("answered"),
        json!([])
    );
}
