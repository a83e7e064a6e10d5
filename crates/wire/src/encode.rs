//! The common part of writing both text formats: grouping, order, names and escapes. Called for
//! every scrape of `/metrics`. A series that would collide with another one in the format is left
//! out and counted, never written twice.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use pegel_metric::prometheus_names::{UNTRUSTED_RANK, collision_rank, label_key, metric_name};
use pegel_metric::{Family, MetricKind, Series, format_value};

/// One series and its current value.
pub(crate) type SeriesReading = (Arc<Series>, f64);

/// The result of writing series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeResult {
    pub written: usize,
    /// Series left out: under the names of this format they are indistinguishable from one already
    /// written, or their name is already used by a metric of another kind.
    pub collisions: usize,
}

/// All readings whose metric name is the same in this format.
pub(crate) struct FamilyBlock<'a> {
    pub name: Cow<'a, str>,
    /// The family of the series that ranks first.
    pub family: &'a Family,
    /// The kind that is declared. Series of another kind are left out, unless `rank` is
    /// [`UNTRUSTED_RANK`].
    pub kind: MetricKind,
    /// The rank of the series that ranks first.
    pub rank: u8,
    readings: Vec<&'a [&'a SeriesReading]>,
}

/// Sorts families by name and series by text.
pub(crate) fn sort_readings(readings: &[SeriesReading]) -> Vec<&SeriesReading> {
    let mut sorted: Vec<&SeriesReading> = readings.iter().collect();
    sorted.sort_unstable_by(|(a, _), (b, _)| by_name(a, b).then_with(|| a.text().cmp(b.text())));
    sorted
}

/// Compares names. Series of one family usually share its pointer, which saves comparing the names,
/// unless the family has no name and is shared by many names.
fn by_name(a: &Series, b: &Series) -> Ordering {
    if Arc::ptr_eq(a.family(), b.family()) && !a.family().name.is_empty() {
        Ordering::Equal
    } else {
        a.name().cmp(b.name())
    }
}

