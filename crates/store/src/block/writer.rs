//! Writes blocks: to a temporary file, which is synced and renamed, and then the directory is
//! synced. Before the rename the index is decoded as a reader would: a block that could not be read
//! back never gets its name, and the log and the blocks that it would replace are kept.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pegel_metric::{Millis, Series};

use crate::FORMAT_VERSION;
use crate::codec::byte_reader::{put_str, put_varint, put_zigzag};
use crate::files::{FileHandle, Files, write_all_at};
use crate::input_class::InputClass;
use crate::lz4_block::{pack, unpack};
use crate::sample_run::{RunColumn, RunOwner, SampleRun};
use crate::series_codec::{SeriesEncoder, encoded_bytes_max};

use super::{
    Block, BlockIndex, BlockKind, FOOTER_LEN, FOOTER_MAGIC, HEADER_LEN, MAGIC, block_path,
};

/// The bytes buffered per write.
const BUFFER_LEN: usize = 256 << 10;
/// The most bytes of a run in the index without its columns: six varints and a checksum.
const RUN_BYTES_MAX: usize = 48;
/// The most bytes of a column in the index: two varints of 32 bits and a checksum.
const COLUMN_BYTES_MAX: usize = 14;

/// Writes one block, run by run.
#[derive(Debug)]
pub(crate) struct BlockWriter {
    files: Arc<dyn Files>,
    dir: PathBuf,
    id: u64,
    kind: BlockKind,
    class: InputClass,
    file: Arc<dyn FileHandle>,
    tmp: PathBuf,
    written: u64,
    buffer: Vec<u8>,
    groups: Vec<Arc<str>>,
    series: HashMap<Arc<Series>, u32>,
    runs: Vec<WrittenRun>,
    columns: Vec<WrittenColumn>,
    /// The most bytes that the index takes before compression.
    index_bytes: usize,
    span: Option<(Millis, Millis)>,
}

#[derive(Debug)]
struct WrittenRun {
    group: u64,
    min: Millis,
    max: Millis,
    rows: usize,
    times_len: usize,
    times_crc: u32,
    columns: usize,
}

#[derive(Debug)]
struct WrittenColumn {
    series: u32,
    len: u32,
    crc: u32,
}

/// The footer fields that refer to other files.
#[derive(Debug, Default)]
pub(crate) struct FooterFields {
    pub log_through: u64,
    pub sealed_until: Millis,
    pub replaces: Vec<u64>,
}

impl BlockWriter {
    pub(crate) fn create(
        files: &Arc<dyn Files>,
        dir: &Path,
        id: u64,
        kind: BlockKind,
        class: InputClass,
    ) -> io::Result<BlockWriter> {
        files.make_dir(dir)?;
        let tmp = dir.join(format!("{id:010}.tmp"));
        let file = files.create(&tmp)?;
        let mut buffer = Vec::with_capacity(BUFFER_LEN);
        buffer.extend_from_slice(MAGIC);
        buffer.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        buffer.extend_from_slice(&[kind as u8, class as u8, 0, 0]);
        let crc = crc32fast::hash(&buffer);
        buffer.extend_from_slice(&crc.to_le_bytes());
        debug_assert_eq!(buffer.len(), HEADER_LEN);
        Ok(BlockWriter {
            files: files.clone(),
            dir: dir.to_owned(),
            id,
            kind,
            class,
            file,
            tmp,
            written: 0,
            buffer,
            groups: Vec::new(),
            series: HashMap::new(),
            runs: Vec::new(),
            columns: Vec::new(),
            index_bytes: 0,
            span: None,
        })
    }

