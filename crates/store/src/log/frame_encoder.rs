//! Encodes ticks and points as frames of the log; the writer calls it before every write. A segment
//! defines each group and series before the first sample that uses it, so that every segment can be
//! replayed alone.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{GroupRow, GroupSeries, Input, Point, Series, Tick};

use crate::codec;
use crate::codec::byte_reader::{put_varint, put_zigzag};
use crate::lz4_block::pack;
use crate::sample_run::put_bitmap;
use crate::series_codec::SeriesEncoder;

use super::{
    FRAME_MARK, GROUP_FRAME, KEY_ROW_INTERVAL, PUSH_FRAME, ROW_KEY, ROW_PARTLY_PRESENT,
    SERIES_FRAME, TICK_FRAME,
};

/// Definitions are repeated after this many bytes of log, so that one damaged place never costs
/// more than the samples stored there.
const DEFINITION_COPY_INTERVAL: usize = 32 << 10;

/// Larger pushes are split into several frames, and more text into several definitions: frames stay
/// far below `FRAME_LEN_MAX`, beyond which replay treats them as damage.
const PUSH_POINTS_MAX: usize = 64 << 10;
const DEFINITION_BYTES_MAX: usize = 1 << 20;
/// The rows of a tick are split into several frames, too. Each frame has less than this and one row
/// more.
const TICK_BYTES_MAX: usize = 4 << 20;
/// A group whose definition or rows could exceed a frame is not logged. Limits of senders keep
/// groups far below this.
const GROUP_BYTES_MAX: usize = 32 << 20;
const GROUP_WIDTH_MAX: usize = 2 << 20;

/// The encoder of one segment: the definitions written so far, and the frames not yet written.
#[derive(Debug, Default)]
pub(crate) struct FrameEncoder {
    groups: Vec<GroupEncoder>,
    next_group: u64,
    series: HashMap<Arc<Series>, u64>,
    /// The numbers of the series of a push, in the order of its points.
    numbers: Vec<u64>,
    /// The numbers by the slots of the series in a head, as far as they are known, and the number
    /// of that head.
    numbers_by_slot: Vec<Option<u32>>,
    slots_of_head: u64,
    out: Vec<u8>,
    body: Vec<u8>,
    row: Vec<u8>,
    bits: Vec<u64>,
    copies: Vec<u8>,
    copies_age: usize,
}

#[derive(Debug)]
struct GroupEncoder {
    id: u64,
    members: Arc<GroupSeries>,
    previous: Vec<u64>,
    hints: codec::ExponentHints,
    /// Rows until the next key row, which does not depend on the row before.
    until_key: u32,
    /// Whether the group is defined in this segment; false if a frame cannot hold it.
    is_defined: bool,
}

impl FrameEncoder {
    /// Takes the encoded frames. Return their buffer with [`Self::recycle`].
    pub(crate) fn take_frames(&mut self) -> Vec<u8> {
        self.copies_age += self.out.len();
        std::mem::take(&mut self.out)
    }

