//! Marks and phases as series, for annotation queries of Grafana's Prometheus source.
//!
//! `pegel_mark` has one sample at the time of each mark, whose value is that time in milliseconds:
//! `last_over_time(pegel_mark[$__interval])` has the exact time at any step. `pegel_phase` is 1
//! while a phase runs, and absent otherwise. Their labels are those of the mark, its text and those
//! of the node. Nothing of this is stored as samples: the annotations are read at each query.

use std::collections::BTreeMap;

use pegel_metric::prometheus_names::label_key;
use pegel_metric::{Family, MetricKind, Millis};

use super::error::PromqlError;
use super::labels::{LabelSet, NAME};
use super::series_view::NodeLabels;
use super::source::Selection;
use super::value::STALE_NAN;
use crate::annotations::{Annotation, Annotations, ID_LABEL, KIND_LABEL, MarkKind};

/// The samples of a running phase are this far apart: a fifth of the usual lookback.
pub(super) const PHASE_INTERVAL: Millis = 60_000;
/// The most marks and phases that one selection reads, the newest ones.
const MARKS_MAX: usize = 10_000;

static FAMILIES: [Family; 2] = [
    Family::new(
        "pegel_mark",
        MetricKind::Gauge,
        "",
        0,
        "Time of a mark, in milliseconds since 1970.",
    ),
    Family::new(
        "pegel_phase",
        MetricKind::Gauge,
        "",
        0,
        "1 while a phase runs.",
    ),
];

/// Returns the family of marks or phases.
pub(super) fn mark_family(kind: MarkKind) -> &'static Family {
    match kind {
        MarkKind::Mark => &FAMILIES[0],
        MarkKind::Phase => &FAMILIES[1],
    }
}

type MarkSamples = Vec<(Millis, f64)>;
/// Start and end.
type MarkSpan = (Millis, Millis);

/// Returns the series of marks and phases that match and have samples in the range. Marks with the
/// same labels are one series.
pub(super) fn mark_series(
    annotations: &Annotations,
    node: &NodeLabels,
    selection: &Selection<'_>,
) -> Result<Vec<(LabelSet, MarkKind, MarkSamples)>, PromqlError> {
    let is_meant = |kind: MarkKind| {
        let mut names = { selection.matchers.iter() }.filter(|matcher| matcher.name == NAME);
        names.all(|matcher| matcher.accepts(&mark_family(kind).name))
    };
    if !MarkKind::ALL.into_iter().any(is_meant) {
        return Ok(Vec::new());
    }
    let (found, _) = annotations.overlapping(selection.start, selection.end, MARKS_MAX);
    let mut series: BTreeMap<String, (LabelSet, MarkKind, Vec<MarkSpan>)> = BTreeMap::new();
    for note in &found {
        // Plain annotations appear as marks.
        let kind = note.mark_kind().unwrap_or(MarkKind::Mark);
        let labels = labels_of(note, kind, node);
        if selection
            .matchers
            .iter()
            .all(|matcher| matcher.matches(&labels))
        {
            let end = note.end().unwrap_or(selection.end);
            let entry = series.entry(labels.to_string());
            let (_, _, spans) = entry.or_insert_with(|| (labels, kind, Vec::new()));
            spans.push((note.start(), end));
        }
    }
    let mut bytes = 0;
    let mut result = Vec::new();
    for (labels, kind, spans) in series.into_values() {
        let samples = match kind {
            MarkKind::Mark => mark_samples(&spans, selection),
            MarkKind::Phase => interval_samples(&spans, selection),
        };
        bytes += labels.bytes() + samples.len() * size_of::<(Millis, f64)>();
        if bytes > selection.bytes_max {
            return Err(PromqlError::too_many_samples());
        }
        if !samples.is_empty() {
            result.push((labels, kind, samples));
        }
    }
    Ok(result)
}

fn labels_of(note: &Annotation, kind: MarkKind, node: &NodeLabels) -> LabelSet {
    let own = note.custom.iter().flatten();
    let own = own.filter(|(key, _)| *key != ID_LABEL && *key != KIND_LABEL);
    let own = own.map(|(key, value)| (label_key(key).into_owned(), value.as_str()));
    let given = [
        (NAME, &*mark_family(kind).name),
        ("text", &*note.description),
        ("notes", &*note.notes),
    ];
    let given = given.map(|(key, value)| (key.to_owned(), value));
    let node = [("job", &*node.job), ("instance", &*node.instance)];
    let node = node.map(|(key, value)| (key.to_owned(), value));
    // Of two labels with one name the first remains.
    LabelSet::new(given.into_iter().chain(own).chain(node))
}

