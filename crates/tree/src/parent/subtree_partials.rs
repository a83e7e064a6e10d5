//! The partial results of a whole subtree for past ticks, from the stores of its nodes: the
//! response to a parent, and the source of the back-fill.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pegel_metric::{MetricKind, Millis, escape_unprintable};
use pegel_reduction::Partial;
use pegel_tree_protocol::limits::NODES_MAX;
use pegel_tree_protocol::{
    ChildAnswer, FanOut, NodeTree, SelectEnd, SelectReader, SelectRequest, SelectTooLarge,
    SelectWriter, SelectedSeries, TreeCallError, TreeRequest, decode_partials, decode_times,
    encode_partials, encode_times, select_part,
};
use prost::Message;

use super::Parent;
use super::child_stream::decode_partial;
use crate::context::TreeContext;
use crate::tick_reader::{
    encode_partial, metric_kind, requested_ticks, select_partials, wire_kind,
};

/// The most series of one response, and the most cells (series × ticks): about 100 bytes each.
const SERIES_MAX: usize = 200_000;
const CELLS_MAX: usize = 4_000_000;

pub(crate) const SELECT_TARGET: &str = "/tree/select";

/// The partial results of a node and all nodes below it.
#[derive(Debug)]
pub(crate) struct SubtreePartials {
    pub(super) ticks: Vec<Millis>,
    pub(super) series: BTreeMap<String, SubtreeSeries>,
    pub(crate) end: SelectEnd,
    /// Nodes that did not answer, and the children that say so.
    late_below: Vec<(String, String)>,
    /// Children whose answers were not used, and why.
    refused: Vec<(String, String)>,
    /// Series that exceed the limit.
    left_out: u64,
}

#[derive(Debug)]
pub(super) struct SubtreeSeries {
    pub(super) kind: MetricKind,
    pub(super) unit: String,
    pub(super) help: String,
    /// One for each tick.
    pub(super) cells: Vec<Option<Partial>>,
}

/// A series of an answer, with the positions of its ticks.
struct AnsweredSeries {
    selected: SelectedSeries,
    cells: Vec<(usize, Partial)>,
}

/// The memory that one answer may take when it is decoded: sketches of few bytes may have many
/// buckets, and a cell that repeats the one before it has a single byte.
const ANSWER_MEMORY_MAX: usize = 256 << 20;

impl SubtreePartials {
    /// Decodes a series; takes its memory from `memory`.
    fn decode(
        &self,
        mut selected: SelectedSeries,
        memory: &mut usize,
    ) -> Result<AnsweredSeries, String> {
        let count = self.ticks.len();
        let times = decode_times(&selected.times, count).map_err(|error| error.to_string())?;
        let columns = std::mem::take(&mut selected.partials);
        let columns = decode_partials(&columns, count).map_err(|error| error.to_string())?;
        let mut take = |bytes: usize| {
            *memory = memory
                .checked_sub(bytes)
                .ok_or("it takes too much memory")?;
            Ok::<(), String>(())
        };
        let texts = selected.text.len() + selected.help.len() + selected.unit.len();
        take(size_of::<AnsweredSeries>() + texts)?;
        let mut cells = Vec::new();
        for (time, cell) in times.iter().zip(&columns) {
            let Ok(index) = self.ticks.binary_search(time) else {
                continue;
            };
            let partial = decode_partial(cell)?;
            if partial.count > NODES_MAX as u64 {
                return Err(format!("a partial result of {} nodes", partial.count));
            }
            take(size_of::<(usize, Partial)>() + partial.sketch.heap_bytes())?;
            cells.push((index, partial));
        }
        Ok(AnsweredSeries { selected, cells })
    }

    /// Adds a series. A new one is left out if that would exceed the limit of cells.
    fn add(&mut self, answered: AnsweredSeries, series_max: usize) {
        let AnsweredSeries { selected, cells } = answered;
        let count = self.ticks.len();
        if !self.series.contains_key(&selected.text) && self.series.len() >= series_max {
            self.left_out += 1;
            return;
        }
        let series = { self.series.entry(selected.text) }.or_insert_with(|| SubtreeSeries {
            kind: metric_kind(selected.kind.cast_signed()),
            unit: escape_unprintable(&selected.unit).into_owned(),
            help: escape_unprintable(&selected.help).into_owned(),
            cells: vec![None; count],
        });
        for (index, partial) in cells {
            match &mut series.cells[index] {
                Some(sum) => sum.merge(&partial),
                empty => *empty = Some(partial),
            }
        }
    }

