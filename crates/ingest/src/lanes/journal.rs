//! The format of the lane journal: what each lane contributed, on disk, so that a restarted agent
//! counts nothing twice.
//!
//! The file is a sequence of records, each `length u32 · crc32 u32 · body`, numbers little-endian:
//!
//! ```text
//! 0 begin   format u32
//! 1 series  number u32 · kind u8 · level u8 · text length u16 · text · help
//! 2 base    number u32 · amount u64                     the sum of removed lanes
//! 3 lane    id 16 bytes · flags u8 · ring position u64 · (number u32 · amount u64)…
//! 4 removed id 16 bytes                                 its file is removed: its amounts move to the base
//! 5 counted id 16 bytes · (number u32 · amount u64)…    the part of its amounts that another journal has
//! ```
//!
//! A lane's record holds absolute amounts and replaces the one before. So a record that is written
//! twice, or not at all because the agent was killed, never counts anything twice. When the file
//! has grown it is rewritten from memory. A torn tail is cut, as in the store's log.
//! [`super::journal_writer`] writes it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::amount::{CounterAmount, CounterKind};

const FORMAT: u32 = 1;
/// Totals are readable only by the agent's user, whatever the umask.
const FILE_MODE: u32 = 0o600;
const BEGIN: u8 = 0;
const SERIES: u8 = 1;
const BASE: u8 = 2;
const LANE: u8 = 3;
const REMOVED: u8 = 4;
const COUNTED_ELSEWHERE: u8 = 5;
const HEAD_BYTES: usize = 8;
/// The largest record: a lane has at most some ten thousand series.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// The identity of a lane: 128 random bits.
pub type LaneId = [u8; 16];

/// A series as recorded in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalSeries {
    /// `name{k="v"}`
    pub text: String,
    pub help: String,
    pub kind: CounterKind,
    pub level: u8,
}

/// The contribution of one lane, as last written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JournalLane {
    pub has_ended: bool,
    /// The position up to which its ring was read.
    pub position: u64,
    /// By the number of the series.
    pub amounts: Vec<(u32, CounterAmount)>,
    /// The part of the amounts that an agent with another journal has counted.
    pub counted_elsewhere: Vec<(u32, CounterAmount)>,
}

impl JournalLane {
    /// Returns what the agent of this journal counted, by the number of the series.
    pub fn counted(self) -> impl Iterator<Item = (u32, CounterAmount)> {
        let mut before = self.counted_elsewhere;
        self.amounts.into_iter().map(move |(number, amount)| {
            let at = before.iter().position(|(known, _)| *known == number);
            let counted = at.map(|at| before.swap_remove(at).1);
            (
                number,
                counted.map_or(amount, |counted| amount.minus(counted)),
            )
        })
    }
}

/// The contents of a journal.
#[derive(Debug, Default, PartialEq)]
pub struct JournalContents {
    pub series: BTreeMap<u32, JournalSeries>,
    pub base: BTreeMap<u32, CounterAmount>,
    pub lanes: HashMap<LaneId, JournalLane>,
    /// The number of bytes at the end that are not a valid record.
    pub torn_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot use {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} has format {format}; this version supports format {FORMAT}")]
    Format { path: PathBuf, format: u32 },
}

/// Reads the journal at `path` and creates it if it is missing, so that the next start finds one. A
/// disk that cannot be written now is not an error: the journal is written as soon as possible.
pub fn load(path: &Path) -> Result<JournalContents, JournalError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    drop(options.mode(FILE_MODE).open(path));
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => {
            let path = path.to_owned();
            return Err(JournalError::Io { path, source });
        }
    };
    let (kept, _) = parse_journal(&bytes).map_err(|format| JournalError::Format {
        path: path.to_owned(),
        format,
    })?;
    Ok(kept)
}

/// Encoded records that were not submitted to the writer yet.
#[derive(Debug, Default)]
pub struct JournalRecords(Vec<u8>);

impl JournalRecords {
    pub fn put_series(&mut self, number: u32, series: &JournalSeries) {
        put_record(&mut self.0, |body| put_series(body, number, series));
    }

    pub fn put_lane(&mut self, id: &LaneId, lane: &JournalLane) {
        put_lane(&mut self.0, id, lane);
    }

    pub fn put_removed(&mut self, id: &LaneId) {
        put_record(&mut self.0, |body| {
            body.push(REMOVED);
            body.extend(id);
        });
    }