fn mark_samples(spans: &[MarkSpan], selection: &Selection<'_>) -> MarkSamples {
    let starts = spans.iter().map(|(start, _)| *start);
    let inside = starts.filter(|start| (selection.start..=selection.end).contains(start));
    inside.map(|start| (start, start as f64)).collect()
}

/// Returns samples of the union of some spans, which are sorted by their starts.
pub(super) fn interval_samples(spans: &[MarkSpan], selection: &Selection<'_>) -> MarkSamples {
    let mut samples = MarkSamples::new();
    let mut covered: Option<MarkSpan> = None;
    let mut emit = |(start, end): MarkSpan| {
        let mut at = start.max(selection.start);
        while at < end.min(selection.end) {
            samples.push((at, 1.0));
            at += PHASE_INTERVAL;
        }
        if (selection.start..=selection.end).contains(&end) {
            samples.push((end, 1.0));
        }
        if (selection.start..selection.end).contains(&end) {
            samples.push((end + 1, STALE_NAN));
        }
    };
    for &(start, end) in spans {
        match &mut covered {
            Some(open) if start <= open.1.saturating_add(1) => open.1 = open.1.max(end),
            open => {
                if let Some(done) = open.replace((start, end)) {
                    emit(done);
                }
            }
        }
    }
    if let Some(done) = covered {
        emit(done);
    }
    samples
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use pegel_store::QueryCancellation;
    use pegel_testkit::TempDir;

    use super::*;
    use crate::annotations::AnnotationUpdate;

    const T: Millis = 1_713_379_440_000;

    fn put(notes: &Annotations, text: &str, (start, end): MarkSpan, labels: &str) {
        let json = format!(
            r#"{{"startTime":{start},"endTime":{end},"description":"{text}","custom":{{{labels}}}}}"#
        );
        let change = AnnotationUpdate::from_json(json.as_bytes()).expect("valid");
        notes
            .put(change, false, None)
            .expect("stored")
            .expect("new");
    }

    fn select(notes: &Annotations, selector: &str, (start, end): MarkSpan) -> Vec<String> {
        let matchers = super::super::parse_selector(selector).expect("valid");
        let selection = Selection {
            matchers: &matchers,
            input: None,
            start,
            end,
            bytes_max: 1 << 20,
            deadline: Instant::now() + Duration::from_secs(60),
            cancellation: QueryCancellation::default(),
        };
        let node = NodeLabels {
            job: "node".into(),
            instance: "n1:1337".into(),
        };
        let found = mark_series(notes, &node, &selection).expect("reads");
        let text = |(labels, _, samples): &(LabelSet, MarkKind, MarkSamples)| {
            let times = samples.iter().map(|(time, value)| {
                let is_stale = if value.is_nan() { "!" } else { "" };
                format!("{}{is_stale}", time - T)
            });
            format!("{labels} {}", times.collect::<Vec<_>>().join(" "))
        };
        let node_labels = ", instance=\"n1:1337\", job=\"node\"";
        found
            .iter()
            .map(|one| text(one).replace(node_labels, ""))
            .collect()
    }

    #[test]
    fn marks_have_samples_at_their_times_and_phases_while_they_run() {
        let dir = TempDir::new();
        let notes = Annotations::open(dir.path()).expect("opens");
        let mark = r#""kind":"mark","program":"train","id":"1""#;
        put(&notes, "checkpoint", (T, 0), mark);
        put(
            &notes,
            "checkpoint",
            (T + 9, 0),
            &mark.replace("\"1\"", "\"2\""),
        );
        put(&notes, "solve", (T + 5, T + 130_000), r#""kind":"phase""#);
        put(
            &notes,
            "solve",
            (T + 100_000, T + 140_000),
            r#""kind":"phase""#,
        );
        put(&notes, "open", (T + 7, 0), r#""kind":"phase""#);
        let all = (T - 1_000, T + 150_000);
        let marks = r#"{__name__="pegel_mark", program="train", text="checkpoint"} 0 9"#;
        assert_eq!(select(&notes, "pegel_mark", all), [marks]);
        assert_eq!(select(&notes, "pegel_mark", (T + 1, T + 8)), [""; 0]);
        assert_eq!(
            select(&notes, "pegel_mark{program!=\"train\"}", all),
            [""; 0]
        );
        assert_eq!(select(&notes, "node_load1", all), [""; 0]);
        let phases = [
            r#"{__name__="pegel_phase", text="open"} 7 60007 120007 150000"#,
            r#"{__name__="pegel_phase", text="solve"} 5 60005 120005 140000 140001!"#,
        ];
        assert_eq!(select(&notes, "pegel_phase", all), phases);
        let later = select(
            &notes,
            "{__name__=~\"pegel_.*\",job=\"node\"}",
            (T + 50, T + 60),
        );
        assert_eq!(later.len(), 2, "{later:?}");
    }
}
