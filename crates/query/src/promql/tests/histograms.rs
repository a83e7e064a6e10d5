//! Functions of classic histograms.

use super::*;

fn histogram() -> MemorySource {
    series(&[
        ("h_bucket{le=\"1\",job=\"a\"}", "10"),
        ("h_bucket{le=\"2\",job=\"a\"}", "30"),
        ("h_bucket{le=\"+Inf\",job=\"a\"}", "40"),
        ("h_bucket{le=\"1\",job=\"b\"}", "10"),
        ("h_bucket{le=\"2\",job=\"b\"}", "5"),
        ("h_bucket{le=\"+Inf\",job=\"b\"}", "20"),
    ])
}

#[test]
fn quantiles() {
    let source = histogram();
    // Of a: rank 20 is the middle of the second bucket. Of b: the second bucket counts as 10, so
    // rank 10 is the end of the first.
    let quantiles = outcome(&source, "histogram_quantile(0.5, h_bucket)", 0.0);
    assert_eq!(
        quantiles.infos,
        [
            "PromQL info: input to histogram_quantile needed to be fixed for monotonicity (see \
          https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile) \
          for metric name \"h_bucket\" (1:25)"
        ]
    );
    assert_eq!(
        show_value(quantiles.value),
        ["{job=\"a\"} 1.5", "{job=\"b\"} 1"]
    );
    assert_eq!(
        at(
            &source,
            "histogram_quantile(0.5, sum by (le) (h_bucket{job=\"a\"}))",
            0.0
        ),
        ["{} 1.5"]
    );
    assert_eq!(
        outcome(&source, "histogram_quantile(7, h_bucket)", 0.0).warnings,
        ["PromQL warning: quantile value should be between 0 and 1, got 7 (1:20)"]
    );
    assert_eq!(
        at(
            &source,
            "histogram_quantiles(h_bucket{job=\"a\"}, \"q\", 0.5, 1)",
            0.0
        ),
        ["{job=\"a\", q=\"0.5\"} 1.5", "{job=\"a\", q=\"1\"} 2"]
    );
}

#[test]
fn fractions() {
    let source = histogram();
    let fraction = |lower, upper| {
        let expression = format!("histogram_fraction({lower}, {upper}, h_bucket{{job=\"a\"}})");
        number(&source, &expression, 0.0)
    };
    assert_eq!(fraction("1", "2"), "0.5");
    assert_eq!(fraction("-Inf", "1.5"), "0.5");
    assert_eq!(fraction("0.5", "+Inf"), "0.875");
}

#[test]
fn series_that_are_no_buckets_are_left_out() {
    let source = series(&[("m{le=\"x\"}", "1"), ("m", "2")]);
    let quantiles = outcome(&source, "histogram_quantile(0.5, m)", 0.0);
    assert_eq!(show_value(quantiles.value), [""; 0]);
    assert_eq!(
        quantiles.warnings,
        [
            "PromQL warning: bucket label \"le\" is missing or has a malformed value of \"\" for \
             metric name \"m\" (1:25)",
            "PromQL warning: bucket label \"le\" is missing or has a malformed value of \"x\" for \
             metric name \"m\" (1:25)"
        ]
    );
    assert_eq!(at(&source, "histogram_count(m)", 0.0), [""; 0]);
}
