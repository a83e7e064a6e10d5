//! Collectors that walk through folders of `/sys` and find out anew in each pass what there is.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use pegel_metric::{Family, Group, Level};

use crate::scan::Fault;
use crate::sheet::Sheet;
use crate::{CollectError, Collector, Context, Note, OpenError, Opened};

/// A part of `/sys` or the like, as it is now.
pub(crate) trait Walk: Debug + Send {
    /// Sets all that is there. Devices that are gone, or refuse, are left out.
    fn walk(&mut self, put: &mut Put<'_>) -> Result<(), Fault>;

    /// What could not be read in the last pass, for a reason that a person can do something about.
    fn trouble(&self) -> Option<&str> {
        None
    }
}

/// Where a walk puts its readings.
#[derive(Debug)]
pub(crate) struct Put<'a> {
    sheet: &'a mut Sheet,
    out: &'a mut Group,
    note: &'a Note,
    count: usize,
}

impl Put<'_> {
    pub(crate) fn set(
        &mut self,
        family: &Family,
        labels: &[(&str, &str)],
        value: f64,
    ) -> Result<(), Fault> {
        self.count += 1;
        self.sheet.set(self.out, family, labels, value)
    }

    /// Sets it where there is a value.
    pub(crate) fn maybe(
        &mut self,
        family: &Family,
        labels: &[(&str, &str)],
        value: Option<f64>,
    ) -> Result<(), Fault> {
        value.map_or(Ok(()), |value| self.set(family, labels, value))
    }

    /// For a family whose name has `<key>` in it.
    pub(crate) fn set_key(
        &mut self,
        base: &Family,
        key: &str,
        labels: &[(&str, &str)],
        value: f64,
    ) -> Result<(), Fault> {
        self.count += 1;
        self.sheet.set_key(self.out, base, key, labels, value)
    }

    /// Says what is touched next, in case that it hangs.
    pub(crate) fn touch(&self, path: &Path) {
        self.note.set(&path.to_string_lossy());
    }
}

#[derive(Debug)]
struct Walker<W> {
    root: PathBuf,
    walk: W,
    sheet: Sheet,
    note: Note,
}

/// The collector of a walk; absent when a first walk finds nothing.
pub(crate) fn open_walk<W: Walk + 'static>(
    context: &Context,
    root: PathBuf,
    walk: W,
) -> Result<Opened, OpenError> {
    let mut walker = Walker {
        note: context.note.clone(),
        walk,
        sheet: Sheet::new(),
        root,
    };
    let found = walker.pass(&mut Group::new("trial", Level::MAX, 0))?;
    if found == 0 && walker.walk.trouble().is_none() {
        return Ok(Opened::Absent {
            looked_for: walker.root,
        });
    }
    // The series were declared in a group that is gone.
    walker.sheet = Sheet::new();
    Ok(Opened::Active(Box::new(walker)))
}

impl<W: Walk> Walker<W> {
    /// Returns how many values there are.
    fn pass(&mut self, out: &mut Group) -> Result<usize, CollectError> {
        self.note.set(&self.root.to_string_lossy());
        self.sheet.begin();
        let mut put = Put {
            sheet: &mut self.sheet,
            out,
            note: &self.note,
            count: 0,
        };
        let walked = self.walk.walk(&mut put);
        let count = put.count;
        walked.map_err(|fault| fault.at(&self.root))?;
        self.sheet.end(out);
        Ok(count)
    }
}

impl<W: Walk> Collector for Walker<W> {
    fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
        self.pass(out).map(|_| ())
    }

    fn trouble(&self) -> Option<&str> {
        self.walk.trouble()
    }
}