    pub fn byte_len(&self) -> usize {
        self.0.len()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the bytes and clears the records.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

fn begin_record() -> Vec<u8> {
    let mut body = vec![BEGIN];
    body.extend(FORMAT.to_le_bytes());
    body
}

fn put_record(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend([0; HEAD_BYTES]);
    body(out);
    let length = (out.len() - at - HEAD_BYTES) as u32;
    let crc = crc32fast::hash(&out[at + HEAD_BYTES..]);
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    out[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
}

fn put_series(body: &mut Vec<u8>, number: u32, series: &JournalSeries) {
    body.push(SERIES);
    body.extend(number.to_le_bytes());
    body.push(series.kind as u8);
    body.push(series.level);
    // Texts are far shorter than 64 KiB; see `pegel_metric::TEXT_BYTES_MAX`.
    body.extend((series.text.len() as u16).to_le_bytes());
    body.extend(series.text.as_bytes());
    body.extend(series.help.as_bytes());
}

/// Writes the part counted elsewhere first: without it, all of the lane's amounts would be counted.
fn put_lane(out: &mut Vec<u8>, id: &LaneId, lane: &JournalLane) {
    if !lane.counted_elsewhere.is_empty() {
        put_record(out, |body| {
            body.push(COUNTED_ELSEWHERE);
            body.extend(id);
            put_amounts(body, &lane.counted_elsewhere);
        });
    }
    put_record(out, |body| {
        body.push(LANE);
        body.extend(id);
        body.push(u8::from(lane.has_ended));
        body.extend(lane.position.to_le_bytes());
        put_amounts(body, &lane.amounts);
    });
}

fn put_amounts(body: &mut Vec<u8>, amounts: &[(u32, CounterAmount)]) {
    for (number, amount) in amounts {
        body.extend(number.to_le_bytes());
        body.extend(amount.to_bits().to_le_bytes());
    }
}

/// Returns the contents and the length of the valid records. The error is an unknown format.
pub fn parse_journal(bytes: &[u8]) -> Result<(JournalContents, usize), u32> {
    let mut kept = JournalContents::default();
    let mut at = 0;
    while let Some(body) = parse_record(&bytes[at..]) {
        match kept.apply_record(body) {
            Some(Ok(())) => {}
            Some(Err(format)) => return Err(format),
            None => break,
        }
        at += HEAD_BYTES + body.len();
    }
    kept.torn_bytes = (bytes.len() - at) as u64;
    Ok((kept, at))
}

fn parse_record(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let length = u32::from_le_bytes(head[..4].try_into().ok()?) as usize;
    let crc = u32::from_le_bytes(head[4..].try_into().ok()?);
    let body = rest.get(..length)?;
    (length <= RECORD_BYTES_MAX && crc32fast::hash(body) == crc).then_some(body)
}

impl JournalContents {
    /// Encodes a journal with exactly these contents.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_record(&mut bytes, |body| body.extend(begin_record()));
        for (&number, series) in &self.series {
            put_record(&mut bytes, |body| put_series(body, number, series));
        }
        for (number, amount) in &self.base {
            put_record(&mut bytes, |body| {
                body.push(BASE);
                body.extend(number.to_le_bytes());
                body.extend(amount.to_bits().to_le_bytes());
            });
        }
        for (id, lane) in &self.lanes {
            put_lane(&mut bytes, id, lane);
        }
        bytes
    }

    /// Returns `None` if the body is malformed, and the format if it is not supported.
    fn apply_record(&mut self, body: &[u8]) -> Option<Result<(), u32>> {
        let (&kind, mut rest) = body.split_first()?;
        match kind {
            BEGIN => {
                let format = take_u32(&mut rest)?;
                if format != FORMAT {
                    return Some(Err(format));
                }
            }
            SERIES => self.take_series(rest)?,
            BASE => {
                let number = take_u32(&mut rest)?;
                let amount = self.amount(number, take_u64(&mut rest)?)?;
                self.base.insert(number, amount);
            }
            LANE => {
                let id: LaneId = take(&mut rest)?;
                let [flags] = take(&mut rest)?;
                let position = take_u64(&mut rest)?;
                let amounts = self.take_amounts(rest)?;
                let lane = self.lanes.entry(id).or_default();
                lane.has_ended = flags & 1 == 1;
                lane.position = position;
                lane.amounts = amounts;
            }
            COUNTED_ELSEWHERE => {
                let id: LaneId = take(&mut rest)?;
                let before = self.take_amounts(rest)?;
                self.lanes.entry(id).or_default().counted_elsewhere = before;
            }
            REMOVED => self.fold_into_base(&take(&mut rest)?),
            _ => return None,
        }
        Some(Ok(()))
    }

    fn take_series(&mut self, mut rest: &[u8]) -> Option<()> {
        let number = take_u32(&mut rest)?;
        let [kind, level] = take(&mut rest)?;
        let text_bytes = u16::from_le_bytes(take(&mut rest)?);
        let (text, help) = rest.split_at_checked(usize::from(text_bytes))?;
        let series = JournalSeries {
            text: String::from_utf8(text.to_vec()).ok()?,
            help: String::from_utf8(help.to_vec()).ok()?,
            kind: CounterKind::from_byte(kind)?,
            level,
        };
        // Amounts are decoded by the kind of their series, which therefore must not change.
        let known = self.series.insert(number, series.clone());
        known
            .is_none_or(|known| known.kind == series.kind)
            .then_some(())
    }

    fn take_amounts(&self, mut rest: &[u8]) -> Option<Vec<(u32, CounterAmount)>> {
        let mut amounts = Vec::with_capacity(rest.len() / 12);
        while !rest.is_empty() {
            let number = take_u32(&mut rest)?;
            amounts.push((number, self.amount(number, take_u64(&mut rest)?)?));
        }
        Some(amounts)
    }

    fn amount(&self, number: u32, bits: u64) -> Option<CounterAmount> {
        Some(CounterAmount::from_bits(
            self.series.get(&number)?.kind,
            bits,
        ))
    }

    /// Moves the contribution of a lane to the base: the lane will not be read again.
    pub fn fold_into_base(&mut self, id: &LaneId) {
        let Some(lane) = self.lanes.remove(id) else {
            return;
        };
        for (number, amount) in lane.counted() {
            let zero = amount.minus(amount);
            let base = self.base.entry(number).or_insert(zero);
            *base = base.plus(amount);
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk::<N>()?;
    *rest = left;
    Some(*taken)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}
