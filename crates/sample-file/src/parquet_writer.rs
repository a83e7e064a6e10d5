//! Parquet, written without Arrow. Rows are collected for one row group, which is then encoded
//! column by column; a file consists of few row groups, so that memory is bounded by
//! [`FILE_BYTES_TARGET`] and one row group.
//!
//! Text columns are encoded with dictionaries, times as differences, values with their bytes in
//! separate streams, which zstd compresses best: neighbours are samples of one series. Readers skip
//! row groups by the smallest and largest `time`, `name` and `labels`.

use std::sync::{Arc, LazyLock};

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type as SchemaType};
use pegel_metric::{Millis, Series};

use crate::labels::labels_json;

/// The most rows of a row group.
const GROUP_ROWS: usize = 256 << 10;
/// The most bytes of names and labels in a row group, unless a single series has more.
const GROUP_TEXT_BYTES: usize = 8 << 20;
/// A file with this many rows gets no further series.
pub const FILE_ROWS_MAX: usize = 4 << 20;
/// A file with this many bytes gets no further series.
pub const FILE_BYTES_TARGET: usize = 32 << 20;
/// The number of rows of a text column that are passed to the encoder at once.
const TEXT_ROWS: usize = 1024;

/// The columns, in order.
const COLUMNS: [&str; 6] = ["time", "name", "labels", "value", "kind", "input"];

/// Consecutive rows of one series.
#[derive(Debug)]
struct SeriesRows {
    name: ByteArray,
    labels: ByteArray,
    kind: &'static str,
    input: &'static str,
    count: usize,
}

pub(crate) struct ParquetWriter {
    file: SerializedFileWriter<Vec<u8>>,
    times: Vec<i64>,
    values: Vec<f64>,
    series: Vec<SeriesRows>,
    text_bytes: usize,
}

impl ParquetWriter {
    pub(crate) fn new(node: &str) -> Result<ParquetWriter> {
        let properties = Arc::new(properties(node)?);
        Ok(ParquetWriter {
            file: SerializedFileWriter::new(Vec::new(), schema()?, properties)?,
            times: Vec::new(),
            values: Vec::new(),
            series: Vec::new(),
            text_bytes: 0,
        })
    }

    /// Returns the bytes of the row groups that are encoded.
    pub(crate) fn bytes(&self) -> usize {
        self.file.bytes_written()
    }

    pub(crate) fn add(&mut self, series: &Series, mut points: &[(Millis, f64)]) -> Result<()> {
        let (name, labels) = (series.name(), labels_json(series));
        let family = series.family();
        while !points.is_empty() {
            let room = GROUP_ROWS - self.times.len();
            let (rows, rest) = points.split_at(points.len().min(room));
            self.times.extend(rows.iter().map(|(time, _)| *time));
            self.values.extend(rows.iter().map(|(_, value)| *value));
            self.text_bytes += name.len() + labels.len();
            self.series.push(SeriesRows {
                name: name.into(),
                labels: labels.as_str().into(),
                kind: family.kind.as_str(),
                input: family.input.as_str(),
                count: rows.len(),
            });
            points = rest;
            if self.times.len() >= GROUP_ROWS || self.text_bytes >= GROUP_TEXT_BYTES {
                self.write_group()?;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<Vec<u8>> {
        self.write_group()?;
        self.file.into_inner()
    }

    fn write_group(&mut self) -> Result<()> {
        if self.times.is_empty() {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        let (series, times, values) = (&self.series, &self.times, &self.values);
        write_column(&mut group, |column| {
            column.typed::<Int64Type>().write_batch(times, None, None)
        })?;
        write_texts(&mut group, series, |rows| rows.name.clone())?;
        write_texts(&mut group, series, |rows| rows.labels.clone())?;
        write_column(&mut group, |column| {
            column.typed::<DoubleType>().write_batch(values, None, None)
        })?;
        write_texts(&mut group, series, |rows| rows.kind.into())?;
        write_texts(&mut group, series, |rows| rows.input.into())?;
        group.close()?;
        self.times.clear();
        self.values.clear();
        self.series.clear();
        self.text_bytes = 0;
        Ok(())
    }
}

impl std::fmt::Debug for ParquetWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rows = self.times.len();
        let mut text = f.debug_struct("ParquetWriter");
        text.field("pending_rows", &rows).finish_non_exhaustive()
    }
}

type ColumnWriter<'a> = parquet::file::writer::SerializedColumnWriter<'a>;

/// Writes the next column of a row group.
fn write_column(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    write: impl FnOnce(&mut ColumnWriter<'_>) -> Result<usize>,
) -> Result<()> {
    let missing = || ParquetError::General("the schema has fewer columns".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    write(&mut column)?;
    column.close()
}

/// Writes a column with one text per series. Copies of a text share its bytes.
fn write_texts(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    series: &[SeriesRows],
    text: impl Fn(&SeriesRows) -> ByteArray,
) -> Result<()> {
    write_column(group, |column| {
        let mut batch: Vec<ByteArray> = Vec::with_capacity(TEXT_ROWS);
        let mut written = 0;
        for rows in series {
            let text = text(rows);
            let mut left = rows.count;
            while left > 0 {
                let count = left.min(TEXT_ROWS - batch.len());
                batch.extend(std::iter::repeat_n(text.clone(), count));
                left -= count;
                if batch.len() == TEXT_ROWS {
                    written += write_batch(column, &mut batch)?;
                }
            }
        }
        Ok(written + write_batch(column, &mut batch)?)
    })
}

fn write_batch(column: &mut ColumnWriter<'_>, batch: &mut Vec<ByteArray>) -> Result<usize> {
    let written = column
        .typed::<ByteArrayType>()
        .write_batch(batch, None, None)?;
    batch.clear();
    Ok(written)
}

fn properties(node: &str) -> Result<WriterProperties> {
    let path = |name: &str| ColumnPath::new(vec![name.to_owned()]);
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("pegel ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(vec![KeyValue::new(
            "pegel.node".to_owned(),
            node.to_owned(),
        )]));
    for (name, encoding) in [
        ("time", Encoding::DELTA_BINARY_PACKED),
        ("value", Encoding::BYTE_STREAM_SPLIT),
    ] {
        builder = builder
            .set_column_dictionary_enabled(path(name), false)
            .set_column_encoding(path(name), encoding);
    }
    for name in ["time", "name", "labels"] {
        builder = builder.set_column_statistics_enabled(path(name), EnabledStatistics::Page);
    }
    Ok(builder.build())
}

static SCHEMA: LazyLock<Result<Arc<SchemaType>>> = LazyLock::new(|| {
    let columns = COLUMNS.iter().map(|name| {
        let (physical, logical) = match *name {
            "time" => (
                Type::INT64,
                Some(LogicalType::timestamp(true, TimeUnit::MILLIS)),
            ),
            "value" => (Type::DOUBLE, None),
            _ => (Type::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let column = SchemaType::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(logical)
            .build()?;
        Ok(Arc::new(column))
    });
    let columns: Result<Vec<_>> = columns.collect();
    let builder = SchemaType::group_type_builder("samples").with_fields(columns?);
    Ok(Arc::new(builder.build()?))
});

fn schema() -> Result<Arc<SchemaType>> {
    let schema = SCHEMA.as_ref();
    schema
        .cloned()
        .map_err(|error| ParquetError::General(error.to_string()))
}
