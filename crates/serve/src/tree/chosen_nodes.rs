//! Sends requests to the nodes that a client reads, and checks the responses: a child speaks for
//! itself and, if it is a parent, for the nodes below it, and for no others.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pegel_store::{QueryCancellation, QueryError, TimeLimit};
use pegel_tree_protocol::{
    ChildAnswer, FanOut, SelectEnd, SelectReader, SelectRequest, SelectedSeries, TreeCallError,
    TreeRequest, select_part,
};
use prost::Message;

use super::node_index::{NodeChoice, NodeIndex};
use super::request_tree::TreeAccess;

pub(crate) const SELECT_TARGET: &str = "/tree/select";
/// Marks requests of the tree itself: those that a parent passes on for clients never have it.
pub(crate) const TREE_HEADER: &str = "pegel-tree";

/// The memory that the series of one response may take, in units of the limit on all responses: a
/// series of few bytes takes hundreds.
const DECODED_SIZE_MAX: usize = 3;
/// The part of the time that is left which the nodes below may use: the rest is for the response.
const NODES_TIME_PERCENT: u32 = 90;
/// How often a waiting thread checks whether the client is gone.
const CANCELLATION_CHECK: Duration = Duration::from_millis(50);

/// The limits of one request to all nodes.
#[derive(Debug, Clone)]
pub(crate) struct FanOutLimits {
    pub deadline: Instant,
    pub bytes_max: usize,
    pub cancellation: QueryCancellation,
}

impl FanOutLimits {
    /// Returns the limit on the time for what arrived.
    pub(crate) fn time(&self) -> TimeLimit {
        TimeLimit::until(self.deadline, self.cancellation.clone())
    }
}

/// The responses of children, and the nodes that were asked, sorted.
#[derive(Debug, Default)]
pub(super) struct NodeResponses {
    pub responses: FanOut,
    nodes: Vec<String>,
}

/// The nodes that one request reads.
#[derive(Debug)]
pub(crate) struct ChosenNodes {
    access: TreeAccess,
    pub index: NodeIndex,
    choice: NodeChoice,
}

impl ChosenNodes {
    pub(crate) fn new(access: TreeAccess, index: NodeIndex, choice: NodeChoice) -> ChosenNodes {
        let chosen = ChosenNodes {
            access,
            index,
            choice,
        };
        if chosen.includes_own() {
            chosen.access.record.expect([&*chosen.index.own]);
        }
        chosen
    }

    /// Returns the most bytes of the responses of all nodes to one request.
    pub(super) fn node_responses_bytes_max(&self) -> usize {
        self.access.context.settings.node_responses_bytes_max
    }

    /// Returns whether this agent itself is read.
    pub(crate) fn includes_own(&self) -> bool {
        self.choice.accepts(&self.index.own)
    }

    /// Returns the series of all chosen nodes below this agent that `accepts` accepts, with their
    /// hosts. Blocks.
    pub(crate) fn select(
        &self,
        mut request: SelectRequest,
        accepts: &dyn Fn(&str) -> bool,
        limits: &FanOutLimits,
    ) -> Result<Vec<SelectedSeries>, QueryError> {
        let bytes_max = limits.bytes_max.min(self.node_responses_bytes_max());
        request.bytes_max = bytes_max as u64;
        let answers = self.ask(accepts, limits, |nodes| {
            request.nodes = nodes.to_vec();
            (SELECT_TARGET.to_owned(), request.encode_to_vec().into())
        })?;
        let mut found = Vec::new();
        let mut limit = limits.time();
        let memory_max = DECODED_SIZE_MAX * self.node_responses_bytes_max();
        for answer in answers {
            match read_series(&answer.body, memory_max, &mut limit)? {
                Ok((series, end)) => {
                    let late = end.late.iter().map(String::as_str);
                    self.miss(&answer.child, late, accepts);
                    self.take_series(&answer, series, accepts, &mut limit, &mut found)?;
                }
                Err(problem) => {
                    tracing::warn!(child = answer.child, problem, "response of a node refused");
                    self.miss_child(&answer.child, accepts);
                }
            }
        }
        Ok(found)
    }

    /// Sends a request to the children that lead to chosen nodes and returns the responses with
    /// status 200. `make` gets the names of the nodes, or none if all nodes are chosen, and
    /// returns target and body. Blocks.
    pub(crate) fn ask(
        &self,
        accepts: &dyn Fn(&str) -> bool,
        limits: &FanOutLimits,
        make: impl FnOnce(&[String]) -> (String, Bytes),
    ) -> Result<Vec<ChildAnswer>, QueryError> {
        let responses = self.ask_unchecked(accepts, limits, make)?;
        self.check_answers(responses, limits.bytes_max)
    }