    /// Returns how many of these columns of a run fit into an index of this size, from the first
    /// one on.
    pub(crate) fn columns_that_fit(
        &self,
        run: &SampleRun,
        columns: &[RunColumn],
        index_bytes_max: usize,
    ) -> usize {
        let left = index_bytes_max.saturating_sub(self.index_bytes);
        let Some(mut left) = left.checked_sub(owner_bytes_max(&run.owner)) else {
            return 0;
        };
        let fits = |column: &&RunColumn| {
            let series = &run.owner.series()[column.member as usize];
            match left.checked_sub(COLUMN_BYTES_MAX + self.series_bytes_max(series)) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => false,
            }
        };
        columns.iter().take_while(fits).count()
    }

    /// Returns the most bytes that a series adds to the index.
    fn series_bytes_max(&self, series: &Arc<Series>) -> usize {
        match self.series.contains_key(series) {
            true => 0,
            false => encoded_bytes_max(series),
        }
    }

    /// Adds some columns of a run, which are a run of their own in the block.
    pub(crate) fn add(&mut self, run: &SampleRun, columns: &[RunColumn]) -> io::Result<()> {
        if columns.is_empty() {
            return Ok(());
        }
        self.index_bytes += owner_bytes_max(&run.owner);
        let group = match &run.owner {
            RunOwner::Group(members) => self.group_number(&members.group) + 1,
            RunOwner::Series(_) => 0,
        };
        self.runs.push(WrittenRun {
            group,
            min: run.min,
            max: run.max,
            rows: run.rows,
            times_len: run.times.len(),
            times_crc: crc32fast::hash(&run.times),
            columns: columns.len(),
        });
        self.buffer.extend_from_slice(&run.times);
        for column in columns {
            let bytes = run.column_bytes(column);
            let series = &run.owner.series()[column.member as usize];
            self.index_bytes += COLUMN_BYTES_MAX + self.series_bytes_max(series);
            let next = self.series.len() as u32;
            let series = *self.series.entry(series.clone()).or_insert(next);
            self.columns.push(WrittenColumn {
                series,
                len: bytes.len() as u32,
                crc: crc32fast::hash(bytes),
            });
            self.buffer.extend_from_slice(bytes);
        }
        let (min, max) = self.span.unwrap_or((run.min, run.max));
        self.span = Some((min.min(run.min), max.max(run.max)));
        if self.buffer.len() >= BUFFER_LEN {
            self.flush_buffer()?;
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Removes the incomplete file.
    pub(crate) fn discard(self) {
        let _ = self.files.remove(&self.tmp);
    }

    /// Completes the block under its final name. When this returns, it survives a power failure.
    pub(crate) fn finish(mut self, ending: FooterFields) -> io::Result<Block> {
        let result = self.write_index_and_footer(&ending);
        match result {
            Ok((min, max, index_at, index_len, index_crc)) => Ok(Block {
                id: self.id,
                kind: self.kind,
                class: self.class,
                path: block_path(&self.dir, self.id),
                min,
                max,
                bytes: self.written,
                log_through: ending.log_through,
                sealed_until: ending.sealed_until,
                replaces: ending.replaces,
                index_at,
                index_len,
                index_crc,
                files: self.files,
                deletes_on_drop: AtomicBool::new(false),
                is_marked_damaged: AtomicBool::new(false),
            }),
            Err(error) => {
                self.discard();
                Err(error)
            }
        }
    }

    fn write_index_and_footer(
        &mut self,
        ending: &FooterFields,
    ) -> io::Result<(Millis, Millis, u64, u32, u32)> {
        // An empty block may still be needed for its references to other files.
        let (min, max) = self.span.unwrap_or((Millis::MIN, Millis::MIN));
        let index_at = self.written + self.buffer.len() as u64;
        let mut index = Vec::new();
        pack(&self.encode_index(), &mut index).map_err(io::Error::other)?;
        // The log and the merged blocks are removed once this block has its name.
        unpack(&index)
            .and_then(|raw| BlockIndex::decode(&raw, HEADER_LEN as u64, index_at))
            .map_err(|error| io::Error::other(format!("the index cannot be read: {error}")))?;
        let index_crc = crc32fast::hash(&index);
        self.buffer.extend_from_slice(&index);
        let covered = self.buffer.len();
        for id in &ending.replaces {
            self.buffer.extend_from_slice(&id.to_le_bytes());
        }
        let footer_at = self.buffer.len();
        self.buffer.extend_from_slice(&index_at.to_le_bytes());
        self.buffer
            .extend_from_slice(&(index.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(&index_crc.to_le_bytes());
        self.buffer.extend_from_slice(&min.to_le_bytes());
        self.buffer.extend_from_slice(&max.to_le_bytes());
        self.buffer
            .extend_from_slice(&ending.log_through.to_le_bytes());
        self.buffer
            .extend_from_slice(&ending.sealed_until.to_le_bytes());
        self.buffer
            .extend_from_slice(&(ending.replaces.len() as u32).to_le_bytes());
        let crc = crc32fast::hash(&self.buffer[covered..]);
        self.buffer.extend_from_slice(&crc.to_le_bytes());
        self.buffer.extend_from_slice(FOOTER_MAGIC);
        debug_assert_eq!(self.buffer.len() - footer_at, FOOTER_LEN);
        self.flush_buffer()?;
        self.file.sync()?;
        self.files
            .rename(&self.tmp, &block_path(&self.dir, self.id))?;
        self.files.sync_dir(&self.dir)?;
        Ok((min, max, index_at, index.len() as u32, index_crc))
    }

    fn encode_index(&self) -> Vec<u8> {
        let mut sorted: Vec<(&Arc<Series>, u32)> = self
            .series
            .iter()
            .map(|(series, id)| (series, *id))
            .collect();
        sorted.sort_unstable();
        let mut positions = vec![0u64; sorted.len()];
        let mut raw = Vec::new();
        put_varint(&mut raw, self.groups.len() as u64);
        self.groups.iter().for_each(|name| put_str(&mut raw, name));
        put_varint(&mut raw, sorted.len() as u64);
        let mut writer = SeriesEncoder::default();
        for (at, (series, id)) in sorted.into_iter().enumerate() {
            positions[id as usize] = at as u64;
            writer.put(series, &mut raw);
        }
        put_varint(&mut raw, self.runs.len() as u64);
        let mut columns = self.columns.iter();
        for run in &self.runs {
            put_varint(&mut raw, run.group);
            put_zigzag(&mut raw, run.min);
            put_varint(&mut raw, run.max.abs_diff(run.min));
            put_varint(&mut raw, run.rows as u64);
            put_varint(&mut raw, run.times_len as u64);
            raw.extend_from_slice(&run.times_crc.to_le_bytes());
            put_varint(&mut raw, run.columns as u64);
            for column in columns.by_ref().take(run.columns) {
                put_varint(&mut raw, positions[column.series as usize]);
                put_varint(&mut raw, u64::from(column.len));
                raw.extend_from_slice(&column.crc.to_le_bytes());
            }
        }
        raw
    }

    fn group_number(&mut self, name: &Arc<str>) -> u64 {
        let at = self
            .groups
            .iter()
            .position(|known| known == name)
            .unwrap_or_else(|| {
                self.groups.push(name.clone());
                self.groups.len() - 1
            });
        at as u64
    }

    fn flush_buffer(&mut self) -> io::Result<()> {
        write_all_at(&*self.file, &self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Returns the most bytes that a run and the name of its group take in the index.
fn owner_bytes_max(owner: &RunOwner) -> usize {
    RUN_BYTES_MAX
        + match owner {
            RunOwner::Group(members) => members.group.len(),
            RunOwner::Series(_) => 0,
        }
}
