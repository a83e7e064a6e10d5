//! The Prometheus text format, version 0.0.4.

use std::sync::Arc;

use pegel_metric::{MetricKind, Series};

use crate::encode::{
    EncodeResult, FamilyBlock, escape, family_blocks, sort_readings, write_samples,
};

/// The content type of this format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Appends all readings, families sorted by name and series by text.
pub fn encode(readings: &[(Arc<Series>, f64)], out: &mut String) -> EncodeResult {
    let mut encoded = EncodeResult::default();
    for block in family_blocks(&sort_readings(readings)) {
        write_metadata(out, &block);
        write_samples(out, &block, &mut encoded);
    }
    encoded
}

/// Appends the value of a label, escaped.
pub fn escape_label_value(out: &mut String, value: &str) {
    escape(out, value, true);
}

fn write_metadata(out: &mut String, block: &FamilyBlock<'_>) {
    if !block.family.help.is_empty() {
        out.push_str("# HELP ");
        out.push_str(&block.name);
        out.push(' ');
        escape(out, &block.family.help, false);
        out.push('\n');
    }
    out.push_str("# TYPE ");
    out.push_str(&block.name);
    out.push_str(match block.kind {
        MetricKind::Counter => " counter\n",
        MetricKind::Gauge => " gauge\n",
        MetricKind::Unknown => " untyped\n",
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::reading;

    fn encoded(readings: &[(Arc<Series>, f64)]) -> (String, EncodeResult) {
        let mut out = String::new();
        let encoded = encode(readings, &mut out);
        (out, encoded)
    }

    #[test]
    fn families_are_sorted_by_name_and_series_by_text() {
        let (text, encoded) = encoded(&[
            reading(MetricKind::Gauge, "cpu_max", "", 3.0),
            reading(
                MetricKind::Counter,
                r#"cpu{n="1"}"#,
                "Time\nspent \\ \"used\".",
                2.5,
            ),
            reading(
                MetricKind::Counter,
                r#"cpu{n="0"}"#,
                "Time\nspent \\ \"used\".",
                1.0,
            ),
            reading(MetricKind::Unknown, "a", "", f64::NAN),
        ]);
        let expected = "# TYPE a untyped\na NaN\n\
                        # HELP cpu Time\\nspent \\\\ \"used\".\n# TYPE cpu counter\ncpu{n=\"0\"} 1\ncpu{n=\"1\"} 2.5\n\
                        # TYPE cpu_max gauge\ncpu_max 3\n";
        assert_eq!(text, expected);
        assert_eq!(
            encoded,
            EncodeResult {
                written: 4,
                collisions: 0
            }
        );
    }

    #[test]
    fn names_that_become_one_are_counted_and_the_native_one_stays() {
        let (text, encoded) = encoded(&[
            reading(MetricKind::Gauge, "queue.depth", "", 1.0),
            reading(MetricKind::Gauge, "queue_depth", "", 2.0),
            reading(MetricKind::Gauge, r#"queue.depth{q="a"}"#, "", 3.0),
            reading(MetricKind::Counter, "queue-depth", "", 4.0),
            reading(MetricKind::Gauge, r#"9{a.b="1"}"#, "", 5.0),
            reading(MetricKind::Gauge, r#"9{a-b="1"}"#, "", 6.0),
            reading(MetricKind::Gauge, r#"twice{a-b="1",a.b="2"}"#, "", 7.0),
        ]);
        let expected = "# TYPE _9 gauge\n_9{a_b=\"1\"} 6\n\
                        # TYPE queue_depth gauge\nqueue_depth 2\nqueue_depth{q=\"a\"} 3\n\
                        # TYPE twice gauge\n";
        assert_eq!(text, expected);
        assert_eq!(
            encoded,
            EncodeResult {
                written: 3,
                collisions: 4
            }
        );
    }

    #[test]
    fn one_series_is_never_written_twice() {
        let (text, encoded) = encoded(&[
            reading(MetricKind::Gauge, "a", "", 1.0),
            reading(MetricKind::Gauge, "a", "", 1.0),
        ]);
        assert_eq!(text, "# TYPE a gauge\na 1\n");
        assert_eq!(
            encoded,
            EncodeResult {
                written: 1,
                collisions: 1
            }
        );
    }

    #[test]
    fn what_would_end_or_break_a_scrape_is_changed() {
        let (text, _) = encoded(&[reading(
            MetricKind::Gauge,
            "a{__name__=\"b\",c=\"x\0y\"}",
            "no\0",
            1.0,
        )]);
        assert_eq!(
            text,
            "# HELP a no\u{FFFD}\n# TYPE a gauge\na{_name=\"b\",c=\"x\u{FFFD}y\"} 1\n"
        );
    }

    #[test]
    fn labels_help_and_values_are_escaped() {
        let (text, _) = encoded(&[
            reading(
                MetricKind::Counter,
                r#"c_total{k="\\ \" \n {,} ü"}"#,
                "Help \\ me\n\"now\".",
                0.1,
            ),
            reading(MetricKind::Gauge, "g", "", f64::INFINITY),
            reading(MetricKind::Gauge, "h", "", -5e-324),
        ]);
        let expected = "# HELP c_total Help \\\\ me\\n\"now\".\n# TYPE c_total counter\n\
                        c_total{k=\"\\\\ \\\" \\n {,} ü\"} 0.1\n\
                        # TYPE g gauge\ng +Inf\n# TYPE h gauge\nh -5e-324\n";
        assert_eq!(text, expected);
    }
}