    /// Reuses a buffer for the next frames.
    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.out = buffer;
        if self.copies_age > DEFINITION_COPY_INTERVAL {
            self.out.append(&mut self.copies);
            self.copies_age = 0;
        }
    }

    /// Adds the rows of a tick that are flagged in `wanted`. Returns the number of samples that the
    /// log cannot hold: those of groups that exceed a frame.
    pub(crate) fn tick(&mut self, tick: &Tick, wanted: &[bool]) -> u64 {
        let mut rows: Vec<(&GroupRow, usize)> = Vec::with_capacity(wanted.len());
        let mut unlogged = 0;
        let wanted = tick.rows().iter().zip(wanted);
        for (row, _) in wanted.filter(|(_, wanted)| **wanted) {
            let state = self.define_group(&row.members);
            match self.groups[state].is_defined {
                true => rows.push((row, state)),
                false => unlogged += row.present_count(),
            }
        }
        let mut rest = &rows[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |(row, _): &&(&GroupRow, usize)| {
                bytes += row_bytes_max(row.members.series.len());
                bytes <= TICK_BYTES_MAX
            };
            let fitting = rest.iter().take_while(fits).count().max(1);
            let (now, later) = rest.split_at(fitting);
            self.put_rows(tick, now);
            rest = later;
        }
        unlogged
    }

    /// Adds rows of a tick, with the positions of their groups' encoders.
    fn put_rows(&mut self, tick: &Tick, rows: &[(&GroupRow, usize)]) {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        put_varint(&mut body, rows.len() as u64);
        for &(row, state) in rows {
            self.put_row(row, state, &mut body);
        }
        let mut prefix = [0u8; 9];
        prefix[0] = tick.input as u8;
        prefix[1..].copy_from_slice(&tick.time.to_le_bytes());
        put_frame(TICK_FRAME, &prefix, &body, &mut self.out);
        self.body = body;
    }

    /// Adds the points of a push.
    pub(crate) fn push(&mut self, input: Input, points: &[Point]) {
        let slots = vec![None; points.len()];
        self.push_with_slots(input, points, (&slots, 0));
    }

    /// Adds the points of a push. The slots of their series in the head of this number are known
    /// for most of them.
    pub(crate) fn push_with_slots(
        &mut self,
        input: Input,
        points: &[Point],
        (slots, head): (&[Option<u32>], u64),
    ) {
        if self.slots_of_head != head {
            self.numbers_by_slot.clear();
            self.slots_of_head = head;
        }
        let chunks = points.chunks(PUSH_POINTS_MAX);
        for (points, slots) in chunks.zip(slots.chunks(PUSH_POINTS_MAX)) {
            self.put_points(input, points, slots);
        }
    }

    fn put_points(&mut self, input: Input, points: &[Point], slots: &[Option<u32>]) {
        self.define_series(points, slots);
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        put_varint(&mut body, points.len() as u64);
        let mut time = 0;
        for (point, number) in points.iter().zip(&self.numbers) {
            put_varint(&mut body, *number);
            put_zigzag(&mut body, point.time.wrapping_sub(time));
            time = point.time;
            body.extend_from_slice(&point.value.to_bits().to_le_bytes());
        }
        put_frame(PUSH_FRAME, &[input as u8], &body, &mut self.out);
        self.body = body;
    }

    /// Encodes a row against the previous row of its group, or against zeros if it is a key row.
    fn put_row(&mut self, row: &GroupRow, state: usize, body: &mut Vec<u8>) {
        let state = &mut self.groups[state];
        let is_key = state.until_key == 0;
        if is_key {
            state.previous.fill(0);
            state.hints.fill(0);
            state.until_key = KEY_ROW_INTERVAL;
        }
        state.until_key -= 1;
        let width = state.previous.len();
        let is_partial = row.present_count() < width as u64;

        self.bits.clear();
        // An absent value repeats the one before, which costs nothing.
        self.bits.extend((0..width).map(|index| {
            if row.is_present(index) {
                row.values[index].to_bits()
            } else {
                state.previous[index]
            }
        }));
        self.row.clear();
        put_varint(&mut self.row, state.id);
        self.row
            .push(u8::from(is_partial) * ROW_PARTLY_PRESENT + u8::from(is_key) * ROW_KEY);
        if is_partial {
            put_bitmap(&row.present, width, &mut self.row);
        }
        codec::encode_row(&state.previous, &self.bits, &mut state.hints, &mut self.row);
        state.previous.copy_from_slice(&self.bits);
        put_varint(body, self.row.len() as u64);
        body.extend_from_slice(&self.row);
    }

    /// Defines a version of a group in this segment, unless it is defined. Returns the index of its
    /// encoder.
    fn define_group(&mut self, members: &Arc<GroupSeries>) -> usize {
        if let Some(at) = self
            .groups
            .iter()
            .position(|state| Arc::ptr_eq(&state.members, members))
        {
            return at;
        }
        let id = self.next_group;
        self.next_group += 1;
        let mut raw = Vec::new();
        put_varint(&mut raw, id);
        codec::byte_reader::put_str(&mut raw, &members.group);
        put_zigzag(&mut raw, members.stale_after);
        put_varint(&mut raw, members.series.len() as u64);
        let mut writer = SeriesEncoder::default();
        members
            .series
            .iter()
            .for_each(|series| writer.put(series, &mut raw));
        let width = members.series.len();
        let is_defined = raw.len() <= GROUP_BYTES_MAX && width <= GROUP_WIDTH_MAX;
        if is_defined {
            self.put_definition(GROUP_FRAME, &raw);
        }
        let (previous, hints) = (vec![0; width], vec![0; width]);
        let state = GroupEncoder {
            id,
            members: members.clone(),
            previous,
            hints,
            until_key: 0,
            is_defined,
        };
        // Only one version of a group is in use at a time, so encoders do not accumulate.
        match self
            .groups
            .iter()
            .position(|state| state.members.group == members.group)
        {
            Some(at) => {
                self.groups[at] = state;
                at
            }
            None => {
                self.groups.push(state);
                self.groups.len() - 1
            }
        }
    }

    /// Defines the series of these points that are not yet defined in this segment, and looks up
    /// the numbers of all.
    fn define_series(&mut self, points: &[Point], slots: &[Option<u32>]) {
        self.numbers.clear();
        let mut first = self.series.len();
        let mut raw = Vec::new();
        let mut writer = SeriesEncoder::default();
        for (point, slot) in points.iter().zip(slots) {
            let by_slot = slot.and_then(|slot| *self.numbers_by_slot.get(slot as usize)?);
            let known = by_slot.map(u64::from);
            if let Some(number) = known.or_else(|| self.series.get(&point.series).copied()) {
                if by_slot.is_none() {
                    self.set_number_of_slot(*slot, number);
                }
                self.numbers.push(number);
                continue;
            }
            let number = self.series.len() as u64;
            self.series.insert(point.series.clone(), number);
            self.numbers.push(number);
            writer.put(&point.series, &mut raw);
            if raw.len() > DEFINITION_BYTES_MAX {
                self.put_series(first, &raw);
                first = self.series.len();
                raw.clear();
                writer = SeriesEncoder::default();
            }
        }
        if !raw.is_empty() {
            self.put_series(first, &raw);
        }
    }

    fn set_number_of_slot(&mut self, slot: Option<u32>, number: u64) {
        if let (Some(slot), Ok(number)) = (slot, u32::try_from(number)) {
            let slot = slot as usize;
            if self.numbers_by_slot.len() <= slot {
                self.numbers_by_slot.resize(slot + 1, None);
            }
            self.numbers_by_slot[slot] = Some(number);
        }
    }

    /// Writes the definitions of the series from number `first` to the last one.
    fn put_series(&mut self, first: usize, raw: &[u8]) {
        let mut definition = Vec::with_capacity(raw.len() + 12);
        put_varint(&mut definition, first as u64);
        put_varint(&mut definition, (self.series.len() - first) as u64);
        definition.extend_from_slice(raw);
        self.put_definition(SERIES_FRAME, &definition);
    }

    /// Writes a definition, and keeps a copy to be written again later.
    fn put_definition(&mut self, kind: u8, raw: &[u8]) {
        let start = self.out.len();
        put_frame(kind, &[], raw, &mut self.out);
        self.copies.extend_from_slice(&self.out[start..]);
        self.copies_age = 0;
    }
}

