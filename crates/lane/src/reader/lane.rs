use std::fmt;

use crate::layout::{
    self, Aggregation, HEADER_BYTES, Kind, LABELS_MAX, LANE_BYTES_MAX, LINE_BYTES, POINT_BYTES,
    STRIPES_MAX, TEXT_BYTES_MAX, entry, header, u16_at, u32_at, u64_at,
};
use crate::reader::Value;

/// Who writes a lane, as its header said when it was first read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// 128 random bits.
    pub id: [u8; 16],
    /// As the process itself sees it; see [`Header::pid_space`].
    pub pid: u32,
    pub uid: u32,
    /// Clock ticks from the machine's start to the process's; 0 when unknown.
    pub start_ticks: u64,
    /// The inode of the pid namespace in which `pid` counts; 0 when unknown.
    pub pid_space: u64,
    pub created_ms: i64,
    /// Empty when there is none.
    pub command: String,
    /// Empty when there is none.
    pub rank: String,
    /// Empty when there is none.
    pub job: String,
    /// The first lane of a process is 0; one with many series has several.
    pub number: u32,
    pub(crate) file_bytes: usize,
    pub(crate) ring_offset: usize,
    pub(crate) ring_points: usize,
}

/// What is wrong with a lane. Only its own series are lost by it.
#[derive(Debug)]
#[non_exhaustive]
pub enum LaneError {
    /// Fewer bytes than the lane says.
    Short {
        wanted: usize,
        found: usize,
    },
    /// It does not begin as a lane does.
    Magic,
    Version(u32),
    /// A number in the header that cannot be.
    Header(&'static str),
    /// The published length does not fit, or has become smaller.
    Published(u64),
    /// The description of a series that cannot be, and where it stands.
    Entry {
        at: usize,
        what: &'static str,
    },
    /// More series than the reader's limit.
    Many {
        limit: usize,
    },
    Read(std::io::Error),
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaneError::Short { wanted, found } => {
                write!(f, "the lane has {found} bytes where it says {wanted}")
            }
            LaneError::Magic => write!(f, "not a lane"),
            LaneError::Version(version) => write!(
                f,
                "version {version} of the lane's format; this agent reads version {}",
                layout::VERSION
            ),
            LaneError::Header(what) => write!(f, "the lane's header has an impossible {what}"),
            LaneError::Published(length) => {
                write!(f, "the lane says that {length} bytes are published")
            }
            LaneError::Entry { at, what } => {
                write!(
                    f,
                    "the series at byte {at} of the lane has an impossible {what}"
                )
            }
            LaneError::Many { limit } => write!(f, "more than {limit} series in one lane"),
            LaneError::Read(_) => write!(f, "the lane cannot be read"),
        }
    }
}

impl std::error::Error for LaneError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LaneError::Read(error) => Some(error),
            _ => None,
        }
    }
}

/// What is known of a lane: its header, and where its series stand.
#[derive(Debug, Clone)]
pub struct Lane {
    header: Header,
    entries: Vec<Entry>,
    /// How much was looked at.
    published: usize,
}

/// Checked against the copy in which it was found; later copies are at least as long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub at: u32,
    pub slot: u32,
    pub kind: Kind,
    pub stripes: u8,
}

impl Lane {
    /// Reads a copy of a lane from its start: the published part, or more.
    pub fn parse(bytes: &[u8]) -> Result<Lane, LaneError> {
        let mut lane = Lane::start(bytes)?;
        let published = published(bytes)?;
        lane.extend(bytes, published, usize::MAX)?;
        Ok(lane)
    }

    /// Only the header.
    pub(crate) fn start(bytes: &[u8]) -> Result<Lane, LaneError> {
        Ok(Lane {
            header: parse_header(bytes)?,
            entries: Vec::new(),
            published: HEADER_BYTES,
        })
    }

    /// Looks at the series that have come since, up to the published length.
    pub(crate) fn extend(
        &mut self,
        bytes: &[u8],
        published: u64,
        series_max: usize,
    ) -> Result<(), LaneError> {
        let end = self.check_published(published)?;
        if bytes.len() < end {
            return Err(LaneError::Short {
                wanted: end,
                found: bytes.len(),
            });
        }
        while self.published < end {
            if self.entries.len() >= series_max {
                return Err(LaneError::Many { limit: series_max });
            }
            let rest = bytes.get(self.published..end).unwrap_or_default();
            let (entry, length) = parse_entry(rest, self.published, self.header.ring_points > 0)
                .map_err(|what| LaneError::Entry {
                    at: self.published,
                    what,
                })?;
            self.entries.push(entry);
            self.published += length;
        }
        Ok(())
    }

