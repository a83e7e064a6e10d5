//! A hostile expression costs no more than its limits.

use std::time::Duration;

use super::*;

fn many() -> MemorySource {
    let list: Vec<String> = (0..100)
        .map(|number| format!("m{{l=\"{number}\"}}"))
        .collect();
    let list: Vec<(&str, &str)> = list.iter().map(|name| (name.as_str(), "0+1x200")).collect();
    series(&list)
}

fn fails(source: &MemorySource, expression: &str, limits: &PromqlLimits) -> (&'static str, u16) {
    let result = range(source, expression, (0, 2_000_000), 10_000, limits);
    let kind = result.expect_err(expression).kind();
    (kind.as_str(), kind.status())
}

#[test]
fn samples_are_bounded() {
    let limits = PromqlLimits {
        samples_max: 10_000,
        ..PromqlLimits::default()
    };
    assert_eq!(fails(&many(), "sum(m)", &limits), ("execution", 422));
    assert!(range(&many(), "sum(m{l=\"1\"})", (0, 2_000_000), 10_000, &limits).is_ok());
}

#[test]
fn memory_is_bounded() {
    let source = many();
    let limits = PromqlLimits {
        bytes_max: 1 << 18,
        ..PromqlLimits::default()
    };
    for expression in [
        "m",
        "m * 2",
        "count_values(\"v\", m)",
        "max_over_time(m[1h:1s])",
        "max_over_time(vector(time())[100y:1s])",
        "scalar(m{l=\"1\"}) + max_over_time(vector(1)[1000y:1ms])",
    ] {
        assert_eq!(
            fails(&source, expression, &limits),
            ("execution", 422),
            "{expression}"
        );
    }
    // Steps without any series cost nothing.
    let absent = "absent_over_time(x[1000y:1ms])";
    assert!(range(&source, absent, (0, 2_000_000), 10_000, &limits).is_ok());
}

#[test]
fn memory_of_labels_is_bounded() {
    let source = many();
    let limits = PromqlLimits {
        bytes_max: 1 << 20,
        ..PromqlLimits::default()
    };
    let longer = |inner: &str, source: &str| {
        format!("label_replace({inner}, \"x\", \"$1$1$1$1$1$1$1$1\", \"{source}\", \"(.*)\")")
    };
    let repeated = |times: usize, inner: &str| {
        (1..times).fold(longer(inner, "l"), |inner, _| longer(&inner, "x"))
    };
    let joined = |inner: &str, source: &str| {
        let sources = vec![format!("\"{source}\""); 16].join(",");
        format!("label_join({inner}, \"x\", \"\", {sources})")
    };
    for expression in [
        repeated(6, "m"),
        (1..5).fold(joined("m", "l"), |inner, _| joined(&inner, "x")),
        format!("m * on () group_left (x) {}", repeated(5, "m{l=\"1\"}")),
        // One series whose label would exceed all memory.
        longer(&repeated(6, "m{l=\"1\"}"), "x"),
    ] {
        assert_eq!(
            fails(&source, &expression, &limits),
            ("execution", 422),
            "{expression}"
        );
    }
    assert!(instant(&source, &repeated(3, "m"), 0, &limits).is_ok());
}

#[test]
fn time_is_bounded() {
    let limits = PromqlLimits {
        time_max: Duration::ZERO,
        ..PromqlLimits::default()
    };
    for expression in ["sum(m)", "rate(m[5m])", "vector(1)", "time() + 1"] {
        assert_eq!(
            fails(&many(), expression, &limits),
            ("timeout", 503),
            "{expression}"
        );
    }
}

#[test]
fn points_are_bounded() {
    let limits = PromqlLimits::default();
    let error = range(&many(), "m", (0, 11_001_000), 1_000, &limits).expect_err("too many");
    assert_eq!(
        error.to_string(),
        "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query \
         resolution (?step=XX)"
    );
}

#[test]
fn deep_expressions_do_not_exhaust_the_stack() {
    let source = series(&[("m", "1")]);
    for expression in [
        format!("{}1{}", "(".repeat(390), ")".repeat(390)),
        format!("{}m", "-".repeat(390)),
        format!("m{}", " + m".repeat(390)),
        format!("m{}", " or m".repeat(390)),
        format!("{}m{}", "abs(".repeat(390), ")".repeat(390)),
        format!("m{}", " ^ 1".repeat(390)),
    ] {
        assert_eq!(
            at(&source, &expression, 0.0).len(),
            1,
            "{}",
            &expression[..20]
        );
    }
    let nested = format!(
        "{}m{}",
        "sum_over_time(".repeat(100),
        "[1m:10s])".repeat(100)
    );
    assert_eq!(at(&source, &nested, 0.0).len(), 1);
    for expression in ["(".repeat(5_000), "1+".repeat(5_000), "x".repeat(100_000)] {
        assert_eq!(error(&source, &expression, 0.0).0, "bad_data");
    }
}

#[test]
fn expensive_regular_expressions_are_refused_before_they_are_compiled() {
    let source = series(&[("m{l=\"node0001\"}", "1")]);
    let matchers = "l=~\"(\\\\pL{30}){30}\",".repeat(200);
    for expression in [
        format!("m{{{matchers}}}"),
        "m{l=~`((a{100}){100}){100}`}".to_owned(),
        "label_replace(m, \"a\", \"b\", \"l\", \"(\\\\w{500}){2}\")".to_owned(),
    ] {
        let (kind, message) = error(&source, &expression, 0.0);
        assert_eq!(kind, "bad_data");
        assert!(message.contains("too expensive"), "{message}");
    }
    let hosts: Vec<String> = (0..2_000)
        .map(|number| format!("node{number:04}"))
        .collect();
    let expression = format!("m{{l=~\"{}\"}}", hosts.join("|"));
    assert_eq!(at(&source, &expression, 0.0).len(), 1);
}
