//! OpenMetrics 1.0.0, the text form.
//!
//! A counter's family is named without `_total`, its samples with it. A counter whose name
//! lacks `_total` is typed `unknown`, so that its name never depends on the format.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pegel_metric::prometheus_names::UNTRUSTED_RANK;
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
    let ranks: HashMap<&str, u8> = blocks
        .iter()
        .map(|block| (&*block.name, block.rank))
        .collect();
    let hidden = hidden_names(&blocks, &ranks);
    for block in &blocks {
        if hidden.contains(&*block.name) {
            encoded.collisions += block.series_count();
            continue;
        }
        match counter_family(block, &ranks) {
            Some(family) => write_metadata(out, block, family, "counter"),
            None if block.kind == MetricKind::Gauge => {
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
/// A counter family `x` also owns the names `x` and `x_created`. If another metric has one of
/// those, the counter is typed `unknown`; its samples are kept. Metrics that any local user may
/// send do not change the type of others.
fn counter_family<'a>(block: &'a FamilyBlock<'_>, ranks: &HashMap<&str, u8>) -> Option<&'a str> {
    let counter = block.kind == MetricKind::Counter;
    let family = block.name.strip_suffix("_total").filter(|_| counter)?;
    let free = |name: &str| {
        let other = ranks.get(name);
        other.is_none_or(|&other| other == UNTRUSTED_RANK && block.rank < UNTRUSTED_RANK)
    };
    (!family.is_empty() && free(family) && free(&created(family))).then_some(family)
}

fn created(family: &str) -> String {
    format!("{family}_created")
}

/// The names that declared counters own: untrusted metrics with these names are left out.
fn hidden_names(blocks: &[FamilyBlock<'_>], ranks: &HashMap<&str, u8>) -> HashSet<String> {
    let families = blocks
        .iter()
        .filter(|block| block.rank < UNTRUSTED_RANK)
        .filter_map(|block| counter_family(block, ranks));
    families
        .flat_map(|family| [family.to_owned(), created(family)])
        .filter(|name| ranks.contains_key(&**name))
        .collect()
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
    use pegel_metric::{Family, Input};

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
    fn a_counter_keeps_its_type_if_anyone_sends_a_metric_of_its_family_name() {
        let sent = |input: Input, kind: MetricKind, name: &str| {
            let family = Family::new("", kind, "", 1, "").of_input(input);
            let series = Series::parse(name, |_| Arc::new(family)).expect("valid");
            (Arc::new(series), 1.0)
        };
        let text = encoded(&[
            sent(Input::Lane, MetricKind::Counter, "a_total"),
            sent(Input::Statsd, MetricKind::Gauge, "a"),
            sent(Input::Statsd, MetricKind::Gauge, "a_created"),
            sent(Input::Statsd, MetricKind::Counter, "b_total"),
            sent(Input::Statsd, MetricKind::Gauge, "b"),
        ]);
        let expected = "# TYPE a counter\na_total 1\n\
                        # TYPE b gauge\nb 1\n# TYPE b_total unknown\nb_total 1\n# EOF\n";
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
