//! Readers of files on disk, for fuzz targets.

pub use crate::parent::parse_backfill_file;
