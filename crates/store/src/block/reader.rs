//! Reads blocks: header, footer, index and columns. Every part is verified by its checksum before
//! it is decoded; a damaged column costs only itself.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pegel_metric::{GroupSeries, Millis};

use crate::FORMAT_VERSION;
use crate::codec::byte_reader::ByteReader;
use crate::codec::{self, DecodeError};
use crate::files::{FileHandle, Files, read_exact_at};
use crate::input_class::InputClass;
use crate::lz4_block::unpack;
use crate::sample_run::{DecodedColumn, RunColumn, RunOwner, SampleRun, decode_column};

use super::{
    Block, BlockIndex, BlockKind, FOOTER_LEN, FOOTER_MAGIC, HEADER_LEN, IndexCache, MAGIC,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum BlockReadError {
    #[error("unsupported format {0}")]
    Version(u32),
    #[error("{}", .0.0)]
    Corrupt(#[from] DecodeError),
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for BlockReadError {
    fn from(error: io::Error) -> BlockReadError {
        match error.kind() {
            // A file shorter than its index claims is damaged; reading it again will not help.
            io::ErrorKind::UnexpectedEof => BlockReadError::Corrupt(DecodeError("truncated file")),
            _ => BlockReadError::Io(error),
        }
    }
}

/// Returns the version in a block's header; fails if the header is damaged.
pub(crate) fn block_version(file: &dyn FileHandle) -> Result<u32, BlockReadError> {
    Ok(read_header(file)?.0)
}

/// Returns the version, and the word with the codes of kind and class.
fn read_header(file: &dyn FileHandle) -> Result<(u32, u32), BlockReadError> {
    let header = read_exact_at(file, 0, HEADER_LEN)?;
    if &header[..8] != MAGIC {
        return Err(DecodeError("not a block file").into());
    }
    if word(&header, 16) != crc32fast::hash(&header[..16]) {
        return Err(DecodeError("wrong checksum of the header").into());
    }
    Ok((word(&header, 8), word(&header, 12)))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Reads header and footer, and verifies the checksum of the index.
pub(crate) fn open_block(
    files: &Arc<dyn Files>,
    path: &Path,
    id: u64,
) -> Result<Block, BlockReadError> {
    let file = files.open(path)?;
    let len = file.size()?;
    let (version, kind) = read_header(&*file)?;
    if version != FORMAT_VERSION {
        return Err(BlockReadError::Version(version));
    }
    let class = InputClass::from_code(kind >> 8).ok_or(DecodeError("unknown class of inputs"))?;
    let kind = BlockKind::from_code(kind & 0xff).ok_or(DecodeError("unknown kind of block"))?;
    let footer_at = len
        .checked_sub(FOOTER_LEN as u64)
        .ok_or(DecodeError("truncated file"))?;
    let footer = read_exact_at(&*file, footer_at, FOOTER_LEN)?;
    if &footer[FOOTER_LEN - 4..] != FOOTER_MAGIC {
        return Err(DecodeError("no footer").into());
    }
    let mut reader = ByteReader::new(&footer);
    let index_at = reader.u64()?;
    let index_len = reader.u32()?;
    let index_crc = reader.u32()?;
    let min = reader.u64()? as Millis;
    let max = reader.u64()? as Millis;
    let log_through = reader.u64()?;
    let sealed_until = reader.u64()? as Millis;
    let replaces_len = u64::from(reader.u32()?) * 8;
    let index_end = index_at.checked_add(u64::from(index_len));
    if index_end.and_then(|end| end.checked_add(replaces_len)) != Some(footer_at) {
        return Err(DecodeError("footer contradicts the file size").into());
    }
    let replaces = read_exact_at(&*file, footer_at - replaces_len, replaces_len as usize)?;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&replaces);
    crc.update(&footer[..FOOTER_LEN - 8]);
    if crc.finalize() != word(&footer, FOOTER_LEN - 8) {
        return Err(DecodeError("wrong checksum of the footer").into());
    }
    if crc32fast::hash(&read_exact_at(&*file, index_at, index_len as usize)?) != index_crc {
        return Err(DecodeError("wrong checksum of the index").into());
    }
    let ids = replaces
        .chunks_exact(8)
        .map(|id| u64::from_le_bytes(id.try_into().expect("eight bytes")));
    Ok(Block {
        id,
        kind,
        class,
        path: path.to_owned(),
        min,
        max,
        bytes: len,
        log_through,
        sealed_until,
        replaces: ids.collect(),
        index_at,
        index_len,
        index_crc,
        files: files.clone(),
        deletes_on_drop: AtomicBool::new(false),
        is_marked_damaged: AtomicBool::new(false),
    })
}

/// A stretch of a run that was read ahead.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    at: u64,
    bytes: Vec<u8>,
    /// The bytes read at once; the columns of the run are needed in any order if it is longer than
    /// usual.
    len: u64,
}

impl ReadAhead {
    /// The bytes that are usually read at once.
    const LEN: u64 = 32 << 10;

    /// Creates an empty stretch. `whole` is the size of the run if all of it is to be read at once,
    /// else 0.
    pub(crate) fn new(whole: usize) -> ReadAhead {
        ReadAhead {
            at: 0,
            bytes: Vec::new(),
            len: (whole as u64).max(ReadAhead::LEN),
        }
    }
}

/// A block with its index. Its file may be closed between reads, to limit open files; the next read
/// reopens it.
#[derive(Debug)]
pub(crate) struct BlockReader {
    pub block: Arc<Block>,
    pub index: Arc<BlockIndex>,
    file: RefCell<Option<Arc<dyn FileHandle>>>,
}

impl BlockReader {
    pub(crate) fn open(
        block: &Arc<Block>,
        cache: &IndexCache,
    ) -> Result<BlockReader, BlockReadError> {
        let file = block.files.open(&block.path)?;
        let index = cache.get_or(block.id, || -> Result<BlockIndex, BlockReadError> {
            let packed = read_exact_at(&*file, block.index_at, block.index_len as usize)?;
            if crc32fast::hash(&packed) != block.index_crc {
                return Err(DecodeError("wrong checksum of the index").into());
            }
            Ok(BlockIndex::decode(
                &unpack(&packed)?,
                HEADER_LEN as u64,
                block.index_at,
            )?)
        })?;
        Ok(BlockReader {
            block: block.clone(),
            index,
            file: RefCell::new(Some(file)),
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.file.borrow().is_some()
    }

    /// Closes the file; the next read reopens it.
    pub(crate) fn close(&self) {
        *self.file.borrow_mut() = None;
    }

    fn read(&self, at: u64, len: usize) -> Result<Vec<u8>, BlockReadError> {
        let mut open = self.file.borrow_mut();
        let file = match &*open {
            Some(file) => file,
            None => match self.block.files.open(&self.block.path) {
                Ok(file) => open.insert(file),
                // Only a damaged block is moved while it is read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(DecodeError("the file was set aside").into());
                }
                Err(error) => return Err(error.into()),
            },
        };
        Ok(read_exact_at(&**file, at, len)?)
    }

    pub(crate) fn times(&self, run: u32) -> Result<Vec<Millis>, BlockReadError> {
        let entry = &self.index.runs[run as usize];
        let bytes = self.read_checked(entry.at, entry.times_len, entry.times_crc)?;
        let mut times = Vec::with_capacity(entry.rows);
        codec::decode_times(&bytes, entry.rows, &mut times)?;
        Ok(times)
    }

    /// Returns the size of the columns of a run if they are most of the bytes from the first to the
    /// last of them, else 0. The index lists the wanted columns only.
    pub(crate) fn dense_bytes(&self, run: u32) -> usize {
        let columns = &self.index.runs[run as usize].columns;
        let columns = &self.index.columns[columns.start as usize..columns.end as usize];
        let (Some(first), Some(last)) = (columns.first(), columns.last()) else {
            return 0;
        };
        let all = last.at + u64::from(last.len) - first.at;
        let wanted: u64 = columns.iter().map(|column| u64::from(column.len)).sum();
        if 2 * wanted >= all { all as usize } else { 0 }
    }

    /// Decodes one column. With `ahead`, the following columns are read too and kept there for the
    /// next calls.
    pub(crate) fn samples(
        &self,
        run: u32,
        column: u32,
        ahead: Option<&mut ReadAhead>,
        into: &mut DecodedColumn,
    ) -> Result<(), BlockReadError> {
        let run = &self.index.runs[run as usize];
        let entry = &self.index.columns[column as usize];
        let Some(ahead) = ahead else {
            let bytes = self.read_checked(entry.at, entry.len, entry.crc)?;
            return Ok(decode_column(&bytes, run.rows, into)?);
        };
        let end = entry.at + u64::from(entry.len);
        if entry.at < ahead.at || end > ahead.at + ahead.bytes.len() as u64 {
            let last = &self.index.columns[run.columns.end as usize - 1];
            let run_end = last.at + u64::from(last.len);
            let first = &self.index.columns[run.columns.start as usize];
            let is_whole = ahead.len >= run_end - first.at;
            let from = if is_whole { first.at } else { entry.at };
            let until = run_end.min(from + ahead.len).max(end);
            ahead.bytes = self.read(from, (until - from) as usize)?;
            ahead.at = from;
        }
        let start = (entry.at - ahead.at) as usize;
        let bytes = &ahead.bytes[start..start + entry.len as usize];
        if crc32fast::hash(bytes) != entry.crc {
            return Err(DecodeError("wrong checksum of a column").into());
        }
        Ok(decode_column(bytes, run.rows, into)?)
    }

    /// Reads a whole run, without its damaged columns; `None` if its times are damaged. Either
    /// marks the block as damaged.
    pub(crate) fn run(&self, number: u32) -> Result<Option<SampleRun>, BlockReadError> {
        let entry = &self.index.runs[number as usize];
        let columns = &self.index.columns[entry.columns.start as usize..entry.columns.end as usize];
        let end = columns
            .last()
            .map_or(entry.at, |column| column.at + u64::from(column.len));
        let bytes = self.read(entry.at, (end - entry.at) as usize)?;
        let (times, data) = bytes.split_at(entry.times_len as usize);
        if crc32fast::hash(times) != entry.times_crc {
            self.block.mark_damaged();
            return Ok(None);
        }
        let data_at = entry.at + u64::from(entry.times_len);
        let series = columns
            .iter()
            .map(|column| self.index.series[column.series as usize].clone())
            .collect();
        let mut run = SampleRun {
            owner: self.owner(entry.group, series),
            rows: entry.rows,
            min: entry.min,
            max: entry.max,
            times: times.to_owned(),
            columns: Vec::with_capacity(columns.len()),
            data: data.to_owned(),
        };
        for (member, column) in columns.iter().enumerate() {
            let start = (column.at - data_at) as u32;
            let end = start + column.len;
            if crc32fast::hash(&data[start as usize..end as usize]) == column.crc {
                run.columns.push(RunColumn {
                    member: member as u32,
                    start,
                    end,
                });
            } else {
                self.block.mark_damaged();
            }
        }
        Ok(Some(run))
    }

    fn owner(&self, group: Option<u32>, mut series: Vec<Arc<pegel_metric::Series>>) -> RunOwner {
        match group {
            None if series.len() == 1 => RunOwner::Series(series.remove(0)),
            // The store never writes an ungrouped run with several columns; it is read like a
            // group.
            None => RunOwner::Group(Arc::new(GroupSeries {
                group: "".into(),
                series,
                stale_after: 0,
            })),
            Some(number) => {
                let group = self.index.groups[number as usize].clone();
                RunOwner::Group(Arc::new(GroupSeries {
                    group,
                    series,
                    stale_after: 0,
                }))
            }
        }
    }

    fn read_checked(&self, at: u64, len: u32, crc: u32) -> Result<Vec<u8>, BlockReadError> {
        let bytes = self.read(at, len as usize)?;
        if crc32fast::hash(&bytes) != crc {
            return Err(DecodeError("wrong checksum of a column").into());
        }
        Ok(bytes)
    }
}
