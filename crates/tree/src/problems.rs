//! Problems of connections, for `/api/v1/tree`: bounded, whatever peers do.

use std::collections::BTreeMap;

use pegel_metric::Millis;
use serde_json::{Value, json};

use crate::messages::shortened;

/// The most problems that are kept. The oldest give way.
const PROBLEMS_MAX: usize = 100;
/// Longer messages are truncated.
const MESSAGE_BYTES_MAX: usize = 300;

/// The identity of a problem: repetitions are counted.
type ProblemKey = (String, String, &'static str);

#[derive(Debug)]
struct TreeProblem {
    message: String,
    count: u64,
    last: Millis,
}

#[derive(Debug, Default)]
pub(crate) struct Problems {
    entries: BTreeMap<ProblemKey, TreeProblem>,
    /// All problems since the start, by reason.
    by_reason: BTreeMap<&'static str, u64>,
}

impl Problems {
    /// Counts a problem. `node` is empty if the peer did not name itself.
    pub(crate) fn add(
        &mut self,
        peer: &str,
        node: &str,
        reason: &'static str,
        message: &str,
        now: Millis,
    ) {
        *self.by_reason.entry(reason).or_default() += 1;
        let key = (peer.to_owned(), node.to_owned(), reason);
        if !self.entries.contains_key(&key) && self.entries.len() >= PROBLEMS_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, problem)| problem.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&oldest);
            }
        }
        let entry = self.entries.entry(key).or_insert(TreeProblem {
            message: String::new(),
            count: 0,
            last: now,
        });
        shortened(message, MESSAGE_BYTES_MAX).clone_into(&mut entry.message);
        entry.count += 1;
        entry.last = now;
    }

    /// Returns the newest problem of each node since `since`: the node, the reason and the message.
    pub(crate) fn refused_nodes(&self, since: Millis) -> Vec<(&str, &'static str, &str)> {
        let named = self
            .entries
            .iter()
            .filter(|((_, node, _), problem)| !node.is_empty() && problem.last >= since);
        let named = named
            .map(|((_, node, reason), problem)| (node.as_str(), *reason, problem.message.as_str()));
        named.collect()
    }

    pub(crate) fn by_reason(&self) -> Vec<(&'static str, u64)> {
        self.by_reason.iter().map(|(a, b)| (*a, *b)).collect()
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(_, problem)| std::cmp::Reverse(problem.last));
        let entries = entries.into_iter().map(|((peer, node, reason), problem)| {
            json!({
                "peer": peer,
                "node": node,
                "reason": reason,
                "message": problem.message,
                "count": problem.count,
                "last": problem.last as f64 / 1000.0,
            })
        });
        entries.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_counted_and_the_list_is_bounded() {
        let mut problems = Problems::default();
        for time in 0..3 {
            problems.add("10.0.0.7", "n3", "duplicate", "another agent", time);
        }
        let list = problems.to_json();
        assert_eq!(
            (&list[0]["count"], &list[0]["node"]),
            (&json!(3), &json!("n3"))
        );
        for index in 0..1000 {
            problems.add(
                &format!("peer{index}"),
                "",
                "token",
                &"ä".repeat(1000),
                index,
            );
        }
        let list = problems.to_json();
        assert_eq!(list.as_array().map(Vec::len), Some(PROBLEMS_MAX));
        assert_eq!(list[0]["peer"], json!("peer999"));
        assert_eq!(problems.by_reason(), [("duplicate", 3), ("token", 1000)]);
    }
}
