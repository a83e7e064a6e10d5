//! Writes samples of other programs to a new store, which an agent then serves. `pegel view` uses
//! it for the database files of Dragon's telemetry.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use pegel_config::{ByteSize, TimeSpan};
use pegel_metric::{Family, Input, MetricKind, Millis, Point, Series};
use pegel_store::{PushError, Store, StoreOpenError, StoreOptions};

use crate::agent_settings::{FOREVER, STORED_BYTES_MAX};

/// The most series of one import: as many as a store keeps.
const SERIES_MAX: usize = 200_000;
/// Samples that are written at once.
const BATCH: usize = 5_000;
/// Samples after which those in memory are written to blocks.
const BLOCK: usize = 1_000_000;

#[derive(Debug, thiserror::Error)]
pub enum SampleImportError {
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    #[error("cannot store samples: {0}")]
    Push(#[from] PushError),
}

/// A store that is being written.
#[derive(Debug)]
pub struct SampleImport {
    store: Store,
    family: Arc<Family>,
    /// By the texts of the name and the labels, as the caller has them.
    series: HashMap<(String, String), Option<Arc<Series>>>,
    batch: Vec<Point>,
    in_memory: usize,
    refused: u64,
}

impl SampleImport {
    /// Creates a store in a new directory.
    pub fn create(dir: &Path) -> Result<SampleImport, SampleImportError> {
        let mut options = StoreOptions::new(dir);
        options.keep.disk = TimeSpan::seconds(FOREVER);
        options.keep.bytes = Some(ByteSize::bytes(STORED_BYTES_MAX));
        // Such files do not tell counters and gauges apart.
        let family = Family::new("", MetricKind::Unknown, "", 0, "").of_input(Input::Http);
        Ok(SampleImport {
            store: Store::open(options)?,
            family: Arc::new(family),
            series: HashMap::new(),
            batch: Vec::new(),
            in_memory: 0,
            refused: 0,
        })
    }

    /// Adds a sample. `labels` is called once for each series; a malformed one is refused, and its
    /// samples are counted.
    pub fn add(
        &mut self,
        name: &str,
        labels_text: &str,
        labels: impl FnOnce(&str) -> Option<Vec<(String, String)>>,
        (time, value): (Millis, f64),
    ) -> Result<(), SampleImportError> {
        let key = (name.to_owned(), labels_text.to_owned());
        if self.series.len() >= SERIES_MAX && !self.series.contains_key(&key) {
            self.refused += 1;
            return Ok(());
        }
        let family = &self.family;
        let series = self.series.entry(key).or_insert_with(|| {
            let labels = labels(labels_text)?;
            let labels = labels.iter().map(|(key, value)| (&**key, &**value));
            let labels: Vec<(&str, &str)> = labels.collect();
            let series = Series::named(family.clone(), name, &labels).ok()?;
            Some(Arc::new(series))
        });
        let Some(series) = series.clone() else {
            self.refused += 1;
            return Ok(());
        };
        let point = Point {
            series,
            time,
            value,
        };
        self.batch.push(point);
        match self.batch.len() >= BATCH {
            true => self.write(),
            false => Ok(()),
        }
    }

    /// Counts a sample that cannot be read.
    pub fn refuse(&mut self) {
        self.refused += 1;
    }

    fn write(&mut self) -> Result<(), SampleImportError> {
        let points = std::mem::take(&mut self.batch);
        let count = points.len();
        let pushed = self.store.push(Input::Http, points)?;
        self.refused += count.saturating_sub(pushed.kept as usize) as u64;
        self.in_memory += count;
        if self.in_memory >= BLOCK {
            self.in_memory = 0;
            self.store.flush_to_blocks();
        }
        Ok(())
    }

    /// Writes what is left and closes the store. Returns the number of refused samples.
    pub fn finish(mut self) -> Result<u64, SampleImportError> {
        self.write()?;
        self.store.close();
        Ok(self.refused)
    }
}