    /// Like [`ask`](Self::ask), but returns all responses. The nodes of those that failed are not
    /// recorded yet.
    pub(super) fn ask_unchecked(
        &self,
        accepts: &dyn Fn(&str) -> bool,
        limits: &FanOutLimits,
        make: impl FnOnce(&[String]) -> (String, Bytes),
    ) -> Result<NodeResponses, QueryError> {
        let record = &self.access.record;
        let wanted = |node: &str| self.choice.accepts(node) && accepts(node);
        let mut nodes: Vec<String> = Vec::new();
        for (node, child) in self.index.below().filter(|(node, _)| wanted(node)) {
            if record.is_missing(node) || !self.index.is_responsive(child) {
                record.miss([node]);
            } else {
                nodes.push(node.to_owned());
            }
        }
        if nodes.is_empty() {
            return Ok(NodeResponses::default());
        }
        record.expect(nodes.iter().map(String::as_str));
        let named: &[String] = match nodes.len() == self.index.len() {
            true => &[],
            false => &nodes,
        };
        let (target, body) = make(named);
        let responses = self.wait(named, target, body, limits)?;
        Ok(NodeResponses { responses, nodes })
    }

    fn wait(
        &self,
        nodes: &[String],
        target: String,
        body: Bytes,
        limits: &FanOutLimits,
    ) -> Result<FanOut, QueryError> {
        let deadline = self
            .access
            .deadline
            .map_or(limits.deadline, |deadline| deadline.min(limits.deadline));
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(QueryError::TooLong);
        }
        let time = left * NODES_TIME_PERCENT / 100;
        let request = TreeRequest {
            method: "POST".to_owned(),
            target,
            headers: vec![(TREE_HEADER.to_owned(), "1".to_owned())],
            body,
            deadline: time,
            is_owner: self.access.is_owner,
        };
        let bytes_max = limits.bytes_max.min(self.node_responses_bytes_max());
        let canceled = async {
            while !limits.cancellation.is_canceled() {
                tokio::time::sleep(CANCELLATION_CHECK).await;
            }
        };
        self.access.runtime.block_on(async {
            let responses = self.access.tree.fan_out(nodes, request, bytes_max);
            tokio::select! {
                biased;
                responses = responses => Ok(responses),
                () = canceled => Err(QueryError::Canceled),
                // The tree keeps the deadline by itself.
                () = tokio::time::sleep(time + (left - time) / 2) => Ok(FanOut::default()),
            }
        })
    }

    /// Records the nodes of children that failed.
    pub(super) fn check_answers(
        &self,
        NodeResponses { responses, nodes }: NodeResponses,
        bytes_max: usize,
    ) -> Result<Vec<ChildAnswer>, QueryError> {
        let record = &self.access.record;
        let bytes_max = bytes_max.min(self.node_responses_bytes_max());
        for (error, below) in &responses.failed {
            if let TreeCallError::TooLarge { .. } = error {
                return Err(QueryError::TooLarge(bytes_max));
            }
            tracing::debug!(%error, "no answer from a node");
            let is_asked = |node: &&String| nodes.binary_search(*node).is_ok();
            record.miss(below.iter().filter(is_asked).map(String::as_str));
        }
        let (answers, others): (Vec<_>, Vec<_>) =
            { responses.answers.into_iter() }.partition(|answer| answer.status == 200);
        if others.iter().any(|answer| answer.status == 413) {
            return Err(QueryError::TooLarge(bytes_max));
        }
        let children = answers.iter().map(|answer| answer.child.as_str());
        let children: HashSet<&str> = children.collect();
        let is_missing = |node: &&str| {
            let child = self.index.child_of(node);
            child.is_none_or(|child| !children.contains(child))
        };
        record.miss(nodes.iter().map(String::as_str).filter(is_missing));
        for answer in &others {
            let text = String::from_utf8_lossy(&answer.body[..answer.body.len().min(200)]);
            tracing::debug!(child = answer.child, status = answer.status, %text, "a node failed");
        }
        Ok(answers)
    }

    /// Records nodes that a child reports as missing; only those below it count.
    pub(super) fn miss<'a>(
        &self,
        child: &str,
        nodes: impl Iterator<Item = &'a str>,
        accepts: &dyn Fn(&str) -> bool,
    ) {
        let is_meant = |node: &&str| {
            self.index.is_at_or_below(node, child) && self.choice.accepts(node) && accepts(node)
        };
        self.access.record.miss(nodes.filter(is_meant));
    }

    /// Records that no node at or below a child answered.
    pub(super) fn miss_child(&self, child: &str, accepts: &dyn Fn(&str) -> bool) {
        self.miss(child, self.index.below().map(|(node, _)| node), accepts);
    }

    /// Returns the node of an item in the response of a child. `None` if the child does not speak
    /// for this node, or the node was not asked; that is counted.
    pub(super) fn checked_host(
        &self,
        answer: &ChildAnswer,
        host: String,
        accepts: &dyn Fn(&str) -> bool,
    ) -> Option<String> {
        let host = match answer.is_parent {
            false => answer.child.clone(),
            true => host,
        };
        let is_valid = self.index.is_at_or_below(&host, &answer.child)
            && self.choice.accepts(&host)
            && accepts(&host);
        if !is_valid {
            let dropped = &self.access.context.foreign_hosts;
            if dropped.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!(
                    child = answer.child,
                    host,
                    "a child sent series of another node"
                );
            }
        }
        is_valid.then_some(host)
    }

    /// Adds the series of nodes that the child speaks for.
    fn take_series(
        &self,
        answer: &ChildAnswer,
        series: Vec<SelectedSeries>,
        accepts: &dyn Fn(&str) -> bool,
        limit: &mut TimeLimit,
        found: &mut Vec<SelectedSeries>,
    ) -> Result<(), QueryError> {
        found.reserve(series.len());
        // The series of one node follow each other, and a check may match an expression.
        let mut last: Option<(String, Option<String>)> = None;
        for mut series in series {
            limit.spend(TimeLimit::STEP)?;
            let host = std::mem::take(&mut series.host);
            let checked = match &last {
                Some((known, Some(checked))) if *known == host => Some(checked.clone()),
                _ => {
                    let checked = self.checked_host(answer, host.clone(), accepts);
                    last = Some((host, checked.clone()));
                    checked
                }
            };
            if let Some(host) = checked {
                series.host = host;
                found.push(series);
            }
        }
        Ok(())
    }
}