/// Returns the most bytes of a row with this number of values: id, flags and length, two bitmaps,
/// and for each value a control byte and eight bytes of change.
fn row_bytes_max(width: usize) -> usize {
    32 + 2 * width.div_ceil(8) + 9 * width
}

/// Appends a frame whose payload is `prefix` and then `body`, packed. The callers split or leave
/// out what could exceed a frame.
fn put_frame(kind: u8, prefix: &[u8], body: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&FRAME_MARK);
    out.extend_from_slice(&[kind, 0]);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(prefix);
    pack(body, out).expect("a frame is far smaller than the largest LZ4 block");
    debug_assert!(out.len() - start - super::FRAME_HEAD_LEN <= super::FRAME_LEN_MAX);
    let payload_len = (out.len() - start - super::FRAME_HEAD_LEN) as u32;
    out[start + 4..start + 8].copy_from_slice(&payload_len.to_le_bytes());
    let crc = frame_crc(&out[start..]);
    out[start + 8..start + 12].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the checksum of a whole frame: of everything but the mark and the checksum itself.
pub(super) fn frame_crc(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[2..8]);
    hasher.update(&frame[super::FRAME_HEAD_LEN..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use pegel_metric::{Family, MetricKind, Millis, SampleGroup};

    use super::*;
    use crate::log::{FRAME_LEN_MAX, LogVisitor, replay, segment_header};

    #[derive(Default)]
    struct ReplayedPoints(Vec<(Arc<Series>, Millis, u64)>);

    impl LogVisitor for ReplayedPoints {
        fn row(&mut self, _: Millis, _: u64, _: &GroupRow) {
            panic!("no ticks were written");
        }

        fn point(&mut self, _: u64, series: &Arc<Series>, time: Millis, value: f64) {
            self.0.push((series.clone(), time, value.to_bits()));
        }
    }

    #[test]
    fn a_push_of_any_size_reads_back() {
        static FAMILY: Family = Family::new("m", MetricKind::Gauge, "", 1, "");
        let family = Arc::new(FAMILY.clone());
        let long = "x".repeat(15 << 10);
        let points: Vec<Point> = (0..150_000)
            .map(|n: i64| {
                let label = format!("{}{long}", n % 200);
                let label = if n < 200 {
                    &label[..]
                } else {
                    &label[..label.len() - long.len()]
                };
                let series = Series::new(family.clone(), &[("k", label)]).expect("valid");
                Point {
                    series: Arc::new(series),
                    time: n * n,
                    value: n as f64 / 3.0,
                }
            })
            .collect();
        let mut encoder = FrameEncoder::default();
        encoder.push(Input::Push, &points);
        let mut bytes = segment_header(1).to_vec();
        bytes.extend_from_slice(&encoder.take_frames());
        let mut read = ReplayedPoints::default();
        let replayed = replay(&bytes, &mut read);
        assert_eq!((replayed.torn, replayed.damaged), (0, 0));
        let wanted = points
            .iter()
            .map(|point| (point.series.clone(), point.time, point.value.to_bits()));
        assert!(read.0.into_iter().eq(wanted));

        // All frames stay far below the limit.
        let mut kinds = HashSet::new();
        let mut at = crate::log::HEADER_LEN;
        while at < bytes.len() {
            kinds.insert(bytes[at + 2]);
            let len = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().expect("four bytes"));
            assert!((len as usize) < FRAME_LEN_MAX / 16, "{len} bytes");
            at += crate::log::FRAME_HEAD_LEN + len as usize;
        }
        assert_eq!(kinds, HashSet::from([SERIES_FRAME, PUSH_FRAME]));
    }

    #[derive(Default)]
    struct ReplayedRows(Vec<(Arc<str>, Millis, usize)>);

    impl LogVisitor for ReplayedRows {
        fn row(&mut self, time: Millis, _: u64, row: &GroupRow) {
            let group = row.members.group.clone();
            self.0.push((group, time, row.values.len()));
        }

        fn point(&mut self, _: u64, _: &Arc<Series>, _: Millis, _: f64) {
            panic!("no points were written");
        }
    }

    #[test]
    fn a_group_that_exceeds_a_frame_damages_no_other_and_is_counted() {
        static FAMILY: Family = Family::new("m", MetricKind::Gauge, "", 1, "");
        let family = Arc::new(FAMILY.clone());
        let mut groups: Vec<SampleGroup> = Vec::new();
        // The text of the second one exceeds a definition, the rows of the last three a frame.
        for (name, count, bytes) in [
            ("a", 3, 10),
            ("b", 2_300, 15 << 10),
            ("c", 200_000, 0),
            ("d", 200_000, 0),
            ("e", 200_000, 0),
        ] {
            let long = "x".repeat(bytes);
            let mut group = SampleGroup::new(name, 1, 300_000);
            for n in 0..count {
                let slot = group.declare(&family, &[("k", &format!("{name}{n}{long}"))]);
                group.set(slot.expect("valid"), f64::from(n).sqrt());
            }
            groups.push(group);
        }
        let mut tick = Tick::new(Input::Collect);
        tick.reset(1_000);
        for group in &mut groups {
            group.append_to(&mut tick);
        }
        let mut encoder = FrameEncoder::default();
        let mut bytes = segment_header(1).to_vec();
        let unlogged = encoder.tick(&tick, &vec![true; tick.rows().len()]);
        assert_eq!(unlogged, 2_300);
        bytes.extend_from_slice(&encoder.take_frames());
        let mut read = ReplayedRows::default();
        let replayed = replay(&bytes, &mut read);
        assert_eq!((replayed.torn, replayed.damaged), (0, 0));
        let widths = read.0.iter().map(|(group, time, width)| {
            assert_eq!(*time, 1_000);
            (&**group, *width)
        });
        let expected = [("a", 3), ("c", 200_000), ("d", 200_000), ("e", 200_000)];
        assert!(widths.eq(expected), "{:?}", read.0);
        let again = encoder.tick(&tick, &vec![true; tick.rows().len()]);
        assert_eq!(again, 2_300, "also where the group is known");
    }
}
