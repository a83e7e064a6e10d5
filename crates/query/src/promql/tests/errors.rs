//! Expressions that are refused, with Prometheus' error types.

use super::*;

#[test]
fn malformed_expressions_are_bad_data() {
    let source = series(&[("m", "1")]);
    for expression in [
        "",
        "m{",
        "sum(",
        "m[5m",
        "m[0s]",
        "rate(m)",
        "rate(m[5m], 1)",
        "sum(m[5m])",
        "m[5m] + 1",
        "1 == 1",
        "no_such_function(m)",
        "exp(NaN)",
        "ln(1)",
        "topk(m, m)",
        "limitk(\"x\", m)",
        "count_values(1, m)",
        "label_replace(m, 1, \"\", \"\", \"\")",
        "{}",
        "{a=~\".*\"}",
        "m{a=\"1\" or b=\"2\"}",
        "m and 1",
        "m{a=~\"(\"}",
        "m offset 1e300",
        "m[1e300]",
        "m[99999999999y]",
        "m @ 1e300",
        "m{a=\"1\"",
        "m + on (l) group_left (l) m",
        "\"a\" + 1",
        "-\"a\"",
        "start_timestamp(m)",
    ] {
        let (kind, message) = error(&source, expression, 0.0);
        assert_eq!(kind, "bad_data", "{expression}: {message}");
        assert!(message.contains("parse error: "), "{expression}: {message}");
    }
    assert_eq!(
        error(&source, "rate(m)", 0.0).1,
        "parse error: expected type range vector in call to function 'rate', got instant vector"
    );
}

#[test]
fn range_queries_have_scalars_or_vectors() {
    let source = series(&[("m", "1")]);
    let limits = PromqlLimits::default();
    let message = |expression: &str, step| {
        let error = range(&source, expression, (0, 10_000), step, &limits).expect_err(expression);
        assert_eq!(error.kind().as_str(), "bad_data");
        assert_eq!(error.kind().status(), 400);
        error.to_string()
    };
    assert_eq!(
        message("m[5m]", 1_000),
        "invalid expression type \"range vector\" for range query, must be Scalar or instant Vector"
    );
    assert_eq!(
        message("\"text\"", 1_000),
        "invalid expression type \"string\" for range query, must be Scalar or instant Vector"
    );
    assert!(message("m", 0).contains("zero or negative query resolution step widths"));
    assert_eq!(over(&source, "1 + 1", (0, 20, 10)), ["{} 2@0 2@10 2@20"]);
}

#[test]
fn series_that_lose_their_difference_are_errors() {
    let source = series(&[("a{l=\"1\"}", "1 2 3"), ("b{l=\"1\"}", "1 2 3")]);
    for expression in [
        "rate({l=\"1\"}[1m])",
        "abs({l=\"1\"})",
        "{l=\"1\"} + 1",
        "-{l=\"1\"}",
        "timestamp({l=\"1\"})",
    ] {
        assert_eq!(
            error(&source, expression, 20.0),
            (
                "execution",
                "vector cannot contain metrics with the same labelset".to_owned()
            ),
            "{expression}"
        );
    }
    // At different steps they become one series.
    let source = series(&[("a", "1 stale"), ("b", "_ 2")]);
    assert_eq!(
        over(&source, "abs({__name__=~\"a|b\"})", (0, 10, 10)),
        ["{} 1@0 2@10"]
    );
}

#[test]
fn times_at_the_end_of_their_range_do_not_overflow() {
    let source = series(&[("m", "1 2 3")]);
    let limits = PromqlLimits::default();
    let largest = Millis::MAX / 4;
    for time in [largest + 1, -largest - 1, Millis::MAX, Millis::MIN] {
        let error = instant(&source, "m", time, &limits).expect_err("out of range");
        assert_eq!(error.kind().as_str(), "bad_data");
        assert!(range(&source, "m", (0, time), 1_000, &limits).is_err());
    }
    for time in [largest, -largest] {
        for expression in [
            "m offset 70000000y",
            "m offset -70000000y",
            "rate(m[70000000y])",
            "rate(m[70000000y] offset -70000000y)",
            "predict_linear(m[70000000y] @ 20, 1)",
            "predict_linear(m[1y:1y] @ -2305843009213693 offset 70000000y, 1)",
            "timestamp(m)",
            "year()",
        ] {
            let result = instant(&source, expression, time, &limits);
            assert!(result.is_ok(), "{expression}: {result:?}");
        }
    }
}
