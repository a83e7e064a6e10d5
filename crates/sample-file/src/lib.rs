//! Encodes samples as files for analysis: Parquet and CSV. The archive, `pegel export` and
//! `/api/v1/export` use it. Files are built in memory; this crate has no I/O.
//!
//! Both formats have the same columns, one row per sample:
//!
//! | column | content |
//! |---|---|
//! | `time` | milliseconds, UTC |
//! | `name` | the name of the metric |
//! | `labels` | a JSON object of strings with sorted keys: `{"cpu":"0","mode":"idle"}` |
//! | `value` | the value, bit for bit |
//! | `kind` | `counter`, `gauge` or `unknown` |
//! | `input` | the input that received the sample, as in `/status` |
//!
//! Rows are in the order in which they are added: by series, then by time. The same samples give
//! the same bytes with the same version of this program, and the same [`SampleDigest`] with every
//! version.

mod csv;
mod digest;
mod labels;
mod parquet_writer;
mod sample_writer;

pub use digest::SampleDigest;
pub use parquet_writer::{FILE_BYTES_TARGET, FILE_ROWS_MAX};
pub use sample_writer::{FinishedFile, SampleFileError, SampleFileFormat, SampleWriter};
