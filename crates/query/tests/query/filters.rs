//! Which series a sub-query is about, and which of them become one line.

use crate::fixture::{QueryFixture, ResponseSeries, T0};

/// The manual's seven series, each with its number as value here.
fn seven() -> QueryFixture {
    let fixture = QueryFixture::new();
    for (text, value) in [
        ("sys{dc=\"dal\",host=\"web01\"}", 3.0),
        ("sys{dc=\"dal\",host=\"web02\"}", 2.0),
        ("sys{dc=\"dal\",host=\"web03\"}", 10.0),
        ("sys{host=\"web01\"}", 1.0),
        ("sys{host=\"web01\",owner=\"jdoe\"}", 4.0),
        ("sys{dc=\"lax\",host=\"web01\"}", 8.0),
        ("sys{dc=\"lax\",host=\"web02\"}", 4.0),
    ] {
        fixture.put(text, &[(0, value)]);
    }
    fixture
}

/// Tags, aggregate tags and the first value of each line.
fn ask(fixture: &QueryFixture, m: &str) -> Vec<(String, String, f64)> {
    let line = |line: &ResponseSeries| {
        (
            line.tags.clone(),
            line.aggregate_tags.clone(),
            line.points[0].1,
        )
    };
    fixture.query(m).iter().map(line).collect()
}

fn line(tags: &str, aggregate: &str, value: f64) -> (String, String, f64) {
    (tags.to_owned(), aggregate.to_owned(), value)
}

#[test]
fn filters_group_as_the_manual_shows() {
    let fixture = seven();
    // Series 1, 4, 5 and 6; dc is missing in some.
    assert_eq!(
        ask(&fixture, "sum:sys{host=web01}"),
        [line("host=web01", "", 16.0)]
    );
    assert_eq!(
        ask(&fixture, "sum:sys{host=web01,dc=dal}"),
        [line("dc=dal,host=web01", "", 3.0)]
    );
    assert_eq!(
        ask(&fixture, "sum:sys{host=*,dc=dal}"),
        [
            line("dc=dal,host=web01", "", 3.0),
            line("dc=dal,host=web02", "", 2.0),
            line("dc=dal,host=web03", "", 10.0),
        ]
    );
    assert_eq!(
        ask(&fixture, "sum:sys{dc=dal|lax}"),
        [line("dc=dal", "host", 15.0), line("dc=lax", "host", 12.0)]
    );
    assert_eq!(
        ask(&fixture, "sum:explicit_tags:sys{host=web01}"),
        [line("host=web01", "", 1.0)]
    );
    assert_eq!(
        ask(&fixture, "sum:explicit_tags:sys{host=*}{dc=*}"),
        [
            line("host=web01", "dc", 11.0),
            line("host=web02", "dc", 6.0),
            line("dc=dal,host=web03", "", 10.0),
        ]
    );
}

#[test]
fn filters_are_joined_and_may_refuse() {
    let fixture = seven();
    // Filters on one key are combined: both must match.
    assert_eq!(
        ask(
            &fixture,
            "sum:sys{}{host=literal_or(web01),host=literal_or(web02)}"
        ),
        []
    );
    assert_eq!(
        ask(&fixture, "sum:sys{}{dc=not_key()}"),
        [line("host=web01", "", 5.0)]
    );
    assert_eq!(
        ask(&fixture, "sum:sys{}{dc=not_literal_or(dal)}"),
        [line("", "host", 17.0)]
    );
    assert_eq!(
        ask(&fixture, "sum:sys{}{host=regexp(0[23])}"),
        [line("", "dc,host", 16.0)]
    );
    assert_eq!(
        ask(&fixture, "max:sys{}{host=iwildcard(WEB*)}"),
        [line("", "host", 10.0)]
    );
    // Nothing is aggregated.
    let none = ask(&fixture, "none:sys{}{dc=lax}");
    assert_eq!(
        none,
        [
            line("dc=lax,host=web01", "", 8.0),
            line("dc=lax,host=web02", "", 4.0)
        ]
    );
    // Series without the key form a group of their own.
    assert_eq!(
        ask(&fixture, "sum:sys{owner=not_literal_or(x)}"),
        [
            line("", "host", 28.0),
            line("host=web01,owner=jdoe", "", 4.0),
        ]
    );
}

#[test]
fn a_series_without_host_is_on_this_node() {
    let fixture = QueryFixture::new();
    fixture.put("gpu_load{gpu=\"0\"}", &[(0, 1.0)]);
    fixture.put("gpu_load{gpu=\"1\",host=\"other\"}", &[(0, 2.0)]);
    let tags = |m: &str| {
        fixture
            .query(m)
            .iter()
            .map(|line| line.tags.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        tags("sum:gpu_load{host=*}"),
        ["gpu=0,host=nid1", "gpu=1,host=other"]
    );
    assert_eq!(tags("sum:gpu_load{host=nid1}"), ["gpu=0,host=nid1"]);
    assert_eq!(
        tags("sum:explicit_tags:gpu_load{gpu=*}"),
        ["gpu=0,host=nid1"],
        "the host was not pushed"
    );
    assert_eq!(tags("sum:explicit_tags:gpu_load{gpu=*,host=*}").len(), 2);
}

#[test]
fn dragons_panels_get_a_line_for_each_host() {
    let mut fixture = QueryFixture::new();
    for (text, value) in [
        ("DeviceUtilization{gpu=\"0\",host=\"n1\"}", 1.0),
        ("DeviceUtilization{gpu=\"1\",host=\"n1\"}", 2.0),
        ("DeviceUtilization{gpu=\"0\",host=\"n2\"}", 4.0),
        ("cpu_percent{host=\"n1\"}", 8.0),
        ("cpu_percent{host=\"n2\"}", 16.0),
    ] {
        fixture.put(text, &[(0, value)]);
    }
    let ask = |fixture: &QueryFixture, metric: &str, kind: &str, tagk: &str| {
        let body = format!(
            r#"{{"start":{T0},"queries":[{{"metric":"{metric}","aggregator":"sum","downsample":"1s-avg","filters":[{{"type":"{kind}","tagk":"{tagk}","filter":"*","groupBy":false}}]}}],"msResolution":false,"showQuery":true}}"#
        );
        let answer = fixture.query_json(&body).expect("answered");
        let lines = answer.as_array().expect("a list").iter();
        let key = (T0 / 1_000).to_string();
        lines
            .map(|line| (line["tags"].to_string(), line["dps"][&key].as_f64()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ask(&fixture, "cpu_percent", "wildcard", "host"),
        [("{}".into(), Some(24.0))],
        "as the manual says"
    );
    fixture.engine.dragon_compat = true;
    let expected = [
        (r#"{"host":"n1"}"#.into(), Some(8.0)),
        (r#"{"host":"n2"}"#.into(), Some(16.0)),
    ];
    assert_eq!(ask(&fixture, "cpu_percent", "wildcard", "host"), expected);
    assert_eq!(
        ask(&fixture, "cpu_percent", "iliteral_or", "host"),
        expected
    );
    assert_eq!(
        ask(&fixture, "DeviceUtilization", "wildcard", "gpu"),
        [
            (r#"{"gpu":"0","host":"n1"}"#.into(), Some(1.0)),
            (r#"{"gpu":"0","host":"n2"}"#.into(), Some(4.0)),
            (r#"{"gpu":"1","host":"n1"}"#.into(), Some(2.0)),
        ]
    );
    assert_eq!(ask(&fixture, "not_there", "wildcard", "host"), []);
}
