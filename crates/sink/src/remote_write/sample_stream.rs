//! The samples of the log as PromQL shows them, in the order of the log.
//!
//! A row of the log becomes, in this order: the values of an idle group of programs at the ticks
//! since its last row, stale markers for the series that are absent from this row and were in the
//! last one, and the values of the row (decision 0041 describes both for queries). The result
//! depends on the log alone, not on the time at which it is read, so that a stream that begins
//! again at a position continues with the same samples. The values of an idle group are therefore
//! known only with its next row, at most a minute later. The thread of one target owns a stream; it
//! never changes the log.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;

use pegel_metric::{GroupRow, Input, Millis, STALE_NAN, Series, is_stale};
use pegel_store::{LogPosition, LogReader, LogStep, LogVisitor, Store};

use super::round::Round;
use super::series_table::TargetSeries;

/// The longest time between two rows of an idle group, unless the agent stopped: as in the store's
/// queries.
const IDLE_ROW_MAX: Millis = 65_000;
/// The longest time between two rows of a group for which stale markers and idle values are
/// derived: PromQL's lookback, after which a series has ended anyway, and half a minute.
const LAST_ROW_MAX: Millis = 330_000;
/// The most segments before a position that are read to restore the state of the stream.
const STATE_SEGMENTS_MAX: usize = 4;
/// The most samples that are read at once, and discarded, while a stream advances to its position.
const DISCARDED_MAX: usize = 1 << 16;
/// A series number without a slot.
const NO_SLOT: u32 = u32::MAX;

/// A place in the stream: before a frame of the log, or within its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct StreamPosition {
    pub log: LogPosition,
    /// The number of samples that were taken from the frame at `log`.
    pub samples: u64,
}

/// The reason why a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoundEnd {
    /// The round has the requested number of samples, or the position is reached.
    Full,
    /// The end of the log is reached.
    EndOfLog,
}

/// Losses that were found while reading.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamLosses {
    /// Frames with samples that could not be decoded.
    pub damaged_frames: u64,
    /// The number of gaps: segments that are missing.
    pub gaps: u64,
}

/// Reads samples from the log.
#[derive(Debug)]
pub(super) struct SampleStream {
    reader: LogReader,
    pub table: TargetSeries,
    interval: Millis,
    segment: SegmentNumbers,
    /// The last row of each group.
    groups: HashMap<Arc<str>, RowEvent>,
    /// The decoded frame before the reader's position, without the samples that were taken.
    frame: FrameEvents,
    /// The position of that frame, and the samples taken from it.
    frame_start: LogPosition,
    frame_taken: u64,
    /// The newest time of a row so far.
    newest_row: Millis,
    /// The last segments, with the newest time of a row before each of them.
    segments: VecDeque<(u64, Millis)>,
    /// The reader has begun a segment whose numbers are not known yet.
    is_segment_new: bool,
    pub losses: StreamLosses,
}

/// The slots of the groups and series of the current segment, by their numbers in it.
#[derive(Debug, Default)]
struct SegmentNumbers {
    groups: HashMap<u64, Arc<GroupSlots>>,
    series: Vec<u32>,
    /// Slots of numbers beyond the list, which only a damaged log has.
    others: HashMap<u64, u32>,
}

/// The slots of the members of a group.
#[derive(Debug)]
struct GroupSlots {
    name: Arc<str>,
    slots: Vec<u32>,
    /// Whether values stay valid between rows: those of programs.
    is_held: bool,
}

/// The decoded contents of one frame.
#[derive(Debug, Default)]
struct FrameEvents {
    events: VecDeque<StreamEvent>,
    /// How much of the first event was taken.
    progress: EventProgress,
}

#[derive(Debug)]
enum StreamEvent {
    Row(RowEvent),
    Points(Vec<(u32, Millis, f64)>),
}

#[derive(Debug)]
struct RowEvent {
    time: Millis,
    group: Arc<GroupSlots>,
    values: Vec<f64>,
    present: Vec<u64>,
}

