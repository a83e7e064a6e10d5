//! Computes reduced values of the past again, from the stores of the nodes: after a child was away,
//! after this agent was down, and after values came too late. The result replaces what is stored,
//! so that it can be repeated.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pegel_metric::{Input, Millis};
use pegel_reduction::ReducedSeries;
use pegel_store::PushError;
use pegel_tree_protocol::{SelectRequest, select_request::Content};
use tokio::time::sleep;

use super::Parent;
use super::dirty_ticks::DueTicks;
use super::reduce::ReducedPoints;
use super::subtree_partials::{SubtreePartials, subtree_partials};

/// The most ticks of one request.
const CHUNK_TICKS: usize = 60;
/// The most cells (series × ticks × children) of one request.
const CHUNK_CELLS: usize = 2_000_000;
/// The time for one request.
const REQUEST_TIME: Duration = Duration::from_secs(20);
/// The pause between two looks at the dirty ticks, and before a failed one is tried again.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const RETRY_AFTER: Millis = 5000;
/// The pause between two requests for few ticks: all nodes read their stores for each of them.
const FEW_TICKS_EVERY: Millis = 5000;
/// A tick that connected nodes fail to answer is stored without them after this time.
const INCOMPLETE_AFTER: Millis = 10 * 60 * 1000;
/// How often the state is written to its file, if it changed.
const SAVE_EVERY: Millis = 1000;
/// Points that are pushed at once.
const PUSH_POINTS: usize = 20_000;

/// Computes dirty ticks again until the task is dropped, and keeps the list on disk.
pub(crate) async fn run_backfill(parent: Arc<Parent>) {
    let (mut few_ticks_at, mut saved_at) = (Millis::MIN, Millis::MIN);
    loop {
        sleep(LOOK_EVERY).await;
        let now = parent.context.now();
        if !(0..SAVE_EVERY).contains(&now.saturating_sub(saved_at)) {
            saved_at = now;
            let parent = parent.clone();
            // A slow disk delays the back-fill, and nothing else.
            let _ = tokio::task::spawn_blocking(move || parent.save_backfill()).await;
        }
        let count = parent.chunk_ticks();
        let ticks = parent.due_ticks(now, count);
        let is_paused = (0..FEW_TICKS_EVERY).contains(&now.saturating_sub(few_ticks_at));
        if ticks.is_empty() || (ticks.len() < count && is_paused) {
            continue;
        }
        if ticks.len() < count {
            few_ticks_at = now;
        }
        if compute_again(&parent, &ticks).await {
            parent.dirty.lock().done(&ticks, now);
            let count = ticks.len() as u64;
            parent.context.counts.backfilled_ticks.add(count);
            parent.report_changed(ticks);
        } else {
            let retry = parent.context.now() + RETRY_AFTER;
            parent.dirty.lock().postpone(&ticks, retry);
        }
    }
}

/// Computes and stores the ticks. Returns false if nodes are missing.
async fn compute_again(parent: &Arc<Parent>, ticks: &[Millis]) -> bool {
    let (Some(&first), Some(&last)) = (ticks.first(), ticks.last()) else {
        return true;
    };
    let request = SelectRequest {
        content: Content::Partials as i32,
        start_ms: first,
        end_ms: last,
        step_ms: parent.interval,
        bytes_max: parent.context.settings.responses_bytes_max as u64,
        ..SelectRequest::default()
    };
    let computed = subtree_partials(&parent.context, Some(parent), request, REQUEST_TIME).await;
    let mut all = match computed {
        Ok(all) => all,
        Err(error) => {
            tracing::debug!(error, "cannot compute reduced values again");
            return false;
        }
    };
    let late = parent.missing_of(std::mem::take(&mut all.end.late), first);
    if !late.is_empty() {
        tracing::debug!(?late, "nodes are missing; trying again later");
        return false;
    }
    let (parent, ticks) = (parent.clone(), ticks.to_vec());
    let stored = tokio::task::spawn_blocking(move || store_ticks(&parent, &all, &ticks));
    matches!(stored.await, Ok(Ok(())))
}

/// Stores the reduced values of these ticks, within the limits of the reduction. Returns once they
/// are in the log of the store.
fn store_ticks(parent: &Parent, all: &SubtreePartials, ticks: &[Millis]) -> Result<(), PushError> {
    let store = &parent.context.store;
    let now = parent.context.now();
    let mut maker = ReducedPoints::default();
    let mut points = Vec::new();
    let mut refused = 0;
    for (text, series) in &all.series {
        // Children wait for the lock: it is held for one series at a time.
        let mut reduction = parent.reduction.lock();
        if !reduction.admits_past(text, series.kind, &series.unit, &series.help, now) {
            refused += 1;
            continue;
        }
        drop(reduction);
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
    parent.context.counts.refused_series.add(refused);
    store.push(Input::Tree, points).map(drop)
}

impl Parent {
    /// Returns the number of ticks to compute at once.
    fn chunk_ticks(&self) -> usize {
        let children = self.registry.lock().connected().count();
        let series = self.reduction.lock().table.len();
        let cells = self.context.settings.scaled(CHUNK_CELLS);
        let count = cells / (series.max(1) * (children + 1));
        count.clamp(1, CHUNK_TICKS)
    }

    /// Returns ticks to compute now: closed ones, and none for which a node that was included is
    /// away.
    fn due_ticks(&self, now: Millis, count: usize) -> Vec<Millis> {
        let (lag, after) = {
            let mut registry = self.registry.lock();
            let levels = (registry.levels() as i64).min(super::CLOSE_LEVELS_MAX);
            let intervals = super::CLOSE_INTERVALS + levels;
            (intervals * self.interval, registry.away_until())
        };
        let due = DueTicks {
            oldest: now - self.backfill_time(),
            after,
            until: (now - lag).min(self.stored_until.load(Ordering::Relaxed)),
            settle: (3 * self.interval).clamp(1000, 3000),
            count,
        };
        self.dirty.lock().due(&due, now, self.interval)
    }

    /// Returns the nodes that did not answer for ticks from `first` on, without those that are
    /// known to be away since before, and without those that failed for too long.
    fn missing_of(&self, mut late: Vec<String>, first: Millis) -> Vec<String> {
        let now = self.context.now();
        let mut registry = self.registry.lock();
        late.retain(|node| !registry.is_away_before(node, first));
        if self.dirty.lock().age(first, now) < INCOMPLETE_AFTER {
            return late;
        }
        late.iter().for_each(|node| registry.lacks(node, first));
        Vec::new()
    }
}
