//! Collectors that walk through directories of `/sys` and discover the devices in each pass. A walk writes its
//! values through a [`SeriesWriter`], which declares new series and retires those that a pass did not set.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use pegel_metric::{Family, Level, SampleGroup};

use crate::dynamic_series::DynamicSeries;
use crate::proc_parse::ProcParseError;
use crate::{CollectError, Collector, CollectorOpenError, Context, CurrentOperation, OpenOutcome};

/// Reads the current content of a part of `/sys` or a similar tree.
pub(crate) trait SysfsWalk: Debug + Send {
    /// Sets all current values. Devices that are gone or cannot be read are omitted.
    fn walk(&mut self, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError>;

    /// Describes what the last pass could not read, if the administrator can fix the cause.
    fn partial_failure(&self) -> Option<&str> {
        None
    }
}

/// Receives the values of a walk.
#[derive(Debug)]
pub(crate) struct SeriesWriter<'a> {
    series: &'a mut DynamicSeries,
    out: &'a mut SampleGroup,
    operation: &'a CurrentOperation,
    count: usize,
}

impl SeriesWriter<'_> {
    pub(crate) fn set(
        &mut self,
        family: &Family,
        labels: &[(&str, &str)],
        value: f64,
    ) -> Result<(), ProcParseError> {
        self.count += 1;
        self.series.set(self.out, family, labels, value)
    }

    /// Sets the series if there is a value.
    pub(crate) fn set_if_some(
        &mut self,
        family: &Family,
        labels: &[(&str, &str)],
        value: Option<f64>,
    ) -> Result<(), ProcParseError> {
        value.map_or(Ok(()), |value| self.set(family, labels, value))
    }

    /// Like [`set`](SeriesWriter::set), for a family whose name contains `<key>`.
    pub(crate) fn set_keyed(
        &mut self,
        base: &Family,
        key: &str,
        labels: &[(&str, &str)],
        value: f64,
    ) -> Result<(), ProcParseError> {
        self.count += 1;
        self.series.set_keyed(self.out, base, key, labels, value)
    }

    /// Sets the path that is read next, reported if the read hangs.
    pub(crate) fn set_current_path(&self, path: &Path) {
        self.operation.set(&path.to_string_lossy());
    }
}

#[derive(Debug)]
struct WalkCollector<W> {
    root: PathBuf,
    walk: W,
    series: DynamicSeries,
    operation: CurrentOperation,
}

/// Opens the collector of a walk; absent if a first walk finds nothing.
pub(crate) fn open_walk<W: SysfsWalk + 'static>(
    context: &Context,
    root: PathBuf,
    walk: W,
) -> Result<OpenOutcome, CollectorOpenError> {
    let mut walker = WalkCollector {
        operation: context.operation.clone(),
        walk,
        series: DynamicSeries::new(),
        root,
    };
    let found = walker.pass(&mut SampleGroup::new("trial", Level::MAX, 0))?;
    if found == 0 && walker.walk.partial_failure().is_none() {
        return Ok(OpenOutcome::Absent {
            looked_for: walker.root,
        });
    }
    // The trial declared its series in a group that no longer exists.
    walker.series = DynamicSeries::new();
    Ok(OpenOutcome::Active(Box::new(walker)))
}

impl<W: SysfsWalk> WalkCollector<W> {
    /// Runs one walk and returns the number of values.
    fn pass(&mut self, out: &mut SampleGroup) -> Result<usize, CollectError> {
        self.operation.set(&self.root.to_string_lossy());
        self.series.begin_pass();
        let mut put = SeriesWriter {
            series: &mut self.series,
            out,
            operation: &self.operation,
            count: 0,
        };
        let walked = self.walk.walk(&mut put);
        let count = put.count;
        walked.map_err(|fault| fault.at_path(&self.root))?;
        self.series.end_pass(out);
        Ok(count)
    }
}

impl<W: SysfsWalk> Collector for WalkCollector<W> {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.pass(out).map(|_| ())
    }

    fn partial_failure(&self) -> Option<&str> {
        self.walk.partial_failure()
    }
}