    /// Decodes the answer of a child, without adding it. It may take this much memory.
    fn read_answer(
        &self,
        answer: &ChildAnswer,
        mut memory: usize,
    ) -> Result<(Vec<AnsweredSeries>, SelectEnd), String> {
        let mut series = Vec::new();
        let mut end = SelectEnd::default();
        for part in SelectReader::new(&answer.body) {
            match part.map_err(|error| error.to_string())?.kind {
                Some(select_part::Kind::Series(found)) => {
                    series.push(self.decode(found, &mut memory)?);
                }
                Some(select_part::Kind::End(found)) => end = found,
                None => {}
            }
        }
        if !end.nodes.contains(&answer.child) {
            end.nodes.push(answer.child.clone());
        }
        Ok((series, end))
    }

    /// Completes the end with the nodes that did not answer.
    fn complete(mut self, mut late: Vec<String>) -> SubtreePartials {
        // A node that moved is away at its former parent.
        late.retain(|node| self.end.nodes.binary_search(node).is_err());
        late.sort();
        late.dedup();
        late.truncate(NODES_MAX);
        self.end.answered = self.end.nodes.len() as u32;
        self.end.expected = self.end.answered + late.len() as u32;
        self.end.late = late;
        self
    }

    /// Encodes the response to a request for them.
    pub(crate) fn encode(&self, bytes_max: usize) -> Result<Bytes, SelectTooLarge> {
        let mut writer = SelectWriter::new(bytes_max);
        for (text, series) in &self.series {
            let cells = self.ticks.iter().zip(&series.cells);
            let cells = cells.filter_map(|(time, cell)| Some((*time, cell.as_ref()?)));
            let (times, partials): (Vec<_>, Vec<_>) = cells
                .map(|(time, cell)| (time, encode_partial(cell)))
                .unzip();
            writer.series(&SelectedSeries {
                text: text.clone(),
                kind: wire_kind(series.kind) as u32,
                unit: series.unit.clone(),
                help: series.help.clone(),
                times: encode_times(&times).into(),
                partials: encode_partials(&partials).into(),
                ..SelectedSeries::default()
            })?;
        }
        Ok(writer.finish(self.end.clone()))
    }
}

/// Computes the partial results of this agent and all nodes below it.
pub(crate) async fn subtree_partials(
    context: &Arc<TreeContext>,
    parent: Option<&Parent>,
    request: SelectRequest,
    time: Duration,
) -> Result<SubtreePartials, String> {
    let ticks = requested_ticks(&request).map_err(|error| error.to_string())?;
    let local = {
        let (context, request) = (context.clone(), request.clone());
        tokio::task::spawn_blocking(move || {
            select_partials(&context.store, context.sample_interval, &request, time)
        })
    };
    let below = async {
        let Some(parent) = parent else {
            return FanOut::default();
        };
        let responses_max = context.settings.responses_bytes_max;
        let bytes_max = match usize::try_from(request.bytes_max) {
            Ok(0) | Err(_) => responses_max,
            Ok(bytes) => bytes.min(responses_max),
        };
        let request = TreeRequest {
            method: "POST".to_owned(),
            target: SELECT_TARGET.to_owned(),
            headers: Vec::new(),
            body: request.encode_to_vec().into(),
            deadline: time,
            is_owner: false,
        };
        parent.fan_out(&[], request, bytes_max).await
    };
    let (local, below) = tokio::join!(local, below);
    let local = local.map_err(|error| error.to_string())?;
    let local = local.map_err(|error| error.to_string())?;
    let mut late = Vec::new();
    if let Some(parent) = parent {
        // Children that were lost long before the range are not expected to answer.
        late = parent.registry.lock().away_since(request.start_ms);
    }
    for (error, nodes) in below.failed {
        if !matches!(error, TreeCallError::NotConnected(_)) {
            late.extend(nodes);
        }
    }
    let (answers, others): (Vec<_>, Vec<_>) =
        { below.answers.into_iter() }.partition(|answer| answer.status == 200);
    late.extend(others.into_iter().map(|answer| answer.child));
    let mut input = MergeInput {
        ticks,
        own: context.node.clone(),
        local,
        answers,
        answer_bytes_max: context.settings.scaled(ANSWER_MEMORY_MAX),
        cells_max: context.settings.scaled(CELLS_MAX),
    };
    loop {
        let merging = tokio::task::spawn_blocking(move || (merge(&input), input));
        let (merged, returned) = merging.await.map_err(|error| error.to_string())?;
        input = returned;
        match (merged, parent) {
            (Ok(all), None) => return Ok(all.complete(late)),
            (Ok(mut all), Some(parent)) => {
                late.extend(parent.check_answers(&mut all));
                return Ok(all.complete(late));
            }
            (Err(error), Some(parent)) => {
                let claimant = parent.left_out(&error).ok_or(error.to_string())?;
                input.answers.retain(|answer| answer.child != claimant);
            }
            (Err(error), None) => return Err(error.to_string()),
        }
    }
}

