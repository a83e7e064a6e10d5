//! Finds the samples of matching series in the active and the frozen heads.
//!
//! Series are matched on pointers that were cloned under the lock, never while it is held: a
//! selector may be slow. Only the tails, which still change, are copied under the lock, a few
//! series at a time. The head may be frozen and replaced by a block meanwhile, so the caller must
//! search the blocks afterwards.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use pegel_metric::{GroupSeries, Millis, Selector, Series};

use crate::context::{FrozenHead, StoreContext};
use crate::head::{Head, UngroupedCurrentValues, UngroupedPoints};
use crate::range_query::{QueryError, RangeQuery, TimeLimit};
use crate::sample_run::{RunOwner, SampleRun};

/// The number of series whose tails are copied per acquisition of the lock.
const SERIES_PER_LOCK: usize = 128;

/// Samples of a series in memory.
pub(super) enum MemorySamples<'a> {
    Run {
        run: &'a Arc<SampleRun>,
        column: usize,
    },
    /// Copied, sorted by time; the group is that of a tail.
    Points {
        points: Vec<(Millis, f64)>,
        group: Option<&'a Arc<str>>,
    },
}

impl MemorySamples<'_> {
    /// Returns the name of the group whose rows contain the samples.
    pub(super) fn group(&self) -> Option<&Arc<str>> {
        match self {
            MemorySamples::Run { run, .. } => match &run.owner {
                RunOwner::Group(members) => Some(&members.group),
                RunOwner::Series(_) => None,
            },
            MemorySamples::Points { group, .. } => *group,
        }
    }
}

/// Receives the samples of a series, in order of precedence, lowest first.
pub(super) type MemorySampleSink<'a> =
    dyn FnMut(&Arc<Series>, MemorySamples<'_>) -> Result<(), QueryError> + 'a;

/// A head without its tails.
struct HeadView {
    number: u64,
    /// `None` for the active head.
    frozen: Option<Arc<FrozenHead>>,
    span: Option<(Millis, Millis)>,
    groups: Vec<GroupView>,
    ungrouped: UngroupedCurrentValues,
}

struct GroupView {
    members: Arc<GroupSeries>,
    closed: Arc<Vec<Arc<SampleRun>>>,
    tail: Option<(Millis, Millis)>,
}

/// Finds the samples in memory of matching series within the range; at most `points_max` of each
/// tail.
pub(super) fn find_in_memory(
    shared: &StoreContext,
    query: &RangeQuery,
    points_max: usize,
    limit: &mut TimeLimit,
    sink: &mut MemorySampleSink<'_>,
) -> Result<(), QueryError> {
    let (frozen, active) = {
        let state = shared.read();
        (state.frozen.clone(), HeadView::new(&state.head, None))
    };
    let frozen = frozen
        .into_iter()
        .map(|frozen| HeadView::new(&frozen.head, Some(frozen.clone())));
    let mut search = HeadSearch {
        shared,
        selector: &query.selector,
        range: query.start..=query.end,
        points_max,
        marks_absence: query.ticks.is_some(),
        limit,
        matching: HashMap::new(),
    };
    for view in frozen.chain([active]) {
        search.search(&view, sink)?;
    }
    Ok(())
}

/// Visits the first row of every run and tail of each group in memory, whether its series match or
/// not.
pub(super) fn visit_group_runs(shared: &StoreContext, visit: &mut dyn FnMut(&Arc<str>, Millis)) {
    let (frozen, active) = {
        let state = shared.read();
        (state.frozen.clone(), HeadView::new(&state.head, None))
    };
    let frozen = frozen
        .into_iter()
        .map(|frozen| HeadView::new(&frozen.head, Some(frozen.clone())));
    for group in frozen.chain([active]).flat_map(|view| view.groups) {
        let closed = group.closed.iter().map(|run| (&run.owner, run.min));
        for (owner, first) in closed {
            if let RunOwner::Group(members) = owner {
                visit(&members.group, first);
            }
        }
        if let Some((first, _)) = group.tail {
            visit(&group.members.group, first);
        }
    }
}

impl HeadView {
    fn new(head: &Head, frozen: Option<Arc<FrozenHead>>) -> HeadView {
        let groups = head.groups.iter().map(|group| GroupView {
            members: group.members().clone(),
            closed: group.closed().clone(),
            tail: { group.tail_times().first() }
                .copied()
                .zip(group.tail_times().last().copied()),
        });
        HeadView {
            number: head.number,
            frozen,
            span: head.span,
            groups: groups.collect(),
            ungrouped: head.ungrouped.current.clone(),
        }
    }

    /// Calls `read` with the head, under the lock while the head is active. Returns `None` if it
    /// has become a block.
    fn with_head<T>(&self, shared: &StoreContext, read: impl FnOnce(&Head) -> T) -> Option<T> {
        if let Some(frozen) = &self.frozen {
            return Some(read(&frozen.head));
        }
        let state = shared.read();
        if state.head.number == self.number {
            return Some(read(&state.head));
        }
        let is_same_head = |frozen: &&Arc<FrozenHead>| frozen.head.number == self.number;
        let frozen = state.frozen.iter().find(is_same_head).cloned();
        drop(state);
        frozen.map(|frozen| read(&frozen.head))
    }
}

/// A search over the heads for one query.
struct HeadSearch<'a> {
    shared: &'a StoreContext,
    selector: &'a Selector,
    range: RangeInclusive<Millis>,
    points_max: usize,
    /// Whether rows without a series are returned, see [`TickCompletion`](crate::TickCompletion).
    marks_absence: bool,
    limit: &'a mut TimeLimit,
    /// The matching members, by version of a group. The key is the version's address, which the
    /// value keeps alive.
    matching: HashMap<*const GroupSeries, (Arc<GroupSeries>, Arc<[u32]>)>,
}