/// Groups readings into blocks, sorted by name. Where several names become one, the series whose
/// name needed no change come first, so that they win at equal rank.
pub(crate) fn family_blocks<'a>(sorted: &'a [&'a SeriesReading]) -> Vec<FamilyBlock<'a>> {
    let mut families: Vec<(Cow<'a, str>, &'a [&'a SeriesReading])> = sorted
        .chunk_by(|(a, _), (b, _)| by_name(a, b).is_eq())
        .map(|readings| (metric_name(readings[0].0.name()), readings))
        .collect();
    families.sort_by(|(a, of_a), (b, of_b)| {
        let foreign = |name: &str, readings: &[&SeriesReading]| readings[0].0.name() != name;
        a.cmp(b)
            .then_with(|| foreign(a, of_a).cmp(&foreign(b, of_b)))
    });
    let mut blocks: Vec<FamilyBlock<'a>> = Vec::with_capacity(families.len());
    for (name, readings) in families {
        match blocks.last_mut() {
            Some(last) if last.name == name => last.readings.push(readings),
            _ => {
                let family = readings[0].0.family();
                blocks.push(FamilyBlock {
                    name,
                    family,
                    kind: family.kind,
                    rank: 0,
                    readings: vec![readings],
                });
            }
        }
    }
    for block in &mut blocks {
        block.rank_readings();
    }
    blocks
}

impl FamilyBlock<'_> {
    /// Chooses the family, and the kind that is declared.
    fn rank_readings(&mut self) {
        let all = || self.readings.iter().copied().flatten();
        let Some((first, _)) = all().min_by_key(|(series, _)| collision_rank(series)) else {
            return;
        };
        let (family, rank) = (first.family(), collision_rank(first));
        let is_mixed = all().any(|(series, _)| series.family().kind != family.kind);
        self.kind = match rank {
            UNTRUSTED_RANK if is_mixed => MetricKind::Unknown,
            _ => family.kind,
        };
        self.family = family;
        self.rank = rank;
    }

    pub(crate) fn series_count(&self) -> usize {
        self.readings.iter().map(|readings| readings.len()).sum()
    }
}

/// Writes one line per distinguishable series.
pub(crate) fn write_samples(out: &mut String, block: &FamilyBlock<'_>, encoded: &mut EncodeResult) {
    // Labels can only collide when names or keys were changed; otherwise comparing neighbours is
    // enough.
    let mut written: HashSet<String> = HashSet::new();
    let merged = block.readings.len() > 1;
    let changed = |series: &Series| {
        series
            .labels()
            .any(|(key, value)| needs_change(key, &value))
    };
    let careful = merged || block.readings[0].iter().any(|(series, _)| changed(series));
    let mut previous: Option<&str> = None;
    let mut readings: Vec<&SeriesReading> =
        block.readings.iter().copied().flatten().copied().collect();
    if merged {
        readings.sort_by_key(|(series, _)| collision_rank(series));
    }
    for (series, value) in readings {
        let start = out.len();
        out.push_str(&block.name);
        let labels_at = out.len();
        let is_of_kind = block.rank == UNTRUSTED_RANK || series.family().kind == block.kind;
        let mut distinct = is_of_kind && previous.replace(series.text()) != Some(series.text());
        if careful {
            distinct = distinct
                && write_changed_labels(out, series)
                && written.insert(out[labels_at..].to_owned());
        } else {
            out.push_str(series.labels_text());
        }
        if !distinct {
            out.truncate(start);
            encoded.collisions += 1;
            continue;
        }
        out.push(' ');
        format_value(out, *value);
        out.push('\n');
        encoded.written += 1;
    }
}

fn needs_change(key: &str, value: &str) -> bool {
    value.contains('\0') || matches!(label_key(key), Cow::Owned(_)) || key == "__name__"
}

/// Writes the labels under the keys of this format; returns `false` if two keys become the same.
fn write_changed_labels(out: &mut String, series: &Series) -> bool {
    let mut labels: Vec<(Cow<'_, str>, Cow<'_, str>)> = series
        .labels()
        .map(|(key, value)| (label_key(key), value))
        .collect();
    labels.sort();
    for (index, (key, value)) in labels.iter().enumerate() {
        if index > 0 && labels[index - 1].0 == *key {
            return false;
        }
        out.push(if index == 0 { '{' } else { ',' });
        out.push_str(key);
        out.push_str("=\"");
        escape(out, value, true);
        out.push('"');
    }
    if !labels.is_empty() {
        out.push('}');
    }
    true
}

/// Appends text with escapes. A NUL is replaced, because Prometheus treats it as the end of the
/// text.
pub(crate) fn escape(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            '\0' => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
pub(crate) fn reading(kind: MetricKind, text: &str, help: &str, value: f64) -> SeriesReading {
    let family = |name: &str| {
        Arc::new(Family {
            name: Cow::Owned(name.to_owned()),
            kind,
            help: Cow::Owned(help.to_owned()),
            unit: "".into(),
            level: 1,
            input: pegel_metric::Input::Collect,
        })
    };
    (
        Arc::new(Series::parse(text, family).expect("a valid series")),
        value,
    )
}

#[cfg(test)]
mod tests {
    use pegel_metric::Input;

    use super::*;

    fn sent(input: Input, kind: MetricKind, text: &str, value: f64) -> SeriesReading {
        let family = Family::new("", kind, "", 1, "").of_input(input);
        let series = Series::parse(text, |_| Arc::new(family)).expect("valid");
        (Arc::new(series), value)
    }

    #[test]
    fn what_anyone_may_send_replaces_nothing_that_a_program_counted() {
        let readings = [
            sent(
                Input::Lane,
                MetricKind::Counter,
                r#"steps_total{phase="a"}"#,
                100.0,
            ),
            sent(Input::Statsd, MetricKind::Gauge, "steps_total", 666.0),
            sent(Input::Lane, MetricKind::Counter, "rank.steps", 7.0),
            sent(Input::Statsd, MetricKind::Counter, "rank_steps", 666.0),
            sent(
                Input::Put,
                MetricKind::Unknown,
                r#"queue.depth{q="main"}"#,
                42.0,
            ),
            sent(Input::Lane, MetricKind::Unknown, "queue_depth", 1.0),
            sent(
                Input::Statsd,
                MetricKind::Unknown,
                r#"queue_depth{q="main"}"#,
                666.0,
            ),
        ];
        let mut out = String::new();
        let encoded = crate::prometheus::encode(&readings, &mut out);
        assert_eq!((encoded.written, encoded.collisions), (4, 3));
        for line in [
            "# TYPE steps_total counter",
            r#"steps_total{phase="a"} 100"#,
            "rank_steps 7",
            r#"queue_depth{q="main"} 42"#,
            "queue_depth 1",
        ] {
            assert!(out.lines().any(|found| found == line), "{line} in {out}");
        }
        assert!(!out.contains("666"), "{out}");
    }

    #[test]
    fn a_user_hides_no_series_of_the_agents_user_or_of_another_user() {
        let readings = [
            sent(
                Input::Lane,
                MetricKind::Counter,
                r#"hits_total{call="Send"}"#,
                100.0,
            ),
            sent(
                Input::Lane,
                MetricKind::Counter,
                r#"hits_total{call="Send",user="ann"}"#,
                101.0,
            ),
            sent(
                Input::Lane,
                MetricKind::Gauge,
                r#"hits_total{a="x",user="eve"}"#,
                666.0,
            ),
            // The agent's user has put this one.
            sent(Input::Put, MetricKind::Unknown, "queue.depth", 42.0),
            sent(
                Input::Lane,
                MetricKind::Gauge,
                r#"queue_depth{user="eve"}"#,
                666.0,
            ),
            // None of these users is trusted more than the other.
            sent(
                Input::Lane,
                MetricKind::Counter,
                r#"solver.steps{user="ann"}"#,
                102.0,
            ),
            sent(
                Input::Push,
                MetricKind::Gauge,
                r#"solver_steps{user="eve"}"#,
                103.0,
            ),
            sent(
                Input::Lane,
                MetricKind::Counter,
                r#"exported{exported_user="eve",v=",user=\"x\""}"#,
                104.0,
            ),
            sent(
                Input::Lane,
                MetricKind::Gauge,
                r#"exported{a="x",user="eve"}"#,
                666.0,
            ),
        ];
        let (mut text, mut open) = (String::new(), String::new());
        let encoded = crate::prometheus::encode(&readings, &mut text);
        crate::openmetrics::encode(&readings, &mut open);
        assert_eq!((encoded.written, encoded.collisions), (6, 3), "{text}");
        for (out, line) in [
            (&text, "# TYPE hits_total counter"),
            (&text, "# TYPE queue_depth untyped"),
            (&text, "# TYPE solver_steps untyped"),
            (&text, "# TYPE exported counter"),
            (&open, "# TYPE hits counter"),
            (&open, "# TYPE solver_steps unknown"),
        ] {
            assert!(out.lines().any(|found| found == line), "{line} in {out}");
        }
        for out in [text, open] {
            for line in [
                r#"hits_total{call="Send"} 100"#,
                r#"hits_total{call="Send",user="ann"} 101"#,
                "queue_depth 42",
                r#"solver_steps{user="ann"} 102"#,
                r#"solver_steps{user="eve"} 103"#,
            ] {
                assert!(out.lines().any(|found| found == line), "{line} in {out}");
            }
            assert!(!out.contains("666"), "{out}");
        }
    }
}
