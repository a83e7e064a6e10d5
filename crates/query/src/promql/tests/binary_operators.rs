//! Binary operators and vector matching.

use super::*;

#[test]
fn scalars() {
    let source = series(&[]);
    for (expression, expected) in [
        ("1 + 2 * 3", "7"),
        ("2 ^ 3 ^ 2", "512"),
        ("-2 ^ 2", "-4"),
        ("7 % 3", "1"),
        ("-7 % 3", "-1"),
        ("1 / 0", "+Inf"),
        ("0 / 0", "NaN"),
        ("1 atan2 0 - pi() / 2", "0"),
        ("1 > bool 0", "1"),
        ("NaN == bool NaN", "0"),
        ("0x1F + 1e3", "1031"),
        ("5m", "300"),
    ] {
        assert_eq!(number(&source, expression, 0.0), expected, "{expression}");
    }
}

#[test]
fn vectors_and_scalars() {
    let source = series(&[("m{l=\"1\"}", "1"), ("m{l=\"2\"}", "5")]);
    assert_eq!(at(&source, "m * 2", 0.0), ["{l=\"1\"} 2", "{l=\"2\"} 10"]);
    assert_eq!(at(&source, "10 - m", 0.0), ["{l=\"1\"} 9", "{l=\"2\"} 5"]);
    assert_eq!(at(&source, "m > 3", 0.0), ["{__name__=\"m\", l=\"2\"} 5"]);
    assert_eq!(
        at(&source, "3 < m", 0.0),
        ["{__name__=\"m\", l=\"2\"} 5"],
        "the vector's value"
    );
    assert_eq!(
        at(&source, "m > bool 3", 0.0),
        ["{l=\"1\"} 0", "{l=\"2\"} 1"]
    );
    let source = series(&[("m", "1 5 2")]);
    assert_eq!(
        over(&source, "m > 1", (0, 20, 10)),
        ["{__name__=\"m\"} 5@10 2@20"]
    );
}

fn requests() -> MemorySource {
    series(&[
        ("errors{method=\"get\",code=\"500\"}", "24"),
        ("errors{method=\"get\",code=\"404\"}", "30"),
        ("errors{method=\"put\",code=\"501\"}", "3"),
        ("errors{method=\"post\",code=\"500\"}", "6"),
        ("requests{method=\"get\",site=\"x\"}", "600"),
        ("requests{method=\"del\",site=\"x\"}", "34"),
        ("requests{method=\"post\",site=\"y\"}", "120"),
    ])
}

#[test]
fn one_to_one_matching() {
    let source = requests();
    assert_eq!(
        at(&source, "errors{code=\"500\"} / on (method) requests", 0.0),
        ["{method=\"get\"} 0.04", "{method=\"post\"} 0.05"]
    );
    assert_eq!(
        at(
            &source,
            "errors{code=\"500\"} / ignoring (code, site) requests",
            0.0
        ),
        ["{method=\"get\"} 0.04", "{method=\"post\"} 0.05"]
    );
    assert_eq!(at(&source, "errors / requests", 0.0), [""; 0]);
    assert_eq!(
        at(&source, "errors{code=\"500\"} < on (method) requests", 0.0),
        ["{method=\"get\"} 24", "{method=\"post\"} 6"]
    );
    assert_eq!(
        at(
            &source,
            "errors > ignoring (code) group_left (site) requests > bool 1",
            0.0
        ),
        [""; 0]
    );
    assert_eq!(at(&source, "errors == errors", 0.0).len(), 4);
    assert_eq!(
        at(&source, "errors{code=\"404\"} == bool errors", 0.0),
        ["{code=\"404\", method=\"get\"} 1"]
    );
}

