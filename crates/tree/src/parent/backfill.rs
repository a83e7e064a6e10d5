//! Computes reduced values of the past again, from the stores of the nodes: after a child was away,
//! after this agent was down, and after values came too late. The result replaces what is stored,
//! so that it can be repeated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pegel_metric::{Input, MetricKind, Millis};
use pegel_reduction::{Partial, ReducedSeries};
use pegel_tree_protocol::{
    ChildAnswer, FanOut, NodeTree, SelectEnd, SelectReader, SelectRequest, SelectTooLarge,
    SelectWriter, SelectedSeries, TreeCallError, TreeRequest, decode_partials, decode_times,
    encode_partials, encode_times, select_part, select_request::Content,
};
use prost::Message;
use tokio::time::sleep;

use super::Parent;
use super::child_stream::decode_partial;
use super::reduce::ReducedPoints;
use crate::context::TreeContext;
use crate::tick_reader::{
    encode_partial, metric_kind, millis, requested_ticks, select_partials, wire_kind,
};

/// The most ticks of one request.
const CHUNK_TICKS: usize = 60;
/// The most cells (series × ticks × children) of one request.
const CHUNK_CELLS: usize = 2_000_000;
/// The most bytes of all responses to one request.
const RESPONSES_BYTES_MAX: usize = 128 << 20;
/// The most series of one response.
const SERIES_MAX: usize = 200_000;
/// The time for one request.
const REQUEST_TIME: Duration = Duration::from_secs(20);
/// The pause between two looks at the dirty ticks, and before a failed one is tried again.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const RETRY_AFTER: Millis = 5000;
/// Points that are pushed at once.
const PUSH_POINTS: usize = 20_000;

pub(crate) const SELECT_TARGET: &str = "/tree/select";

/// The partial results of a node and all nodes below it.
#[derive(Debug)]
pub(crate) struct SubtreePartials {
    ticks: Vec<Millis>,
    series: BTreeMap<String, SubtreeSeries>,
    pub(crate) end: SelectEnd,
}

#[derive(Debug)]
struct SubtreeSeries {
    kind: MetricKind,
    unit: String,
    help: String,
    /// One for each tick.
    cells: Vec<Option<Partial>>,
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
        late = parent.registry.lock().unreachable_since(request.start_ms);
    }
    for (error, nodes) in below.failed {
        if !matches!(error, TreeCallError::NotConnected(_)) {
            late.extend(nodes);
        }
    }
    let answers = below.answers;
    let merged = tokio::task::spawn_blocking(move || merge(ticks, local, &answers, late));
    merged.await.map_err(|error| error.to_string())?
}

fn merge(
    ticks: Vec<Millis>,
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
    let mut answered = 1;
    for answer in answers {
        match all.add_answer(answer) {
            Ok(end) => {
                answered += end.answered.max(1);
                late.extend(end.late);
            }
            Err(error) => {
                tracing::debug!(child = answer.child, error, "partial results are malformed");
                late.push(answer.child.clone());
            }
        }
    }
    late.sort();
    late.dedup();
    late.truncate(pegel_tree_protocol::limits::NODES_MAX);
    all.end = SelectEnd {
        answered,
        expected: answered + late.len() as u32,
        late,
    };
    Ok(all)
}

