//! Collectors that walk through directories of `/sys` and discover the devices in each pass. A walk
//! writes its values through a [`SeriesWriter`], which declares new series and retires those that a
//! pass did not set.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use pegel_metric::{Level, SampleGroup};

use crate::dynamic_series::{DynamicSeries, SeriesWriter};
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::{CollectError, Collector, Context, CurrentOperation, OpenOutcome, OpenResult};

/// Reads the current content of a part of `/sys` or a similar tree.
pub(crate) trait SysfsWalk: Debug + Send {
    /// Sets all current values below `root`. Devices that are gone or cannot be read are omitted.
    fn walk(&mut self, root: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError>;

    /// Describes what the last pass could not read, if the administrator can fix the cause.
    fn partial_failure(&self) -> Option<&str> {
        None
    }
}

#[derive(Debug)]
struct WalkCollector<W> {
    root: PathBuf,
    walk: W,
    series: DynamicSeries,
    operation: CurrentOperation,
}

/// Opens the collector of a walk through `root`, a path such as `sys/class/net`; absent if a first
/// walk finds nothing.
pub(crate) fn open_walk(
    context: &Context,
    root: &str,
    walk: impl SysfsWalk + 'static,
) -> OpenResult {
    let mut walker = WalkCollector::new(context, root, walk);
    let found = walker.pass(&mut SampleGroup::new("trial", Level::MAX, 0))?;
    if found == 0 && walker.walk.partial_failure().is_none() {
        return OpenOutcome::absent(walker.root);
    }
    // The trial declared its series in a group that no longer exists.
    walker.series = DynamicSeries::default();
    OpenOutcome::active(walker)
}

/// Opens the collector of a walk; absent if `marker` does not exist, active even if a walk finds
/// nothing.
pub(crate) fn open_walk_if_exists(
    context: &Context,
    root: &str,
    marker: &str,
    walk: impl SysfsWalk + 'static,
) -> OpenResult {
    let walker = WalkCollector::new(context, root, walk);
    let marker = walker.root.join(marker);
    if !marker.exists() {
        return OpenOutcome::absent(marker);
    }
    OpenOutcome::active(walker)
}

impl<W: SysfsWalk> WalkCollector<W> {
    fn new(context: &Context, root: &str, walk: W) -> WalkCollector<W> {
        WalkCollector {
            operation: context.operation.clone(),
            walk,
            series: DynamicSeries::default(),
            root: context.host.root.join(root),
        }
    }

    /// Runs one walk and returns the number of values.
    fn pass(&mut self, out: &mut SampleGroup) -> Result<usize, CollectError> {
        self.operation.set(&self.root.to_string_lossy());
        let mut put = self.series.begin_walk(out, &self.operation);
        if let Some(root) = SysfsDir::open(&self.root) {
            let walked = self.walk.walk(&root, &mut put);
            // The path that was read last.
            walked.map_err(|fault| fault.at_path(Path::new(&self.operation.text())))?;
        }
        Ok(put.end_pass())
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