    pub(crate) fn check_published(&self, published: u64) -> Result<usize, LaneError> {
        let end = published as usize;
        let room = match self.header.ring_points {
            0 => self.header.file_bytes,
            _ => self.header.ring_offset,
        };
        let fits = end >= self.published && end <= room && end.is_multiple_of(LINE_BYTES);
        if published > LANE_BYTES_MAX as u64 || !fits {
            return Err(LaneError::Published(published));
        }
        Ok(end)
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many series have been found so far.
    pub fn series_count(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn published(&self) -> usize {
        self.published
    }

    pub(crate) fn entry_at(&self, offset: u32) -> Option<usize> {
        let found = self.entries.binary_search_by_key(&offset, |entry| entry.at);
        found.ok().filter(|index| {
            self.entries
                .get(*index)
                .is_some_and(|entry| entry.kind == Kind::Point)
        })
    }

    /// The series with the values of one copy.
    pub fn view<'a>(&'a self, bytes: &'a [u8]) -> View<'a> {
        View { lane: self, bytes }
    }
}

/// How far the series of a lane go, by its header.
pub(crate) fn published(bytes: &[u8]) -> Result<u64, LaneError> {
    u64_at(bytes, header::PUBLISHED).ok_or(LaneError::Short {
        wanted: HEADER_BYTES,
        found: bytes.len(),
    })
}

fn parse_header(bytes: &[u8]) -> Result<Header, LaneError> {
    let short = LaneError::Short {
        wanted: HEADER_BYTES,
        found: bytes.len(),
    };
    let Some(bytes) = bytes.get(..HEADER_BYTES) else {
        return Err(short);
    };
    if bytes.get(..layout::MAGIC.len()) != Some(&layout::MAGIC) {
        return Err(LaneError::Magic);
    }
    let number = |at| u32_at(bytes, at).unwrap_or(0);
    let long = |at| u64_at(bytes, at).unwrap_or(0);
    if number(header::VERSION) != layout::VERSION {
        return Err(LaneError::Version(number(header::VERSION)));
    }
    if number(header::HEADER_BYTES) as usize != HEADER_BYTES {
        return Err(LaneError::Header("length"));
    }
    let file_bytes = number(header::FILE_BYTES) as usize;
    if !(HEADER_BYTES..=LANE_BYTES_MAX).contains(&file_bytes) {
        return Err(LaneError::Header("file length"));
    }
    let ring_offset = number(header::RING_OFFSET) as usize;
    let ring_points = number(header::RING_POINTS) as usize;
    // Bounded above, so that this cannot overflow.
    let ring_end = ring_offset.checked_add(ring_points.saturating_mul(POINT_BYTES));
    let is_ring = ring_points.is_power_of_two()
        && ring_offset >= HEADER_BYTES
        && ring_offset.is_multiple_of(LINE_BYTES)
        && ring_end.is_some_and(|end| end <= file_bytes);
    if ring_points > 0 && !is_ring {
        return Err(LaneError::Header("ring"));
    }
    let mut id = [0; 16];
    id.copy_from_slice(bytes.get(header::ID..header::ID + 16).unwrap_or(&[0; 16]));
    Ok(Header {
        id,
        pid: number(header::PID),
        uid: number(header::UID),
        start_ticks: long(header::START_TICKS),
        pid_space: long(header::PID_SPACE),
        created_ms: long(header::CREATED_MS) as i64,
        command: text(bytes, header::COMMAND, header::COMMAND_BYTES)
            .ok_or(LaneError::Header("command"))?,
        rank: text(bytes, header::RANK, header::RANK_BYTES).ok_or(LaneError::Header("rank"))?,
        job: text(bytes, header::JOB, header::JOB_BYTES).ok_or(LaneError::Header("job"))?,
        number: number(header::NUMBER),
        file_bytes,
        ring_offset,
        ring_points,
    })
}

/// A text of the header, up to its first zero byte; None when it is no text for a label.
fn text(bytes: &[u8], at: usize, space: usize) -> Option<String> {
    let field = bytes.get(at..at + space)?;
    let end = field.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(field.get(..end)?).ok()?;
    (!text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// An entry at the start of `rest`, and how long it is.
fn parse_entry(rest: &[u8], at: usize, has_ring: bool) -> Result<(Entry, usize), &'static str> {
    let length = u32_at(rest, entry::BYTES).ok_or("length")? as usize;
    let bytes = rest.get(..length).ok_or("length")?;
    if length < LINE_BYTES || !length.is_multiple_of(LINE_BYTES) {
        return Err("length");
    }
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let kind = Kind::from_byte(byte(entry::KIND)).ok_or("kind")?;
    if kind == Kind::Point && !has_ring {
        return Err("kind");
    }
    Aggregation::from_byte(byte(entry::AGGREGATION)).ok_or("aggregation")?;
    let stripes = byte(entry::STRIPES);
    let most = if kind.can_stripe() { STRIPES_MAX } else { 1 };
    if !(1..=most).contains(&usize::from(stripes)) {
        return Err("number of stripes");
    }
    let slot = u32_at(bytes, entry::SLOT).ok_or("slot")? as usize;
    let slot_bytes = kind.slot_bytes() * usize::from(stripes);
    let fits = slot <= length && slot_bytes <= length - slot && slot.is_multiple_of(LINE_BYTES);
    if slot < entry::TEXT || !fits {
        return Err("slot");
    }
    describe(bytes.get(..slot).unwrap_or_default())?;
    let entry = Entry {
        at: at as u32,
        slot: (at + slot) as u32,
        kind,
        stripes,
    };
    Ok((entry, length))
}

/// What a series is called. The texts are UTF-8 and within bounds; whether they make a good name is for
/// the reader to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series<'a> {
    pub kind: Kind,
    pub aggregation: Aggregation,
    pub level: u8,
    pub name: &'a str,
    pub help: &'a str,
    /// As the program wrote them: sorted and distinct only if it is honest.
    pub labels: Vec<(&'a str, &'a str)>,
    /// Whether the label `pid` is wanted, with the pid of the header.
    pub with_pid: bool,
    /// Whether the label `rank` is wanted, with the rank of the header.
    pub with_rank: bool,
}

/// Reads a description, without the slot.
fn describe(bytes: &[u8]) -> Result<Series<'_>, &'static str> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let length = |at| usize::from(u16_at(bytes, at).unwrap_or(0));
    let mut rest = bytes.get(entry::TEXT..).ok_or("length")?;
    let total = length(entry::NAME_BYTES) + length(entry::HELP_BYTES) + length(entry::LABEL_BYTES);
    if total > TEXT_BYTES_MAX + 4 * LABELS_MAX {
        return Err("length of its texts");
    }
    let name = take_text(&mut rest, length(entry::NAME_BYTES)).ok_or("name")?;
    let help = take_text(&mut rest, length(entry::HELP_BYTES)).ok_or("help")?;
    let mut rest = rest.get(..length(entry::LABEL_BYTES)).ok_or("labels")?;
    let count = usize::from(byte(entry::LABEL_COUNT));
    if count > LABELS_MAX {
        return Err("number of labels");
    }
    let mut labels = Vec::with_capacity(count);
    for _ in 0..count {
        let key_bytes = usize::from(u16_at(rest, 0).ok_or("labels")?);
        let value_bytes = usize::from(u16_at(rest, 2).ok_or("labels")?);
        rest = rest.get(4..).ok_or("labels")?;
        let key = take_text(&mut rest, key_bytes).ok_or("label")?;
        let value = take_text(&mut rest, value_bytes).ok_or("label")?;
        labels.push((key, value));
    }
    if !rest.is_empty() {
        return Err("labels");
    }
    Ok(Series {
        kind: Kind::from_byte(byte(entry::KIND)).ok_or("kind")?,
        aggregation: Aggregation::from_byte(byte(entry::AGGREGATION)).ok_or("aggregation")?,
        level: byte(entry::LEVEL),
        name,
        help,
        labels,
        with_pid: byte(entry::FLAGS) & entry::FLAG_PID != 0,
        with_rank: byte(entry::FLAGS) & entry::FLAG_RANK != 0,
    })
}

fn take_text<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a str> {
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

/// The series of one copy of a lane.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    lane: &'a Lane,
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    pub fn header(&self) -> &'a Header {
        &self.lane.header
    }