impl Parent {
    /// Returns the nodes that are missing in merged answers. Names below a child count only if
    /// that child leads to them.
    fn check_answers(&self, all: &mut SubtreePartials) -> Vec<String> {
        let (context, now) = (&self.context, self.context.now());
        context.counts.refused_series.add(all.left_out);
        let mut late = Vec::new();
        for (child, error) in std::mem::take(&mut all.refused) {
            context.problem("", &child, "malformed", &error);
            if !self.disputes.lock().add(&child, now) {
                late.push(child);
            }
        }
        let registry = self.registry.lock();
        for (node, child) in std::mem::take(&mut all.late_below) {
            if { registry.route(&node) }.is_some_and(|(route, _)| *route == *child) {
                late.push(node);
            }
        }
        late
    }

    /// Returns the child whose answer is left out because it includes a node of another child for
    /// a minute. `None`: the node may be moving.
    fn left_out(&self, error: &MergeError) -> Option<String> {
        let MergeError::Twice {
            node,
            first,
            second,
        } = error
        else {
            return None;
        };
        let registry = self.registry.lock();
        let route = registry.route(node).map(|(route, _)| route.to_owned());
        drop(registry);
        let claimant = match route.as_ref() == Some(second) {
            true => first,
            false => second,
        };
        if *claimant == self.context.node || !self.disputes.lock().add(claimant, self.context.now())
        {
            return None;
        }
        let message = error.to_string();
        self.context.problem("", claimant, "duplicate", &message);
        Some(claimant.clone())
    }
}

/// What is merged.
struct MergeInput {
    ticks: Vec<Millis>,
    own: String,
    local: Vec<SelectedSeries>,
    answers: Vec<ChildAnswer>,
    /// The memory that one answer may take when it is decoded.
    answer_bytes_max: usize,
    cells_max: usize,
}

/// Why partial results cannot be merged.
#[derive(Debug, thiserror::Error)]
enum MergeError {
    #[error("{0}")]
    Own(String),
    /// The node moved while its parents were asked, or one of them claims a node of the other: the
    /// result would count it twice.
    #[error("node {node} is part of the answers of {first} and {second}")]
    Twice {
        node: String,
        first: String,
        second: String,
    },
}

/// Adds up the partial results of the agent itself and those of its children. A malformed answer
/// is left out as a whole.
fn merge(input: &MergeInput) -> Result<SubtreePartials, MergeError> {
    let MergeInput { ticks, own, .. } = input;
    let mut all = SubtreePartials {
        ticks: ticks.clone(),
        series: BTreeMap::new(),
        end: SelectEnd::default(),
        late_below: Vec::new(),
        refused: Vec::new(),
        left_out: 0,
    };
    let series_max = SERIES_MAX.min(input.cells_max / ticks.len().max(1));
    let mut memory = usize::MAX;
    for series in &input.local {
        let series = all.decode(series.clone(), &mut memory);
        all.add(series.map_err(MergeError::Own)?, series_max);
    }
    let mut nodes: BTreeMap<String, &str> = BTreeMap::from([(own.clone(), own.as_str())]);
    for answer in &input.answers {
        let (series, end) = match all.read_answer(answer, input.answer_bytes_max) {
            Ok(read) => read,
            Err(error) => {
                all.refused.push((answer.child.clone(), error));
                continue;
            }
        };
        for node in end.nodes {
            if let Some(first) = nodes.insert(node.clone(), &answer.child) {
                let (first, second) = (first.to_owned(), answer.child.clone());
                return Err(MergeError::Twice {
                    node,
                    first,
                    second,
                });
            }
        }
        let late = end.late.into_iter();
        all.late_below
            .extend(late.map(|node| (node, answer.child.clone())));
        // One child takes at most half of the room that is left for series.
        let known = all.series.len();
        let series_max = known + series_max.saturating_sub(known) / 2;
        for series in series {
            all.add(series, series_max);
        }
    }
    all.end.nodes = nodes.into_keys().collect();
    Ok(all)
}

#[cfg(test)]
mod tests;