/// The series of a response and its end, or what is wrong with it.
type ReadResponse = Result<(Vec<SelectedSeries>, SelectEnd), String>;

/// Reads the complete response of a child. Fails after the deadline.
fn read_series(
    body: &[u8],
    memory_max: usize,
    limit: &mut TimeLimit,
) -> Result<ReadResponse, QueryError> {
    let mut found = Vec::new();
    let mut memory = 0;
    for part in SelectReader::new(body) {
        let part = match part {
            Ok(part) => part,
            Err(error) => return Ok(Err(error.to_string())),
        };
        match part.kind {
            Some(select_part::Kind::Series(series)) => {
                let bytes = series.encoded_len();
                limit.spend(TimeLimit::STEP + bytes)?;
                memory += size_of::<SelectedSeries>() + bytes;
                if memory > memory_max {
                    return Ok(Err("its series take too much memory".to_owned()));
                }
                found.push(series);
            }
            Some(select_part::Kind::End(end)) => return Ok(Ok((found, end))),
            None => {}
        }
    }
    Ok(Err("the response is truncated".to_owned()))
}

#[cfg(test)]
mod tests {
    use pegel_tree_protocol::SelectWriter;

    use super::*;

    #[test]
    fn a_response_of_many_series_is_not_read_after_the_deadline() {
        let mut writer = SelectWriter::new(64 << 20);
        let series = SelectedSeries {
            text: "m".to_owned(),
            ..SelectedSeries::default()
        };
        for _ in 0..100_000 {
            writer.series(&series).expect("it fits");
        }
        let body = writer.finish(SelectEnd::default());
        let limits = |deadline| FanOutLimits {
            deadline,
            bytes_max: 64 << 20,
            cancellation: QueryCancellation::default(),
        };
        let late = limits(Instant::now() - Duration::from_millis(1));
        let read = read_series(&body, usize::MAX, &mut late.time());
        assert!(matches!(read, Err(QueryError::TooLong)));
        let in_time = limits(Instant::now() + Duration::from_secs(60));
        let read = read_series(&body, usize::MAX, &mut in_time.time());
        let (series, _) = read.expect("in time").expect("complete");
        assert_eq!(series.len(), 100_000);
    }
}
