//! The partial results of a whole subtree for past ticks, from the stores of its nodes: the
//! response to a parent, and the source of the back-fill.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pegel_metric::{MetricKind, Millis};
use pegel_reduction::Partial;
use pegel_tree_protocol::{
    ChildAnswer, FanOut, NodeTree, SelectEnd, SelectReader, SelectRequest, SelectTooLarge,
    SelectWriter, SelectedSeries, TreeCallError, TreeRequest, decode_partials, decode_times,
    encode_partials, encode_times, select_part,
};
use prost::Message;

use super::Parent;
use super::backfill::RESPONSES_BYTES_MAX;
use super::child_stream::decode_partial;
use crate::context::TreeContext;
use crate::tick_reader::{
    encode_partial, metric_kind, requested_ticks, select_partials, wire_kind,
};

/// The most series of one response.
const SERIES_MAX: usize = 200_000;

pub(crate) const SELECT_TARGET: &str = "/tree/select";

/// The partial results of a node and all nodes below it.
#[derive(Debug)]
pub(crate) struct SubtreePartials {
    pub(super) ticks: Vec<Millis>,
    pub(super) series: BTreeMap<String, SubtreeSeries>,
    pub(crate) end: SelectEnd,
}

#[derive(Debug)]
pub(super) struct SubtreeSeries {
    pub(super) kind: MetricKind,
    pub(super) unit: String,
    pub(super) help: String,
    /// One for each tick.
    pub(super) cells: Vec<Option<Partial>>,
}

impl SubtreePartials {
    fn add(&mut self, selected: SelectedSeries) -> Result<(), String> {
        let known = self.series.contains_key(&selected.text);
        if !known && self.series.len() >= SERIES_MAX {
            return Ok(());
        }
        let count = self.ticks.len();
        let times = decode_times(&selected.times, count).map_err(|error| error.to_string())?;
        let cells = decode_partials(&selected.partials, count);
        let cells = cells.map_err(|error| error.to_string())?;
        let series = { self.series.entry(selected.text) }.or_insert_with(|| SubtreeSeries {
            kind: metric_kind(selected.kind.cast_signed()),
            unit: selected.unit,
            help: selected.help,
            cells: vec![None; count],
        });
        for (time, cell) in times.iter().zip(&cells) {
            let Ok(index) = self.ticks.binary_search(time) else {
                continue;
            };
            let partial = decode_partial(cell)?;
            match &mut series.cells[index] {
                Some(sum) => sum.merge(&partial),
                empty => *empty = Some(partial),
            }
        }
        Ok(())
    }

    /// Adds the response of a child. After an error the child counts as missing.
    fn add_answer(&mut self, answer: &ChildAnswer) -> Result<SelectEnd, String> {
        if answer.status != 200 {
            return Err(format!("status {}", answer.status));
        }
        let parts = SelectReader::new(&answer.body).collect::<Result<Vec<_>, _>>();
        let parts = parts.map_err(|error| error.to_string())?;
        let mut end = SelectEnd::default();
        for part in parts {
            match part.kind {
                Some(select_part::Kind::Series(series)) => self.add(series)?,
                Some(select_part::Kind::End(found)) => end = found,
                None => {}
            }
        }
        Ok(end)
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
        let bytes_max = match usize::try_from(request.bytes_max) {
            Ok(0) | Err(_) => RESPONSES_BYTES_MAX,
            Ok(bytes) => bytes.min(RESPONSES_BYTES_MAX),
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
    let answers = below.answers;
    let own = context.node.clone();
    let merged = tokio::task::spawn_blocking(move || merge(ticks, own, local, &answers, late));
    merged.await.map_err(|error| error.to_string())?
}

/// Adds up the partial results of the agent itself and those of its children. A node that two
/// children include moved while they were asked: the result would count it twice.
fn merge(
    ticks: Vec<Millis>,
    own: String,
    local: Vec<SelectedSeries>,
    answers: &[ChildAnswer],
    mut late: Vec<String>,
) -> Result<SubtreePartials, String> {
    let mut all = SubtreePartials {
        ticks,
        series: BTreeMap::new(),
        end: SelectEnd::default(),
    };
    for series in local {
        all.add(series)?;
    }
    let mut nodes = BTreeSet::from([own]);
    for answer in answers {
        match all.add_answer(answer) {
            Ok(mut end) => {
                if !end.nodes.contains(&answer.child) {
                    end.nodes.push(answer.child.clone());
                }
                for node in end.nodes {
                    if let Some(twice) = nodes.replace(node) {
                        return Err(format!("node {twice} moved during the request"));
                    }
                }
                late.extend(end.late);
            }
            Err(error) => {
                tracing::debug!(child = answer.child, error, "partial results are malformed");
                late.push(answer.child.clone());
            }
        }
    }
    // A node that moved is away at its former parent.
    late.retain(|node| !nodes.contains(node));
    late.sort();
    late.dedup();
    late.truncate(pegel_tree_protocol::limits::NODES_MAX);
    let answered = nodes.len() as u32;
    all.end = SelectEnd {
        answered,
        expected: answered + late.len() as u32,
        late,
        nodes: nodes.into_iter().collect(),
    };
    Ok(all)
}

#[cfg(test)]
mod tests;