/// Computes dirty ticks again until the task is dropped.
pub(crate) async fn run_backfill(parent: Arc<Parent>) {
    let settle = (3 * parent.interval).clamp(1000, 3000);
    loop {
        sleep(LOOK_EVERY).await;
        let now = parent.context.now();
        let (lag, children) = {
            let registry = parent.registry.lock();
            let lag = (super::CLOSE_INTERVALS + registry.levels() as i64) * parent.interval;
            (lag, registry.connected().count())
        };
        let series = parent.reduction.lock().table.len();
        let count = CHUNK_CELLS / (series.max(1) * (children + 1));
        let count = count.clamp(1, CHUNK_TICKS);
        let ticks = parent.dirty.lock().take(
            now - parent.backfill_time(),
            now - lag,
            now - settle,
            count,
            parent.interval,
        );
        let (Some(&first), Some(&last)) = (ticks.first(), ticks.last()) else {
            continue;
        };
        // Without a node whose values were included, the result would have less than before.
        let is_complete = parent.registry.lock().unreachable_since(first).is_empty();
        let done = is_complete && compute_again(&parent, first, last, &ticks).await;
        if done {
            parent
                .context
                .counts
                .backfilled_ticks
                .add(ticks.len() as u64);
            parent.report_changed(ticks);
        } else {
            let mut dirty = parent.dirty.lock();
            for tick in ticks {
                dirty.mark(tick, tick, parent.interval, now + RETRY_AFTER);
            }
        }
    }
}

/// Computes and stores the ticks. Returns false if nodes are missing.
async fn compute_again(
    parent: &Arc<Parent>,
    first: Millis,
    last: Millis,
    ticks: &[Millis],
) -> bool {
    let request = SelectRequest {
        content: Content::Partials as i32,
        start_ms: first,
        end_ms: last,
        step_ms: parent.interval,
        bytes_max: RESPONSES_BYTES_MAX as u64,
        ..SelectRequest::default()
    };
    let computed = subtree_partials(&parent.context, Some(parent), request, REQUEST_TIME).await;
    let all = match computed {
        Ok(all) => all,
        Err(error) => {
            tracing::debug!(error, "cannot compute reduced values again");
            return false;
        }
    };
    if !all.end.late.is_empty() {
        tracing::debug!(late = ?all.end.late, "nodes are missing; trying again later");
        return false;
    }
    let (store, ticks) = (parent.context.store.clone(), ticks.to_vec());
    let pushed = tokio::task::spawn_blocking(move || {
        let mut maker = ReducedPoints::default();
        let mut points = Vec::new();
        for (text, series) in &all.series {
            let reduced = ReducedSeries {
                text: text.as_str().into(),
                kind: series.kind,
                unit: series.unit.as_str().into(),
                help: series.help.as_str().into(),
            };
            for (time, cell) in all.ticks.iter().zip(&series.cells) {
                if let Some(partial) = cell
                    && ticks.binary_search(time).is_ok()
                {
                    maker.append(&reduced, partial, *time, &mut points);
                }
            }
            if points.len() >= PUSH_POINTS {
                store.push(Input::Tree, std::mem::take(&mut points))?;
            }
        }
        store.push(Input::Tree, points).map(drop)
    });
    matches!(pushed.await, Ok(Ok(())))
}

/// Returns the newest time of reduced values in the store, not before `since`.
pub(crate) fn newest_reduced(context: &TreeContext, since: Millis, now: Millis) -> Option<Millis> {
    use pegel_metric::Selector;
    use pegel_store::{RangeQuery, SeriesChoice};
    /// All reduced series have the same times.
    const SERIES_READ: usize = 20;
    let choice = |series: &mut Vec<Arc<pegel_metric::Series>>| {
        series.retain(|series| series.family().input == Input::Tree);
        series.truncate(SERIES_READ);
    };
    let query = RangeQuery {
        choice: Some(SeriesChoice(Arc::new(choice))),
        ..RangeQuery::new(Selector::all(), since, now, None)
    };
    let mut newest = None;
    let read = context.store.query_columns(&query, &mut |_, column| {
        newest = newest.max(column.times.last().copied());
    });
    if let Err(error) = read {
        tracing::warn!(%error, "cannot read the newest reduced values");
    }
    newest
}

impl Parent {
    /// Finds out since when reduced values are missing. Reads the store.
    pub(crate) fn find_restart_gap(&self) {
        let now = self.context.now();
        let since = now - millis(self.context.settings.backfill.duration());
        if let Some(newest) = newest_reduced(&self.context, since, now) {
            self.set_reduced_until(newest);
            self.mark_dirty(newest, now);
        }
    }
}
