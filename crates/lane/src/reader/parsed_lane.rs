//! A parsed lane: its header and the locations of its series, and views of single copies.

use crate::layout::{HEADER_BYTES, LANE_BYTES_MAX, LINE_BYTES, LaneKind, header, u64_at, word};
use crate::reader::decoded_series::{SeriesLocation, decode_series_spec, parse_series};
use crate::reader::header::{parse_header, published_length};
use crate::reader::{DecodedSeriesSpec, LaneError, LaneHeader, LaneValue};

/// The header of a lane and the locations of its series.
#[derive(Debug, Clone)]
pub struct ParsedLane {
    header: LaneHeader,
    series: Vec<SeriesLocation>,
    /// How many bytes were parsed.
    published: usize,
}

impl ParsedLane {
    /// Parses a copy of a lane from its start: the published part, or more.
    pub fn parse(bytes: &[u8]) -> Result<ParsedLane, LaneError> {
        let mut lane = ParsedLane::parse_header_only(bytes)?;
        let published = published_length(bytes)?;
        lane.extend(bytes, published, usize::MAX)?;
        Ok(lane)
    }

    /// Parses only the header.
    pub(crate) fn parse_header_only(bytes: &[u8]) -> Result<ParsedLane, LaneError> {
        Ok(ParsedLane {
            header: parse_header(bytes)?,
            series: Vec::new(),
            published: HEADER_BYTES,
        })
    }

    /// Parses the series added since, up to the published length.
    pub(crate) fn extend(
        &mut self,
        bytes: &[u8],
        published: u64,
        series_max: usize,
    ) -> Result<(), LaneError> {
        let end = self.check_published(published)?;
        if bytes.len() < end {
            return Err(LaneError::Truncated {
                wanted: end,
                found: bytes.len(),
            });
        }
        while self.published < end {
            if self.series.len() >= series_max {
                return Err(LaneError::TooManySeries { limit: series_max });
            }
            let rest = bytes.get(self.published..end).unwrap_or_default();
            let (entry, length) = parse_series(rest, self.published, self.header.ring_points > 0)
                .map_err(|what| LaneError::InvalidSeries {
                at: self.published,
                what,
            })?;
            self.series.push(entry);
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

    pub fn header(&self) -> &LaneHeader {
        &self.header
    }

    /// Returns the number of series found so far.
    pub fn series_count(&self) -> usize {
        self.series.len()
    }

    pub(crate) fn published(&self) -> usize {
        self.published
    }

    pub(crate) fn point_series_at(&self, offset: u32) -> Option<usize> {
        let found = self.series.binary_search_by_key(&offset, |entry| entry.at);
        found.ok().filter(|index| {
            self.series
                .get(*index)
                .is_some_and(|entry| entry.kind == LaneKind::Point)
        })
    }

    /// Returns the series with the values of one copy.
    pub fn view<'a>(&'a self, bytes: &'a [u8]) -> LaneView<'a> {
        LaneView { lane: self, bytes }
    }
}

/// The series of one copy of a lane.
#[derive(Debug, Clone, Copy)]
pub struct LaneView<'a> {
    lane: &'a ParsedLane,
    bytes: &'a [u8],
}

impl<'a> LaneView<'a> {
    pub fn header(&self) -> &'a LaneHeader {
        &self.lane.header
    }

    /// Returns the number of series. A series keeps its index as long as the lane exists; new ones
    /// are added at the end.
    pub fn len(&self) -> usize {
        self.lane.series.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lane.series.is_empty()
    }

    /// Returns the description of a series. The writer never changes it, so reading it once is
    /// enough.
    pub fn series(&self, index: usize) -> Result<DecodedSeriesSpec<'a>, LaneError> {
        let found = self.lane.series.get(index);
        let at = found.map_or(0, |entry| entry.at as usize);
        let description = found.and_then(|entry| self.bytes.get(at..entry.slot as usize));
        let wrong = |what| LaneError::InvalidSeries { at, what };
        decode_series_spec(description.ok_or(wrong("index"))?).map_err(wrong)
    }

    /// Returns the kind with which the series was first seen.
    pub fn kind(&self, index: usize) -> Option<LaneKind> {
        self.lane.series.get(index).map(|entry| entry.kind)
    }

    /// Returns the value at the time of the copy. `None` if there is none: a gauge that was never
    /// set, or a series of points, which come from
    /// [`LaneFile::points`](crate::reader::LaneFile::points).
    pub fn value(&self, index: usize) -> Option<LaneValue<'a>> {
        let entry = self.lane.series.get(index)?;
        LaneValue::read(*entry, self.bytes.get(entry.slot as usize..)?)
    }

    /// Returns how many updates of a series the writer ignored: negative amounts, NaN.
    pub fn ignored(&self, index: usize) -> u64 {
        let Some(entry) = self.lane.series.get(index) else {
            return 0;
        };
        let slot = self.bytes.get(entry.slot as usize..).unwrap_or_default();
        let lines = if entry.kind == LaneKind::Point {
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

    /// Returns how many series the program could not create because all its lanes were full.
    pub fn refused(&self) -> u64 {
        u64_at(self.bytes, header::REFUSED).unwrap_or(0)
    }

    /// Iterates over index and value of every series.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Option<LaneValue<'a>>)> {
        let view = *self;
        (0..view.len()).map(move |index| (index, view.value(index)))
    }
}
