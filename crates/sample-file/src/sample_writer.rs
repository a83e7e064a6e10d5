//! Builds one file of samples in either format. Callers start another file when
//! [`SampleWriter::is_full`], which bounds memory.

use pegel_metric::{Millis, Series};

use crate::csv::CsvWriter;
use crate::digest::{DigestBuilder, SampleDigest};
use crate::parquet_writer::{FILE_BYTES_TARGET, FILE_ROWS_MAX, ParquetWriter};

/// The format of a file of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleFileFormat {
    Parquet,
    Csv,
}

impl SampleFileFormat {
    pub const ALL: [SampleFileFormat; 2] = [SampleFileFormat::Parquet, SampleFileFormat::Csv];

    /// Returns the name, which is also the extension of files.
    pub fn as_str(self) -> &'static str {
        match self {
            SampleFileFormat::Parquet => "parquet",
            SampleFileFormat::Csv => "csv",
        }
    }

    pub fn parse(text: &str) -> Option<SampleFileFormat> {
        SampleFileFormat::ALL
            .into_iter()
            .find(|format| format.as_str() == text)
    }
}

/// The reason why a file cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum SampleFileError {
    /// An error of the Parquet library. Writing to memory does not fail otherwise.
    #[error("cannot write a Parquet file: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    #[error("the file exceeds {0} bytes")]
    TooLarge(usize),
}

/// A complete file.
#[derive(Debug)]
pub struct FinishedFile {
    pub bytes: Vec<u8>,
    pub samples: u64,
    pub digest: SampleDigest,
    /// The times of the oldest and the newest sample.
    pub span: Option<(Millis, Millis)>,
}

/// Builds one file in memory.
#[derive(Debug)]
pub struct SampleWriter {
    format: FormatWriter,
    bytes_max: usize,
    digest: DigestBuilder,
    samples: u64,
    span: Option<(Millis, Millis)>,
}

#[derive(Debug)]
enum FormatWriter {
    Parquet(Box<ParquetWriter>),
    Csv(CsvWriter),
}

impl SampleWriter {
    /// Begins a file with the samples of a node. The metadata of a Parquet file contain its name.
    pub fn new(format: SampleFileFormat, node: &str) -> Result<SampleWriter, SampleFileError> {
        SampleWriter::with_limit(format, node, usize::MAX)
    }

    /// Begins a file that fails with [`SampleFileError::TooLarge`] when it exceeds a size. CSV
    /// repeats the labels in every row: a few samples with long labels can need much memory.
    pub fn with_limit(
        format: SampleFileFormat,
        node: &str,
        bytes_max: usize,
    ) -> Result<SampleWriter, SampleFileError> {
        Ok(SampleWriter {
            bytes_max,
            format: match format {
                SampleFileFormat::Parquet => {
                    FormatWriter::Parquet(Box::new(ParquetWriter::new(node)?))
                }
                SampleFileFormat::Csv => FormatWriter::Csv(CsvWriter::new()),
            },
            digest: DigestBuilder::new(),
            samples: 0,
            span: None,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// Returns whether the file is large enough: the next series belongs to another file.
    pub fn is_full(&self) -> bool {
        self.samples >= FILE_ROWS_MAX as u64 || self.bytes() >= FILE_BYTES_TARGET
    }

    /// Returns the bytes in memory, roughly.
    pub fn bytes(&self) -> usize {
        match &self.format {
            FormatWriter::Parquet(writer) => writer.bytes(),
            FormatWriter::Csv(writer) => writer.bytes(),
        }
    }

    /// Adds samples of a series, in the order of their times.
    pub fn add(
        &mut self,
        series: &Series,
        points: &[(Millis, f64)],
    ) -> Result<(), SampleFileError> {
        let (Some((first, _)), Some((last, _))) = (points.first(), points.last()) else {
            return Ok(());
        };
        let (min, max) = self.span.unwrap_or((*first, *last));
        self.span = Some((min.min(*first), max.max(*last)));
        self.samples += points.len() as u64;
        self.digest.add(series, points);
        match &mut self.format {
            FormatWriter::Parquet(writer) => writer.add(series, points)?,
            FormatWriter::Csv(writer) => writer.add(series, points, self.bytes_max),
        }
        match self.bytes() > self.bytes_max {
            true => Err(SampleFileError::TooLarge(self.bytes_max)),
            false => Ok(()),
        }
    }

    pub fn finish(self) -> Result<FinishedFile, SampleFileError> {
        Ok(FinishedFile {
            bytes: match self.format {
                FormatWriter::Parquet(writer) => writer.finish()?,
                FormatWriter::Csv(writer) => writer.finish(),
            },
            samples: self.samples,
            digest: self.digest.finish(),
            span: self.span,
        })
    }
}

#[cfg(test)]
mod tests;