/// The progress within an event.
#[derive(Debug, Default)]
struct EventProgress {
    /// The next tick that gets the values of the last row; `None` if there is no further one.
    tick: Option<Millis>,
    is_begun: bool,
    /// Slots that get a stale marker.
    ended: Vec<u32>,
    /// The index of the next sample in the part that is being taken: ticks, stale markers or
    /// values.
    next: usize,
}

impl RowEvent {
    fn is_present(&self, member: usize) -> bool {
        self.present[member / 64] >> (member % 64) & 1 == 1
    }

    /// Returns the slots and values of the present members.
    fn present(&self) -> impl Iterator<Item = (u32, f64)> {
        let members = (0..self.values.len()).filter(|member| self.is_present(*member));
        members.map(|member| (self.group.slots[member], self.values[member]))
    }
}

impl SampleStream {
    /// Creates a stream that continues at a position. It begins to read at an earlier segment,
    /// which restores the last rows of groups and the newest times of series.
    pub(super) fn new(
        store: &Store,
        table: TargetSeries,
        interval: Millis,
        (from, state_segment): (StreamPosition, u64),
    ) -> io::Result<SampleStream> {
        let segments = store.log_segments();
        let first = state_segment.min(from.log.segment);
        let mut numbers = segments.iter().map(|(number, _)| *number);
        let start = numbers.find(|number| *number >= first);
        let start = start.unwrap_or_else(|| store.log_end().segment);
        let reader = store.log_reader(start);
        let mut stream = SampleStream {
            frame_start: reader.position(),
            reader,
            table,
            interval: interval.max(1),
            segment: SegmentNumbers::default(),
            groups: HashMap::new(),
            frame: FrameEvents::default(),
            frame_taken: 0,
            newest_row: Millis::MIN,
            segments: VecDeque::from([(start, Millis::MIN)]),
            is_segment_new: false,
            losses: StreamLosses::default(),
        };
        let mut discarded = Round::default();
        while stream.position() < from {
            discarded.clear();
            let end = stream.take(&mut discarded, DISCARDED_MAX, Some(from))?;
            if end == RoundEnd::EndOfLog {
                break;
            }
        }
        // Losses before the position were counted when it was passed the first time.
        stream.losses = StreamLosses::default();
        if start > from.log.segment && from.log.segment > 0 {
            stream.losses.gaps = 1;
        }
        Ok(stream)
    }

    /// Returns the position after the samples that were taken.
    pub(super) fn position(&self) -> StreamPosition {
        match self.frame.events.is_empty() {
            true => StreamPosition {
                log: self.reader.position(),
                samples: 0,
            },
            false => StreamPosition {
                log: self.frame_start,
                samples: self.frame_taken,
            },
        }
    }

    /// Returns the segment at which a stream must begin to read in order to continue here: it
    /// contains or precedes the last rows of all groups.
    pub(super) fn state_segment(&self) -> u64 {
        let oldest = self.newest_row.saturating_sub(LAST_ROW_MAX);
        let is_enough = |(_, before): &&(u64, Millis)| *before <= oldest;
        let segment = self.segments.iter().rev().find(is_enough);
        let segment = segment.or(self.segments.front());
        segment.map_or(0, |(number, _)| *number)
    }

    /// Takes samples until the round has `max` of them, the position is reached, or the log ends.
    pub(super) fn take(
        &mut self,
        round: &mut Round,
        max: usize,
        until: Option<StreamPosition>,
    ) -> io::Result<RoundEnd> {
        loop {
            if self.is_segment_new {
                // The slots of the samples in the round may change.
                if round.len() > 0 {
                    return Ok(RoundEnd::Full);
                }
                self.begin_segment();
            }
            let position = self.position();
            if round.len() >= max || until.is_some_and(|until| position >= until) {
                return Ok(RoundEnd::Full);
            }
            if self.frame.events.is_empty() {
                if !self.read_frame()? {
                    return Ok(RoundEnd::EndOfLog);
                }
                continue;
            }
            // Positions within one frame differ in the number of samples.
            let of_frame = { until }.filter(|until| until.log == self.frame_start);
            let left = of_frame.map_or(u64::MAX, |until| until.samples - self.frame_taken);
            self.take_from_frame(round, max, left);
        }
    }

