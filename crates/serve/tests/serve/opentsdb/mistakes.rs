//! Every client error gets an immediate response in OpenTSDB's form, and does not affect other
//! clients.

use pegel_testkit::TestResponse;

use super::grafana::ErrorResponse;
use super::{ask, server};

#[track_caller]
fn check(answer: &TestResponse, status: u16, message: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    let refusal: ErrorResponse = serde_json::from_slice(&answer.body).expect("an error");
    assert_eq!(
        (refusal.error.code, refusal.error.message.as_str()),
        (status, message)
    );
    assert!(
        refusal
            .error
            .details
            .is_none_or(|details| !details.is_empty())
    );
}

#[test]
fn bad_bodies() {
    let (server, _) = server(|_| {});
    let one = |more: &str| {
        format!(
            r#"{{"start":"1h-ago","queries":[{{"metric":"cpu_percent","aggregator":"sum"{more}}}]}}"#
        )
    };
    let many = format!(
        r#"{{"start":"1h-ago","queries":[{}{{}}]}}"#,
        r#"{"metric":"m","aggregator":"sum"},"#.repeat(9_999)
    );
    let regexp = |text: &str| {
        one(&format!(
            r#","filters":[{{"type":"regexp","tagk":"host","filter":"{text}"}}]"#
        ))
    };
    for (body, status, message) in [
        ("", 400, "Missing request content"),
        ("{\"start\":", 400, "Unable to parse the given JSON"),
        (&"[".repeat(100_000), 400, "Unable to parse the given JSON"),
        ("{}", 400, "Missing start time"),
        (
            &one("").replace("sum", "summe"),
            400,
            "No such aggregator: summe",
        ),
        (
            &one("").replace("cpu_percent", "no.such"),
            400,
            "No such name for 'metrics': 'no.such'",
        ),
        (
            &one("")
                .replace("1h-ago", "1700000000")
                .replace("\"queries", "\"end\":1600000000,\"queries"),
            400,
            "End time [1600000000000] must be greater than the start time [1700000000000]",
        ),
        (
            &one(r#","downsample":"1ms-avg-zero""#).replace("1h-ago", "100000h-ago"),
            413,
            "the response exceeds 33554432 bytes; request fewer series, a shorter time range or a larger step",
        ),
        (&many, 413, "10000 sub-queries; at most 128 are accepted"),
        (&regexp("((a{100}){100}){100}"), 400, ""),
        (
            &one("").replace("\"start\"", "\"delete\":true,\"start\""),
            400,
            "Deleting data is not enabled",
        ),
    ] {
        let answer = ask(&server, "/api/query", body);
        match message {
            "" => assert_eq!(answer.status, status),
            message => check(&answer, status, message),
        }
    }
    // An expression with exponential cost in other engines is harmless: it would exceed the query's
    // deadline.
    let answer = ask(&server, "/api/query", &regexp("^(a+)+$"));
    assert_eq!((answer.status, answer.text()), (200, "[]"));
}

#[test]
fn bad_uris() {
    let (server, _) = server(|_| {});
    for (path, status, message) in [
        ("/api/query", 400, "Missing parameter start"),
        ("/api/query?start=1h-ago", 400, "Missing queries"),
        (
            "/api/query?start=soon&m=sum:cpu_percent",
            400,
            "Invalid date: soon",
        ),
        (
            "/api/query?start=1h-ago&m=cpu_percent",
            400,
            "Invalid parameter m=cpu_percent (no aggregator)",
        ),
        (
            "/api/query?start=1h-ago&m=sum:no.such",
            400,
            "No such name for 'metrics': 'no.such'",
        ),
        (
            "/api/query?start=1h-ago&tz=Mars&m=sum:cpu_percent",
            400,
            "Invalid timezone name: Mars",
        ),
        ("/api/suggest", 400, "Missing parameter type"),
        (
            "/api/suggest?type=nothing",
            400,
            "Invalid 'type' parameter: nothing",
        ),
        ("/api/search/lookup", 400, "Missing parameter m"),
        ("/api/query/last", 400, "Missing sub queries"),
        ("/api/query/gexp?start=1h-ago", 400, "Missing parameter exp"),
        ("/api/annotation", 400, "Missing start time"),
        (
            "/api/annotation?start_time=5",
            404,
            "Unable to locate annotation in storage",
        ),
    ] {
        check(&server.get(path), status, message);
    }
    check(&ask(&server, "/api/query/exp", "{}"), 400, "Missing time");
    check(
        &ask(&server, "/api/annotation", "{}"),
        400,
        "Missing start time",
    );
}

#[test]
fn bad_requests_do_not_affect_other_clients() {
    let (server, at) = server(|_| {});
    let many = format!(
        r#"{{"start":"1h-ago","queries":[{}{{}}]}}"#,
        r#"{"metric":"m","aggregator":"sum"},"#.repeat(9_999)
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(ask(&server, "/api/query", &many).status, 413);
                }
            });
        }
        for _ in 0..20 {
            let answer = server.get(&format!("/api/query?start={at}&m=sum:cpu_percent"));
            assert_eq!(answer.status, 200);
        }
    });
}
