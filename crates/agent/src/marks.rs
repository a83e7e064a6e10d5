//! Marks and phases of programs: keeps those that arrive as events among the annotations, and
//! publishes their counts.

use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_config::UserInfo;
use pegel_ingest::marks::{IncomingMark, MarkRefusal, MarkStep, MarkStore};
use pegel_ingest::senders::Sender;
use pegel_metric::{Clock, DropReason, Family, MetricKind};
use pegel_query::{AnnotationUpdate, Annotations, KIND_LABEL, MarkKind, OpentsdbError};

static FAMILIES: [Family; 2] = [
    Family::new(
        "pegel_marks_stored_total",
        MetricKind::Counter,
        "",
        0,
        "Total number of marks and phases that were stored.",
    ),
    Family::new(
        "pegel_marks_removed_total",
        MetricKind::Counter,
        "",
        0,
        "Total number of marks and phases that were removed because of their age, or to make room.",
    ),
];

/// The families of the metrics of marks.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter()
}

/// Publishes the number of marks.
#[derive(Debug)]
pub(crate) struct MarkMetrics {
    annotations: Arc<Annotations>,
    families: Vec<Arc<Family>>,
}

impl MarkMetrics {
    pub(crate) fn new(annotations: &Arc<Annotations>) -> Arc<MarkMetrics> {
        Arc::new(MarkMetrics {
            annotations: annotations.clone(),
            families: FAMILIES.iter().cloned().map(Arc::new).collect(),
        })
    }
}

impl SelfMetrics for MarkMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let [stored, removed] = self.families.as_slice() else {
            return;
        };
        let counts = self.annotations.mark_counts();
        put(stored, &[], counts.stored as f64);
        put(removed, &[("reason", "age")], counts.expired as f64);
        put(removed, &[("reason", "room")], counts.evicted as f64);
    }
}

/// Keeps events of statsd clients as marks and phases.
#[derive(Debug)]
pub(crate) struct AnnotationMarks {
    pub annotations: Arc<Annotations>,
    pub clock: Arc<dyn Clock>,
}

impl MarkStore for AnnotationMarks {
    fn store(&self, sender: &Sender, mark: IncomingMark) -> Result<(), MarkRefusal> {
        let now = self.clock.utc();
        let time = mark.time.unwrap_or(now);
        let kind = match mark.step {
            MarkStep::Mark => MarkKind::Mark,
            MarkStep::PhaseBegin | MarkStep::PhaseEnd => MarkKind::Phase,
        };
        // What the agent knows itself replaces what the client states.
        let user = UserInfo::of_sender(&sender.name).map(|user| user.short_name());
        let known = [
            (KIND_LABEL, Some(kind.as_str().to_owned())),
            ("user", user),
            ("pid", mark.pid.map(|pid| pid.to_string())),
        ];
        let known = known.into_iter();
        let known = known.filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let labels = mark.labels.into_iter().chain(known);
        let change = match mark.step {
            MarkStep::PhaseEnd => AnnotationUpdate::of_phase_end(&mark.text, time, labels),
            _ => AnnotationUpdate::of_mark(&mark.text, &mark.notes, time, labels),
        };
        let editor = (!sender.is_trusted()).then_some(&*sender.name);
        let stored = { self.annotations.expire_marks(now) }
            .and_then(|()| self.annotations.put(change, false, editor));
        stored.map(drop).map_err(|error| refusal(&error))
    }
}

fn refusal(error: &OpentsdbError) -> MarkRefusal {
    let reason = match error.status() {
        413 => DropReason::SenderLimit,
        429 => DropReason::SenderRate,
        503 => DropReason::Degraded,
        _ => DropReason::BadValue,
    };
    let message = match error.details() {
        Some(details) => format!("{error}: {details}"),
        None => error.to_string(),
    };
    MarkRefusal { reason, message }
}