    /// Continues with the next segment after a read error. Returns false if there is none.
    pub(super) fn skip_segment(&mut self) -> bool {
        let is_skipped = self.reader.skip_segment();
        if is_skipped {
            self.losses.gaps += 1;
            self.is_segment_new = true;
        }
        is_skipped
    }

    /// Decodes the next frame. Returns false at the end of the log.
    fn read_frame(&mut self) -> io::Result<bool> {
        let start = self.reader.position();
        let mut decoder = FrameDecoder {
            table: &mut self.table,
            segment: &mut self.segment,
            events: &mut self.frame.events,
        };
        let step = self.reader.step(&mut decoder)?;
        (self.frame_start, self.frame_taken) = (start, 0);
        match step {
            LogStep::Frame => {}
            LogStep::Damaged => self.losses.damaged_frames += 1,
            LogStep::NextSegment => self.is_segment_new = true,
            LogStep::Gap => {
                self.losses.gaps += 1;
                self.is_segment_new = true;
            }
            LogStep::End => return Ok(false),
        }
        Ok(true)
    }

    /// Forgets the numbers of the previous segment, and groups and series that were not used
    /// recently.
    fn begin_segment(&mut self) {
        self.is_segment_new = false;
        self.segment = SegmentNumbers::default();
        let oldest = self.newest_row.saturating_sub(LAST_ROW_MAX);
        self.groups.retain(|_, row| row.time >= oldest);
        let number = self.reader.position().segment;
        self.segments.push_back((number, self.newest_row));
        if self.segments.len() > STATE_SEGMENTS_MAX {
            self.segments.pop_front();
        }
        let Some(moved) = self.table.begin_segment() else {
            return;
        };
        for row in self.groups.values_mut() {
            let group = &row.group;
            let slots = group.slots.iter().map(|slot| moved[*slot as usize]);
            row.group = Arc::new(GroupSlots {
                name: group.name.clone(),
                slots: slots.collect(),
                is_held: group.is_held,
            });
            for (member, slot) in row.group.slots.iter().enumerate() {
                if *slot == NO_SLOT {
                    row.present[member / 64] &= !(1 << (member % 64));
                }
            }
        }
    }

    /// Takes samples of the decoded frame: at most `left`, and few more than the round may have.
    fn take_from_frame(&mut self, round: &mut Round, max: usize, left: u64) {
        let before = round.taken;
        while let Some(event) = self.frame.events.front() {
            let taken = round.taken - before;
            if round.len() >= max || taken >= left {
                break;
            }
            let mut quota = usize::try_from(left - taken).unwrap_or(usize::MAX);
            quota = quota.min(max - round.len());
            let progress = &mut self.frame.progress;
            let is_done = match event {
                StreamEvent::Points(points) => {
                    let rest = points.iter().skip(progress.next).take(quota);
                    for &(slot, time, value) in rest {
                        round.add(&mut self.table, slot, time, value);
                        progress.next += 1;
                    }
                    progress.next == points.len()
                }
                StreamEvent::Row(row) => {
                    let last = self.groups.get(&row.group.name);
                    progress.begin(row, last, self.interval);
                    let mut add = |slot, time, value| {
                        round.add(&mut self.table, slot, time, value);
                    };
                    progress.take_row(row, last, self.interval, quota, &mut add)
                }
            };
            if is_done {
                self.finish_event();
            }
        }
        self.frame_taken += round.taken - before;
    }

    /// Removes the first event, which was taken completely.
    fn finish_event(&mut self) {
        self.frame.progress = EventProgress::default();
        if let Some(StreamEvent::Row(row)) = self.frame.events.pop_front() {
            self.newest_row = self.newest_row.max(row.time);
            let is_newer =
                { self.groups.get(&row.group.name) }.is_none_or(|last| last.time < row.time);
            if is_newer {
                let name = row.group.name.clone();
                self.groups.insert(name, row);
            }
        }
    }
}