    /// A series keeps its index for as long as the lane is there; new ones come at the end.
    pub fn len(&self) -> usize {
        self.lane.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lane.entries.is_empty()
    }

    /// What the series is called. An honest lane never changes that, so that asking once is enough.
    pub fn series(&self, index: usize) -> Result<Series<'a>, LaneError> {
        let found = self.lane.entries.get(index);
        let at = found.map_or(0, |entry| entry.at as usize);
        let description = found.and_then(|entry| self.bytes.get(at..entry.slot as usize));
        let wrong = |what| LaneError::Entry { at, what };
        describe(description.ok_or(wrong("index"))?).map_err(wrong)
    }

    /// The kind under which the series was first seen.
    pub fn kind(&self, index: usize) -> Option<Kind> {
        self.lane.entries.get(index).map(|entry| entry.kind)
    }

    /// The value at the time of the copy. None where there is none yet: a gauge that was never set, or a
    /// series of points, which come from [`LaneFile::points`](crate::reader::LaneFile::points).
    pub fn value(&self, index: usize) -> Option<Value<'a>> {
        let entry = self.lane.entries.get(index)?;
        Value::read(*entry, self.bytes.get(entry.slot as usize..)?)
    }

    /// How many updates of a series the program's own half left out: negative amounts, NaN.
    pub fn ignored(&self, index: usize) -> u64 {
        let Some(entry) = self.lane.entries.get(index) else {
            return 0;
        };
        let slot = self.bytes.get(entry.slot as usize..).unwrap_or_default();
        let lines = if entry.kind == Kind::Point {
            0
        } else {
            entry.stripes
        };
        (0..usize::from(lines))
            .map(|stripe| {
                let at = stripe * LINE_BYTES + 8 * layout::word::IGNORED;
                u64_at(slot, at).unwrap_or(0)
            })
            .fold(0, u64::wrapping_add)
    }

    /// How many series the program could not make because all its lanes were full.
    pub fn refused(&self) -> u64 {
        u64_at(self.bytes, header::REFUSED).unwrap_or(0)
    }

    /// Index, name and value of every series.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Option<Value<'a>>)> {
        let view = *self;
        (0..view.len()).map(move |index| (index, view.value(index)))
    }
}
