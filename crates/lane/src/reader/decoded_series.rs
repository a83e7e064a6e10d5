//! Decodes the descriptions of series. Every length and offset is checked against the copy at hand.

use crate::layout::{
    Aggregation, LABELS_MAX, LINE_BYTES, LaneKind, STRIPES_MAX, TEXT_BYTES_MAX, spec_offset,
    u16_at, u32_at,
};

/// The location of a series. Checked against the copy in which it was found; later copies are at
/// least as long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeriesLocation {
    pub at: u32,
    pub slot: u32,
    pub kind: LaneKind,
    pub stripes: u8,
}

/// Parses a description at the start of `rest`. Returns it and its length.
pub(crate) fn parse_series(
    rest: &[u8],
    at: usize,
    has_ring: bool,
) -> Result<(SeriesLocation, usize), &'static str> {
    let length = u32_at(rest, spec_offset::BYTES).ok_or("length")? as usize;
    let bytes = rest.get(..length).ok_or("length")?;
    if length < LINE_BYTES || !length.is_multiple_of(LINE_BYTES) {
        return Err("length");
    }
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let kind = LaneKind::from_byte(byte(spec_offset::KIND)).ok_or("kind")?;
    if kind == LaneKind::Point && !has_ring {
        return Err("kind");
    }
    Aggregation::from_byte(byte(spec_offset::AGGREGATION)).ok_or("aggregation")?;
    let stripes = byte(spec_offset::STRIPES);
    let most = if kind.can_stripe() { STRIPES_MAX } else { 1 };
    if !(1..=most).contains(&usize::from(stripes)) {
        return Err("number of stripes");
    }
    let slot = u32_at(bytes, spec_offset::SLOT).ok_or("slot")? as usize;
    let slot_bytes = kind.slot_bytes() * usize::from(stripes);
    let fits = slot <= length && slot_bytes <= length - slot && slot.is_multiple_of(LINE_BYTES);
    if slot < spec_offset::TEXT || !fits {
        return Err("slot");
    }
    decode_series_spec(bytes.get(..slot).unwrap_or_default())?;
    let entry = SeriesLocation {
        at: at as u32,
        slot: (at + slot) as u32,
        kind,
        stripes,
    };
    Ok((entry, length))
}

/// The description of a series. The texts are UTF-8 and within bounds; whether the name is valid is
/// for the reader to decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedSeriesSpec<'a> {
    pub kind: LaneKind,
    pub aggregation: Aggregation,
    pub level: u8,
    pub name: &'a str,
    pub help: &'a str,
    /// As the program wrote them: not guaranteed to be sorted or distinct.
    pub labels: Vec<(&'a str, &'a str)>,
    /// Whether the label `pid` is requested, with the pid of the header.
    pub with_pid: bool,
    /// Whether the label `rank` is requested, with the rank of the header.
    pub with_rank: bool,
}

/// Decodes a description, without the slot.
pub(crate) fn decode_series_spec(bytes: &[u8]) -> Result<DecodedSeriesSpec<'_>, &'static str> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let length = |at| usize::from(u16_at(bytes, at).unwrap_or(0));
    let mut rest = bytes.get(spec_offset::TEXT..).ok_or("length")?;
    let total = length(spec_offset::NAME_BYTES)
        + length(spec_offset::HELP_BYTES)
        + length(spec_offset::LABEL_BYTES);
    if total > TEXT_BYTES_MAX + 4 * LABELS_MAX {
        return Err("length of its texts");
    }
    let name = take_text(&mut rest, length(spec_offset::NAME_BYTES)).ok_or("name")?;
    let help = take_text(&mut rest, length(spec_offset::HELP_BYTES)).ok_or("help")?;
    let mut rest = rest
        .get(..length(spec_offset::LABEL_BYTES))
        .ok_or("labels")?;
    let count = usize::from(byte(spec_offset::LABEL_COUNT));
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
    Ok(DecodedSeriesSpec {
        kind: LaneKind::from_byte(byte(spec_offset::KIND)).ok_or("kind")?,
        aggregation: Aggregation::from_byte(byte(spec_offset::AGGREGATION)).ok_or("aggregation")?,
        level: byte(spec_offset::LEVEL),
        name,
        help,
        labels,
        with_pid: byte(spec_offset::FLAGS) & spec_offset::FLAG_PID != 0,
        with_rank: byte(spec_offset::FLAGS) & spec_offset::FLAG_RANK != 0,
    })
}

fn take_text<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a str> {
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    std::str::from_utf8(text).ok()
}