impl EventProgress {
    /// Determines the stale markers and the idle values that precede the values of a row.
    fn begin(&mut self, row: &RowEvent, last: Option<&RowEvent>, interval: Millis) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        // A row that is older than the last one is late: nothing is derived from it.
        let is_next = |last: &&RowEvent| {
            last.time < row.time && row.time.saturating_sub(last.time) <= LAST_ROW_MAX
        };
        let Some(last) = last.filter(is_next) else {
            return;
        };
        if last.group.is_held && row.time - last.time <= IDLE_ROW_MAX {
            self.tick = Some((last.time.div_euclid(interval) + 1) * interval);
        }
        if last.group.slots == row.group.slots {
            let members = 0..row.values.len();
            let is_ended = |member: &usize| last.is_present(*member) && !row.is_present(*member);
            let ended = members.filter(is_ended);
            self.ended = ended.map(|member| row.group.slots[member]).collect();
        } else {
            let present: HashSet<u32> = row.present().map(|(slot, _)| slot).collect();
            let slots = last.present().map(|(slot, _)| slot);
            self.ended = slots.filter(|slot| !present.contains(slot)).collect();
        }
    }

    /// Takes at most `quota` samples of a row. Returns whether all were taken.
    fn take_row(
        &mut self,
        row: &RowEvent,
        last: Option<&RowEvent>,
        interval: Millis,
        mut quota: usize,
        add: &mut dyn FnMut(u32, Millis, f64),
    ) -> bool {
        while let (Some(tick), Some(last)) = (self.tick, last) {
            // The row of a tick that was sampled late takes the place of its tick.
            if tick > row.time - interval {
                (self.tick, self.next) = (None, 0);
                break;
            }
            while self.next < last.values.len() {
                if quota == 0 {
                    return false;
                }
                let member = self.next;
                self.next += 1;
                if last.is_present(member) && !is_stale(last.values[member]) {
                    add(last.group.slots[member], tick, last.values[member]);
                    quota -= 1;
                }
            }
            (self.tick, self.next) = (Some(tick + interval), 0);
        }
        while let Some(slot) = self.ended.pop() {
            if quota == 0 {
                self.ended.push(slot);
                return false;
            }
            add(slot, row.time, STALE_NAN);
            quota -= 1;
        }
        while self.next < row.values.len() {
            if quota == 0 {
                return false;
            }
            let member = self.next;
            self.next += 1;
            if row.is_present(member) {
                add(row.group.slots[member], row.time, row.values[member]);
                quota -= 1;
            }
        }
        true
    }
}

/// Copies the contents of a frame.
struct FrameDecoder<'a> {
    table: &'a mut TargetSeries,
    segment: &'a mut SegmentNumbers,
    events: &'a mut VecDeque<StreamEvent>,
}

impl LogVisitor for FrameDecoder<'_> {
    fn row(&mut self, time: Millis, group: u64, row: &GroupRow) {
        let group = match self.segment.groups.get(&group) {
            Some(known) => known.clone(),
            None => {
                let members = &row.members;
                let slots = members.series.iter().map(|series| self.table.find(series));
                let first = members.series.first();
                let slots = Arc::new(GroupSlots {
                    name: members.group.clone(),
                    slots: slots.collect(),
                    is_held: first.is_some_and(|one| one.family().input != Input::Collect),
                });
                self.segment.groups.insert(group, slots.clone());
                slots
            }
        };
        self.events.push_back(StreamEvent::Row(RowEvent {
            time,
            group,
            values: row.values.clone(),
            present: row.present.clone(),
        }));
    }

    fn point(&mut self, number: u64, series: &Arc<Series>, time: Millis, value: f64) {
        let slot = self.segment.slot(number, || self.table.find(series));
        let point = (slot, time, value);
        match self.events.back_mut() {
            Some(StreamEvent::Points(points)) => points.push(point),
            _ => self.events.push_back(StreamEvent::Points(vec![point])),
        }
    }
}

impl SegmentNumbers {
    fn slot(&mut self, number: u64, find: impl FnOnce() -> u32) -> u32 {
        const GAP_MAX: usize = 1 << 20;
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if at > self.series.len().saturating_add(GAP_MAX) {
            return *self.others.entry(number).or_insert_with(find);
        }
        if self.series.len() <= at {
            self.series.resize(at + 1, NO_SLOT);
        }
        if self.series[at] == NO_SLOT {
            self.series[at] = find();
        }
        self.series[at]
    }
}
