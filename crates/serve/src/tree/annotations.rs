//! The annotations of all nodes, for readers. Annotations of series belong to a node by their
//! TSUID; global ones get a label `host`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use pegel_metric::Millis;
use pegel_query::{Annotation, Annotations};
use pegel_store::QueryError;
use serde::{Deserialize, Serialize};

use super::chosen_nodes::{ChosenNodes, FanOutLimits};
use super::host_label::HOST;

/// The request for annotations; only through the tree.
pub(crate) const ANNOTATIONS_TARGET: &str = "/tree/annotations";

/// The annotations of all nodes together.
const ANNOTATIONS_BYTES_MAX: usize = 16 << 20;
const ANNOTATIONS_TIME: Duration = Duration::from_secs(5);

/// An annotation and its node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NodeAnnotation {
    /// Set by parents, never taken from a node itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    pub annotation: Annotation,
}

/// The response to a parent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct NodeAnnotations {
    pub annotations: Vec<NodeAnnotation>,
    /// Nodes below that did not answer.
    #[serde(default)]
    pub late: Vec<String>,
}

/// Returns the annotations of the chosen nodes below this agent that overlap a range of time.
/// Blocks.
pub(crate) fn annotations_below(
    nodes: &ChosenNodes,
    (start, end): (Millis, Millis),
    deadline: Instant,
) -> Result<Vec<NodeAnnotation>, QueryError> {
    let limits = FanOutLimits {
        deadline: deadline.min(Instant::now() + ANNOTATIONS_TIME),
        bytes_max: ANNOTATIONS_BYTES_MAX,
        cancellation: Default::default(),
    };
    let any = |_: &str| true;
    let answers = nodes.ask(&any, &limits, |_| {
        let target = format!("{ANNOTATIONS_TARGET}?start={start}&end={end}");
        (target, Bytes::new())
    })?;
    let mut found = Vec::new();
    for answer in answers {
        let Ok(list) = serde_json::from_slice::<NodeAnnotations>(&answer.body) else {
            tracing::warn!(child = answer.child, "malformed annotations of a node");
            nodes.miss_child(&answer.child, &any);
            continue;
        };
        nodes.miss(&answer.child, list.late.iter().map(String::as_str), &any);
        for NodeAnnotation { host, annotation } in list.annotations {
            let host = nodes.checked_host(&answer, host, &any);
            found.extend(host.map(|host| NodeAnnotation { host, annotation }));
        }
    }
    Ok(found)
}

/// Returns the annotations of this agent and of the nodes below it. Blocks.
pub(crate) fn all_annotations(
    own: &Annotations,
    nodes: &ChosenNodes,
    range: (Millis, Millis),
    deadline: Instant,
) -> Result<Annotations, QueryError> {
    let below = annotations_below(nodes, range, deadline)?;
    let below = below.into_iter().map(|found| {
        let mut annotation = found.annotation;
        if annotation.tsuid.is_empty() {
            let labels = annotation.custom.get_or_insert_default();
            labels.insert(HOST.to_owned(), found.host);
        }
        annotation
    });
    Ok(Annotations::read_only(
        own.in_range(range.0, range.1).into_iter().chain(below),
    ))
}
