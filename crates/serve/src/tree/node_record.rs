//! Which nodes contributed to a response.

use std::collections::BTreeSet;
use std::fmt::Write;

use axum::http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use pegel_tree_protocol::{NodeReport, SelectEnd};

/// Lists the nodes that contributed to a response.
pub(crate) const NODES_HEADER: HeaderName = HeaderName::from_static("pegel-nodes");

/// The most names in the header; further ones are counted.
const NAMES_MAX: usize = 20;

/// The nodes of one request. A node that failed once is missing, even if it answered before.
#[derive(Debug, Default)]
pub(crate) struct NodeRecord(Mutex<RecordedNodes>);

#[derive(Debug, Default)]
struct RecordedNodes {
    expected: BTreeSet<String>,
    missing: BTreeSet<String>,
}

impl NodeRecord {
    /// Adds nodes that must answer.
    pub(crate) fn expect<'a>(&self, nodes: impl IntoIterator<Item = &'a str>) {
        let mut recorded = self.0.lock();
        for node in nodes {
            if !recorded.expected.contains(node) {
                recorded.expected.insert(node.to_owned());
            }
        }
    }

    /// Adds nodes that did not answer.
    pub(crate) fn miss<'a>(&self, nodes: impl IntoIterator<Item = &'a str>) {
        let mut recorded = self.0.lock();
        for node in nodes {
            recorded.expected.insert(node.to_owned());
            recorded.missing.insert(node.to_owned());
        }
    }

    /// Returns whether a node did not answer before.
    pub(crate) fn is_missing(&self, node: &str) -> bool {
        self.0.lock().missing.contains(node)
    }

    /// Returns whether the request has read any node.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().expected.is_empty()
    }

    pub(crate) fn report(&self) -> NodeReport {
        let recorded = self.0.lock();
        let expected = recorded.expected.len();
        NodeReport {
            answered: (expected - recorded.missing.len()) as u32,
            expected: expected as u32,
            late: recorded.missing.iter().cloned().collect(),
        }
    }

    /// Returns the last part of a response to a parent.
    pub(crate) fn select_end(&self) -> SelectEnd {
        let report = self.report();
        SelectEnd {
            answered: report.answered,
            expected: report.expected,
            late: report.late,
            nodes: Vec::new(),
        }
    }

    /// Returns the warning of a response that lacks nodes.
    pub(crate) fn warning(&self) -> Option<String> {
        let report = self.report();
        if report.late.is_empty() {
            return None;
        }
        let (late, expected) = (report.late.len(), report.expected);
        let names = listed_names(&report.late);
        Some(format!(
            "incomplete result: {late} of {expected} nodes did not answer: {names}"
        ))
    }
}

/// Returns the value of the header `Pegel-Nodes`.
pub(crate) fn header_value(report: &NodeReport) -> HeaderValue {
    let NodeReport {
        answered,
        expected,
        late,
    } = report;
    let mut text = format!("answered={answered} expected={expected}");
    if !late.is_empty() {
        // Writing to a String cannot fail.
        let _ = write!(text, " late={}", listed_names(late));
    }
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

fn listed_names(late: &[String]) -> String {
    let mut text = late[..late.len().min(NAMES_MAX)].join(",");
    if late.len() > NAMES_MAX {
        let _ = write!(text, ",+{}", late.len() - NAMES_MAX);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_failed_once_is_missing() {
        let record = NodeRecord::default();
        assert!(record.is_empty() && record.warning().is_none());
        record.expect(["n1", "n2", "n3"]);
        assert_eq!(header_value(&record.report()), "answered=3 expected=3");
        record.miss(["n2"]);
        record.expect(["n1", "n2"]);
        assert_eq!(
            header_value(&record.report()),
            "answered=2 expected=3 late=n2"
        );
        assert_eq!(
            record.warning().as_deref(),
            Some("incomplete result: 1 of 3 nodes did not answer: n2")
        );
        assert!(record.is_missing("n2") && !record.is_missing("n1"));
    }

    #[test]
    fn a_long_list_of_names_is_cut() {
        let record = NodeRecord::default();
        let names: Vec<String> = (10..40).map(|index| format!("n{index}")).collect();
        record.miss(names.iter().map(String::as_str));
        let header = header_value(&record.report());
        let text = header.to_str().expect("text");
        assert!(
            text.starts_with("answered=0 expected=30 late=n10,n11,"),
            "{text}"
        );
        assert!(text.ends_with(",n29,+10"), "{text}");
    }
}
