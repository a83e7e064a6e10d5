use crate::layout::{HEADER_BYTES, Kind, LANE_BYTES_MAX, LINE_BYTES, header, u64_at, word};
use crate::reader::header::{parse_header, published};
use crate::reader::series::{Entry, describe, parse_entry};
use crate::reader::{Header, LaneError, Series, Value};

/// What is known of a lane: its header, and where its series stand.
#[derive(Debug, Clone)]
pub struct Lane {
    header: Header,
    entries: Vec<Entry>,
    /// How much was looked at.
    published: usize,
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
                let at = stripe * LINE_BYTES + 8 * word::IGNORED;
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
