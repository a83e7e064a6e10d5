//! Compares two responses.

use serde_json::Value;

/// The largest relative difference of two values.
const TOLERANCE: f64 = 1e-9;

/// Returns how the response found differs from the expected one.
pub(super) fn difference(
    expression: &str,
    (expected_status, expected): &(u16, Value),
    (found_status, found): &(u16, Value),
) -> Option<String> {
    let outline =
        |status: &u16, body: &Value| format!("{status} {} {}", body["status"], body["errorType"]);
    let (wanted, got) = (
        outline(expected_status, expected),
        outline(found_status, found),
    );
    if wanted != got {
        return Some(format!(
            "expected {wanted}, {}; found {got}, {}",
            shorten(expected),
            shorten(found)
        ));
    }
    let (expected, found) = (&expected["data"], &found["data"]);
    if expected["resultType"] != found["resultType"] {
        return Some(format!(
            "expected {}, found {}",
            shorten(expected),
            shorten(found)
        ));
    }
    let is_equal = match expected["resultType"].as_str() {
        Some("vector" | "matrix") => {
            let list = |body: &Value| body["result"].as_array().cloned().unwrap_or_default();
            let (mut wanted, mut got) = (list(expected), list(found));
            // The order of equal values is not defined.
            let is_ordered = !expression.starts_with("sort(")
                && !expression.starts_with("sort_desc(")
                || wanted
                    .iter()
                    .zip(&got)
                    .all(|(a, b)| same_point(&a["value"], &b["value"]));
            if !expression.starts_with("sort_by_label") {
                for list in [&mut wanted, &mut got] {
                    list.sort_by_cached_key(|one| one["metric"].to_string());
                }
            }
            is_ordered
                && wanted.len() == got.len()
                && wanted.iter().zip(&got).all(|(a, b)| same_series(a, b))
        }
        Some("scalar") => same_point(&expected["result"], &found["result"]),
        _ => expected["result"] == found["result"],
    };
    (!is_equal).then(|| {
        format!(
            "expected {}\n  found    {}",
            shorten(expected),
            shorten(found)
        )
    })
}

fn shorten(value: &Value) -> String {
    value.to_string().chars().take(600).collect()
}

fn same_series(expected: &Value, found: &Value) -> bool {
    let same_points = match (expected["values"].as_array(), found["values"].as_array()) {
        (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_point(a, b)),
        _ => same_point(&expected["value"], &found["value"]),
    };
    expected["metric"] == found["metric"] && same_points
}

fn same_point(expected: &Value, found: &Value) -> bool {
    let value = |point: &Value| point[1].as_str().and_then(|text| text.parse::<f64>().ok());
    match (value(expected), value(found)) {
        (Some(a), Some(b)) => same_value(a, b) && same_time(&expected[0], &found[0]),
        (None, None) => true,
        _ => false,
    }
}

fn same_time(expected: &Value, found: &Value) -> bool {
    expected.as_f64() == found.as_f64()
}

fn same_value(a: f64, b: f64) -> bool {
    if a.is_nan() || b.is_nan() {
        return a.is_nan() && b.is_nan();
    }
    a == b || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
}