impl HeadSearch<'_> {
    fn search(
        &mut self,
        view: &HeadView,
        sink: &mut MemorySampleSink<'_>,
    ) -> Result<(), QueryError> {
        if !view.span.is_some_and(|(min, max)| self.overlaps(min, max)) {
            return Ok(());
        }
        for (at, group) in view.groups.iter().enumerate() {
            for run in group.closed.iter() {
                self.add_run(run, sink)?;
            }
            if group.tail.is_some_and(|(min, max)| self.overlaps(min, max)) {
                let matching = self.matching(&group.members)?;
                for members in matching.chunks(SERIES_PER_LOCK) {
                    self.add_tail(view, at, members, sink)?;
                }
            }
        }
        let mut matching = Vec::new();
        for (slot, series, _) in view.ungrouped.iter() {
            self.limit.spend_on(series)?;
            if self.selector.matches(series) {
                matching.push(slot);
            }
        }
        for slots in matching.chunks(SERIES_PER_LOCK) {
            self.add_ungrouped(view, slots, sink)?;
        }
        Ok(())
    }

    fn overlaps(&self, min: Millis, max: Millis) -> bool {
        min <= *self.range.end() && *self.range.start() <= max
    }

    /// Returns the members of a group that match, evaluating the selector once per version.
    fn matching(&mut self, members: &Arc<GroupSeries>) -> Result<Arc<[u32]>, QueryError> {
        if let Some((_, known)) = self.matching.get(&Arc::as_ptr(members)) {
            return Ok(known.clone());
        }
        let mut matching = Vec::new();
        for (member, series) in (0..).zip(&members.series) {
            self.limit.spend_on(series)?;
            if self.selector.matches(series) {
                matching.push(member);
            }
        }
        let matching: Arc<[u32]> = matching.into();
        let entry = (members.clone(), matching.clone());
        self.matching.insert(Arc::as_ptr(members), entry);
        Ok(matching)
    }

    /// Adds the matching columns of a group's closed run.
    fn add_run(
        &mut self,
        run: &Arc<SampleRun>,
        sink: &mut MemorySampleSink<'_>,
    ) -> Result<(), QueryError> {
        let RunOwner::Group(members) = &run.owner else {
            return Ok(());
        };
        self.limit.spend(TimeLimit::STEP)?;
        if !self.overlaps(run.min, run.max) {
            return Ok(());
        }
        let matching = self.matching(members)?;
        self.add_columns(run, &matching, sink)
    }

    fn add_columns(
        &mut self,
        run: &Arc<SampleRun>,
        members: &[u32],
        sink: &mut MemorySampleSink<'_>,
    ) -> Result<(), QueryError> {
        for &member in members {
            self.limit.spend(TimeLimit::STEP)?;
            let column = run
                .columns
                .binary_search_by_key(&member, |column| column.member);
            if let Ok(column) = column {
                sink(
                    &run.owner.series()[member as usize],
                    MemorySamples::Run { run, column },
                )?;
            }
        }
        Ok(())
    }

    /// Adds the tail of a group, for some members of it.
    fn add_tail(
        &mut self,
        view: &HeadView,
        at: usize,
        members: &[u32],
        sink: &mut MemorySampleSink<'_>,
    ) -> Result<(), QueryError> {
        self.limit.spend(members.len() * TimeLimit::STEP)?;
        let group = &view.groups[at];
        let (range, points_max) = (self.range.clone(), self.points_max);
        let marks_absence = self.marks_absence;
        let copied = view.with_head(self.shared, |head| {
            let current = &head.groups[at];
            let is_same = Arc::ptr_eq(current.members(), &group.members);
            // Rows with other members arrived after the query began.
            let wanted = if is_same { members } else { &[] };
            let tail = |member: &u32| {
                let samples = current.tail_samples(*member as usize, marks_absence);
                let samples = samples.filter(|(time, _)| range.contains(time));
                samples.take(points_max).collect()
            };
            let tails: Vec<Vec<(Millis, f64)>> = wanted.iter().map(tail).collect();
            (current.closed().clone(), tails)
        });
        let Some((closed, tails)) = copied else {
            return Ok(());
        };
        // The tail may have been closed since the pointers were cloned.
        for run in &closed[group.closed.len()..] {
            let owner_is_same = matches!(&run.owner,
                RunOwner::Group(owner) if Arc::ptr_eq(owner, &group.members));
            if owner_is_same && self.overlaps(run.min, run.max) {
                self.add_columns(run, members, sink)?;
            }
        }
        for (&member, points) in members.iter().zip(tails) {
            if !points.is_empty() {
                let group_name = Some(&group.members.group);
                let found = MemorySamples::Points {
                    points,
                    group: group_name,
                };
                sink(&group.members.series[member as usize], found)?;
            }
        }
        Ok(())
    }

    fn add_ungrouped(
        &mut self,
        view: &HeadView,
        slots: &[u32],
        sink: &mut MemorySampleSink<'_>,
    ) -> Result<(), QueryError> {
        self.limit.spend(slots.len() * TimeLimit::STEP)?;
        let (range, points_max) = (self.range.clone(), self.points_max);
        let copied: Option<Vec<UngroupedPoints>> = view.with_head(self.shared, |head| {
            let points = |slot: &u32| head.ungrouped.head(*slot).points(&range, points_max);
            slots.iter().map(points).collect()
        });
        for (slot, points) in slots.iter().zip(copied.unwrap_or_default()) {
            let series = view.ungrouped.series(*slot);
            let first = points.runs.partition_point(|run| run.max < *range.start());
            let runs = points.runs[first..].iter();
            for run in runs.take_while(|run| run.min <= *range.end()) {
                self.limit.spend(TimeLimit::STEP)?;
                sink(series, MemorySamples::Run { run, column: 0 })?;
            }
            for copied in [points.tail, points.late] {
                if !copied.is_empty() {
                    let (points, group) = (copied, None);
                    sink(series, MemorySamples::Points { points, group })?;
                }
            }
        }
        Ok(())
    }
}