#[test]
fn many_to_one_matching() {
    let source = requests();
    let expected = [
        "{code=\"404\", method=\"get\", site=\"x\"} 0.05",
        "{code=\"500\", method=\"get\", site=\"x\"} 0.04",
        "{code=\"500\", method=\"post\", site=\"y\"} 0.05",
    ];
    let sorted = |expression: &str| {
        let mut lines = at(&source, expression, 0.0);
        lines.sort();
        lines
    };
    assert_eq!(
        sorted("errors / on (method) group_left (site) requests"),
        expected
    );
    assert_eq!(
        sorted("1 / (requests / on (method) group_right (site) errors)"),
        expected
    );
}

#[test]
fn ambiguous_matches_are_errors() {
    let source = requests();
    let (kind, message) = error(&source, "errors / on (method) requests", 0.0);
    assert_eq!(kind, "execution");
    assert_eq!(
        message,
        "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
    );
    assert_eq!(
        error(&source, "requests / on (method) errors", 0.0).1,
        "found duplicate series for the match group {method=\"get\"} on the right hand-side of the \
         operation: [{__name__=\"errors\", code=\"500\", method=\"get\"}, {__name__=\"errors\", \
         code=\"404\", method=\"get\"}];many-to-many matching not allowed: matching labels must be \
         unique on one side"
    );
    assert_eq!(
        error(&source, "sum without (code) (errors) * on () group_left () vector(1) == on () group_left () vector(2) or errors / on (method) group_left () errors", 0.0).0,
        "execution"
    );
    // At steps at which one of them is absent, the match is unique.
    let source = series(&[
        ("a{l=\"1\"}", "1 stale"),
        ("a{l=\"2\"}", "_ 2"),
        ("b", "10x1"),
    ]);
    assert_eq!(over(&source, "b + on () a", (0, 10, 10)), ["{} 11@0 12@10"]);
}

#[test]
fn set_operators() {
    let source = series(&[
        ("a{l=\"1\"}", "1 1"),
        ("a{l=\"2\"}", "2 2"),
        ("b{l=\"2\"}", "20 stale"),
        ("b{l=\"3\"}", "30 30"),
    ]);
    assert_eq!(at(&source, "a and b", 0.0), ["{__name__=\"a\", l=\"2\"} 2"]);
    assert_eq!(
        at(&source, "a unless b", 0.0),
        ["{__name__=\"a\", l=\"1\"} 1"]
    );
    assert_eq!(
        at(&source, "a or b", 0.0),
        [
            "{__name__=\"a\", l=\"1\"} 1",
            "{__name__=\"a\", l=\"2\"} 2",
            "{__name__=\"b\", l=\"3\"} 30"
        ]
    );
    assert_eq!(at(&source, "a and on () vector(1)", 0.0).len(), 2);
    assert_eq!(at(&source, "a or on () b", 0.0).len(), 2);
    assert_eq!(
        over(&source, "a and b", (0, 10, 10)),
        ["{__name__=\"a\", l=\"2\"} 2@0"]
    );
    assert_eq!(
        over(&source, "a unless b", (0, 10, 10)),
        [
            "{__name__=\"a\", l=\"1\"} 1@0 1@10",
            "{__name__=\"a\", l=\"2\"} 2@10"
        ]
    );
}

#[test]
fn missing_series_are_filled() {
    let source = series(&[
        ("a{l=\"1\"}", "1"),
        ("a{l=\"2\"}", "2"),
        ("b{l=\"2\"}", "20"),
        ("b{l=\"3\"}", "30"),
    ]);
    let sorted = |expression: &str| {
        let mut lines = at(&source, expression, 0.0);
        lines.sort();
        lines
    };
    assert_eq!(
        sorted("a + fill (0) b"),
        ["{l=\"1\"} 1", "{l=\"2\"} 22", "{l=\"3\"} 30"]
    );
    assert_eq!(
        sorted("a + fill_right (5) b"),
        ["{l=\"1\"} 6", "{l=\"2\"} 22"]
    );
    assert_eq!(
        sorted("a + fill_left (5) b"),
        ["{l=\"2\"} 22", "{l=\"3\"} 35"]
    );
}
