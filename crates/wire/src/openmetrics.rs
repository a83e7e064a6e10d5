//! OpenMetrics 1.0.0, the text form.
//!
//! A counter's family is named without `_total`, its samples with it. A counter whose name
//! lacks `_total` is typed `unknown`, so that its name never depends on the format.

use std::collections::HashSet;
use std::sync::Arc;

use pegel_metric::{MetricKind, Series};

use crate::encode::{
    EncodeResult, FamilyBlock, escape, family_blocks, sort_readings, write_samples,
};

/// The content type of this format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Appends all readings, families sorted by name and series by text, and the end mark.
pub fn encode(readings: &[(Arc<Series>, f64)], out: &mut String) -> EncodeResult {
    let mut encoded = EncodeResult::default();
    let sorted = sort_readings(readings);
    let blocks = family_blocks(&sorted);
    let names: HashSet<&str> = blocks.iter().map(|block| &*block.name).collect();
    for block in &blocks {
        match counter_family(block, &names) {
            Some(family) => write_metadata(out, block, family, "counter"),
            None if block.family.kind == MetricKind::Gauge => {
                write_metadata(out, block, &block.name, "gauge")
            }
            None => write_metadata(out, block, &block.name, "unknown"),
        }
        write_samples(out, block, &mut encoded);
    }
    out.push_str("# EOF\n");
    encoded
}

/// Returns the name under which a counter is declared; `None` if it cannot be declared as one.
///
/// A counter family `x` also owns the names `x` and `x_created`. If another metric has one of those, the counter is
/// typed `unknown`; its samples are kept.
fn counter_family<'a>(block: &'a FamilyBlock<'_>, names: &HashSet<&str>) -> Option<&'a str> {
    let counter = block.family.kind == MetricKind::Counter;
    let family = block.name.strip_suffix("_total").filter(|_| counter)?;
    let free = |name: &str| !names.contains(name);
    (!family.is_empty() && free(family) && free(&format!("{family}_created"))).then_some(family)
}

fn write_metadata(out: &mut String, block: &FamilyBlock<'_>, family: &str, kind: &str) {
    let mut line = |keyword: &str, text: &str| {
        out.push_str("# ");
        out.push_str(keyword);
        out.push(' ');
        out.push_str(family);
        out.push(' ');
        escape(out, text, true);
        out.push('\n');
    };
    line("TYPE", kind);
    let unit = &*block.family.unit;
    // A unit that is not a suffix of the name makes the whole exposition invalid.
    if !unit.is_empty()
        && family
            .strip_suffix(unit)
            .is_some_and(|stem| stem.ends_with('_'))
    {
        line("UNIT", unit);
    }
    if !block.family.help.is_empty() {
        line("HELP", &block.family.help);
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::Family;

    use super::*;
    use crate::encode::reading;

    fn encoded(readings: &[(Arc<Series>, f64)]) -> String {
        let mut out = String::new();
        encode(readings, &mut out);
        out
    }

    #[test]
    fn counters_are_declared_without_total() {
        let text = encoded(&[
            reading(MetricKind::Counter, "a_total", "Say \"a\".", 1.0),
            reading(MetricKind::Counter, "b", "", 2.0),
            reading(MetricKind::Gauge, "g", "", 3.0),
            reading(MetricKind::Unknown, "u", "", 4.0),
            reading(MetricKind::Counter, "_total", "", 5.0),
        ]);
        let expected = "# TYPE _total unknown\n_total 5\n\
                        # TYPE a counter\n# HELP a Say \\\"a\\\".\na_total 1\n\
                        # TYPE b unknown\nb 2\n# TYPE g gauge\ng 3\n# TYPE u unknown\nu 4\n# EOF\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_counter_yields_its_type_to_a_metric_of_its_family_name() {
        let text = encoded(&[
            reading(MetricKind::Counter, "a_total", "", 1.0),
            reading(MetricKind::Gauge, "a", "", 2.0),
            reading(MetricKind::Counter, "b_total", "", 3.0),
            reading(MetricKind::Gauge, "b_created", "", 4.0),
        ]);
        let expected = "# TYPE a gauge\na 2\n# TYPE a_total unknown\na_total 1\n\
                        # TYPE b_created gauge\nb_created 4\n# TYPE b_total unknown\nb_total 3\n# EOF\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_unit_is_said_only_where_the_name_ends_with_it() {
        let with_unit = |name: &'static str, kind, unit| {
            let family = Arc::new(Family::new(name, kind, unit, 1, ""));
            (Arc::new(Series::new(family, &[]).expect("valid")), 1.0)
        };
        let text = encoded(&[
            with_unit("a_seconds_total", MetricKind::Counter, "seconds"),
            with_unit("b_bytes", MetricKind::Gauge, "bytes"),
            with_unit("c_kbytes", MetricKind::Gauge, "bytes"),
            with_unit("seconds", MetricKind::Gauge, "seconds"),
        ]);
        let expected = "# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1\n\
                        # TYPE b_bytes gauge\n# UNIT b_bytes bytes\nb_bytes 1\n\
                        # TYPE c_kbytes gauge\nc_kbytes 1\n# TYPE seconds gauge\nseconds 1\n# EOF\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn labels_help_and_values_are_escaped() {
        let text = encoded(&[
            reading(
                MetricKind::Counter,
                r#"c_total{k="\\ \" \n"}"#,
                "a \\ \"b\"\nc",
                1e300,
            ),
            reading(MetricKind::Unknown, "u", "", f64::NEG_INFINITY),
        ]);
        let expected = "# TYPE c counter\n# HELP c a \\\\ \\\"b\\\"\\nc\n\
                        c_total{k=\"\\\\ \\\" \\n\"} 1e300\n# TYPE u unknown\nu -Inf\n# EOF\n";
        assert_eq!(text, expected);
    }
}
