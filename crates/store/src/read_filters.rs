//! Filters of readers: named rules that hide series, or their values outside of a range.
//!
//! They act on handles from [`Store::for_readers`](crate::Store::for_readers): answers to clients.
//! Readers inside the agent, such as alerting rules, see everything. What is stored does not
//! change.
//!
//! The file `filters` has one line for each filter: name, smallest value, largest value (`-`: none)
//! and pattern, separated by tabs. It is replaced with a rename, so that it is never incomplete.

use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use pegel_metric::{Selector, SelectorError, Series, is_stale};

use crate::options::StoreOptions;
use crate::text_file::{read_text, replace_text};

const FILE: &str = "filters";
/// The most bytes read from the file.
const BYTES_MAX: u64 = 1 << 20;
/// The largest number of filters: each is tried on every series of an answer.
pub const READ_FILTERS_MAX: usize = 64;
const PATTERN_BYTES_MAX: usize = 4096;

/// Hides the series that match a pattern, or those of their values that are outside of a range.
#[derive(Debug, Clone)]
pub struct ReadFilter {
    name: String,
    pattern: String,
    selector: Selector,
    range: Option<ValueRange>,
}

/// Values from `min` to `max`, both included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueRange {
    pub min: f64,
    pub max: f64,
}

/// The reason why a filter cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadFilterError {
    #[error("a filter's name has 1 to 64 letters, digits, '_', '.' and '-'")]
    Name,
    #[error("the pattern of a filter has at most 4096 bytes and no control characters")]
    Pattern,
    #[error("invalid pattern: {0}")]
    Selector(#[from] SelectorError),
    #[error("the smallest value exceeds the largest")]
    Range,
    #[error("there are already {READ_FILTERS_MAX} filters")]
    TooMany,
    #[error("cannot write the filters")]
    Io(#[from] io::Error),
}

impl ReadFilter {
    /// Checks and returns a filter. Without bounds it hides all values of the series that match.
    pub fn new(
        name: &str,
        pattern: &str,
        min: Option<f64>,
        max: Option<f64>,
    ) -> Result<ReadFilter, ReadFilterError> {
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_name_char) {
            return Err(ReadFilterError::Name);
        }
        if pattern.len() > PATTERN_BYTES_MAX || pattern.contains(char::is_control) {
            return Err(ReadFilterError::Pattern);
        }
        let range = (min.is_some() || max.is_some()).then(|| ValueRange {
            min: min.unwrap_or(f64::NEG_INFINITY),
            max: max.unwrap_or(f64::INFINITY),
        });
        if range
            .is_some_and(|range| range.min.is_nan() || range.max.is_nan() || range.min > range.max)
        {
            return Err(ReadFilterError::Range);
        }
        Ok(ReadFilter {
            name: name.to_owned(),
            pattern: pattern.to_owned(),
            selector: Selector::parse(pattern)?.including_remote(),
            range,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns the values that remain; `None` if none do.
    pub fn range(&self) -> Option<ValueRange> {
        self.range
    }
}

impl ValueRange {
    /// Returns whether a value is shown. Stale markers are, because they are no values; NaN is in
    /// no range.
    pub(crate) fn shows(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value) || is_stale(value)
    }

    fn intersect(self, other: ValueRange) -> ValueRange {
        ValueRange {
            min: self.min.max(other.min),
            max: self.max.min(other.max),
        }
    }
}

/// The values of a series that filters leave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ShownValues {
    All,
    Within(ValueRange),
    /// The series is hidden.
    None,
}

impl ShownValues {
    /// Returns whether a value is shown. Stale markers are.
    pub fn contain(self, value: f64) -> bool {
        match self {
            ShownValues::All => true,
            ShownValues::Within(range) => range.shows(value),
            ShownValues::None => false,
        }
    }
}

/// Returns the values of a series that all filters leave. Without filters this is one comparison.
#[inline]
pub(crate) fn shown_values(filters: &[ReadFilter], series: &Series) -> ShownValues {
    if filters.is_empty() {
        return ShownValues::All;
    }
    apply_filters(filters, series)
}

fn apply_filters(filters: &[ReadFilter], series: &Series) -> ShownValues {
    let mut shown = ShownValues::All;
    for filter in filters {
        if !filter.selector.matches(series) {
            continue;
        }
        shown = match (filter.range, shown) {
            (None, _) => return ShownValues::None,
            (Some(range), ShownValues::Within(other)) => {
                ShownValues::Within(range.intersect(other))
            }
            (Some(range), _) => ShownValues::Within(range),
        };
    }
    shown
}

/// The filters of a store.
#[derive(Debug, Default)]
pub(crate) struct ReadFilters {
    /// Sorted by name. Locked only to copy or to replace the `Arc`: every reader locks it.
    current: RwLock<Arc<Vec<ReadFilter>>>,
    /// Serializes writers of the file. Readers never take it, so that they do not wait for the
    /// disk.
    writing: Mutex<()>,
}

impl ReadFilters {
    /// Loads the filters. An unreadable file or a malformed line hides nothing and is logged.
    pub(crate) fn load(options: &StoreOptions) -> ReadFilters {
        let path = options.dir.join(FILE);
        let text = read_text(options, FILE, BYTES_MAX).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::error!(path = %path.display(), %error, "cannot read the filters");
            }
            String::new()
        });
        let mut filters = Vec::new();
        for line in text.lines().take(READ_FILTERS_MAX) {
            match parse(line) {
                Some(filter) => filters.push(filter),
                None => {
                    tracing::error!(path = %path.display(), line, "malformed filter; ignoring it")
                }
            }
        }
        ReadFilters {
            current: RwLock::new(Arc::new(filters)),
            writing: Mutex::new(()),
        }
    }

    pub(crate) fn filters(&self) -> Arc<Vec<ReadFilter>> {
        self.current.read().clone()
    }

    /// Adds a filter, or replaces the one of its name. The change is durable when this returns.
    pub(crate) fn set(
        &self,
        options: &StoreOptions,
        filter: ReadFilter,
    ) -> Result<(), ReadFilterError> {
        let _writing = self.writing.lock();
        let mut filters = (*self.filters()).clone();
        match filters.binary_search_by(|known| known.name.cmp(&filter.name)) {
            Ok(at) => filters[at] = filter,
            Err(_) if filters.len() >= READ_FILTERS_MAX => return Err(ReadFilterError::TooMany),
            Err(at) => filters.insert(at, filter),
        }
        self.replace(options, filters)
    }

    /// Removes a filter. Returns whether there was one. The change is durable when this returns.
    pub(crate) fn remove(
        &self,
        options: &StoreOptions,
        name: &str,
    ) -> Result<bool, ReadFilterError> {
        let _writing = self.writing.lock();
        let mut filters = (*self.filters()).clone();
        let count = filters.len();
        filters.retain(|filter| filter.name != name);
        if filters.len() == count {
            return Ok(false);
        }
        self.replace(options, filters).map(|()| true)
    }

    fn replace(
        &self,
        options: &StoreOptions,
        filters: Vec<ReadFilter>,
    ) -> Result<(), ReadFilterError> {
        write(options, &filters)?;
        *self.current.write() = Arc::new(filters);
        Ok(())
    }
}

fn write(options: &StoreOptions, filters: &[ReadFilter]) -> io::Result<()> {
    let text: String = filters.iter().map(line).collect();
    replace_text(options, FILE, &text)
}

fn line(filter: &ReadFilter) -> String {
    let bound = |value: fn(ValueRange) -> f64| match filter.range {
        Some(range) => value(range).to_string(),
        None => "-".to_owned(),
    };
    let (min, max) = (bound(|range| range.min), bound(|range| range.max));
    format!("{}\t{min}\t{max}\t{}\n", filter.name, filter.pattern)
}

fn parse(line: &str) -> Option<ReadFilter> {
    let mut fields = line.splitn(4, '\t');
    let name = fields.next()?;
    let mut bound = || match fields.next()? {
        "-" => Some(None),
        number => number.parse().ok().map(Some),
    };
    let (min, max) = (bound()?, bound()?);
    ReadFilter::new(name, fields.next()?, min, max).ok()
}

#[cfg(test)]
mod tests {
    use pegel_metric::{Family, MetricKind};
    use pegel_testkit::TempDir;

    use super::*;

    fn filter(name: &str, pattern: &str, min: Option<f64>, max: Option<f64>) -> ReadFilter {
        ReadFilter::new(name, pattern, min, max).expect("valid")
    }

    #[test]
    fn what_is_written_reads_back() {
        let dir = TempDir::new();
        let options = StoreOptions::new(dir.path());
        let filters = ReadFilters::load(&options);
        let outliers = filter("outliers", "loss{rank=\"0\"}", Some(-0.5), None);
        filters.set(&options, outliers).expect("written");
        filters
            .set(&options, filter("debug", "debug_*", None, None))
            .expect("written");
        let lines =
            |filters: &ReadFilters| -> String { filters.filters().iter().map(line).collect() };
        let expected = "debug\t-\t-\tdebug_*\noutliers\t-0.5\tinf\tloss{rank=\"0\"}\n";
        assert_eq!(lines(&filters), expected);
        assert_eq!(lines(&ReadFilters::load(&options)), expected);
        assert!(filters.remove(&options, "debug").expect("written"));
        assert!(!filters.remove(&options, "debug").expect("unchanged"));
        assert_eq!(ReadFilters::load(&options).filters().len(), 1);
        std::fs::write(dir.join(FILE), "broken\nok\t-\t2\tloss\n").expect("written");
        assert_eq!(lines(&ReadFilters::load(&options)), "ok\t-inf\t2\tloss\n");
    }

    #[test]
    fn filters_without_sense_are_refused() {
        let error = |name, pattern, min, max| {
            let refused = ReadFilter::new(name, pattern, min, max).expect_err("refused");
            refused.to_string()
        };
        assert!(error("", "a", None, None).contains("1 to 64 letters"));
        assert!(error("a b", "a", None, None).contains("1 to 64 letters"));
        assert!(error("a", "a\tb", None, None).contains("control characters"));
        assert!(error("a", "a{b=~\"[\"}", None, None).contains("invalid pattern"));
        assert!(error("a", "a", Some(2.0), Some(1.0)).contains("exceeds the largest"));
        assert!(error("a", "a", Some(f64::NAN), None).contains("exceeds the largest"));
        let dir = TempDir::new();
        let options = StoreOptions::new(dir.path());
        let filters = ReadFilters::default();
        for number in 0..READ_FILTERS_MAX {
            let one = filter(&format!("f{number}"), "a", None, None);
            filters.set(&options, one).expect("room");
        }
        filters
            .set(&options, filter("f0", "b", None, None))
            .expect("replaces one");
        let refused = filters.set(&options, filter("more", "a", None, None));
        assert!(matches!(refused, Err(ReadFilterError::TooMany)));
    }

    #[test]
    fn stale_markers_are_no_values() {
        let range = ValueRange { min: 0.0, max: 1.0 };
        assert!(range.shows(0.0) && range.shows(1.0) && range.shows(pegel_metric::STALE_NAN));
        assert!(!range.shows(1.5) && !range.shows(f64::NAN));
    }

    #[test]
    fn several_filters_of_a_series_leave_what_all_of_them_leave() {
        static FAMILY: Family = Family::new("", MetricKind::Gauge, "", 1, "");
        let series = Series::named(Arc::new(FAMILY.clone()), "loss", &[("rank", "0")]);
        let series = series.expect("valid");
        let shown = |filters: &[ReadFilter]| shown_values(filters, &series);
        let low = filter("low", "loss", Some(0.0), None);
        let high = filter("high", "*", None, Some(9.0));
        let other = filter("other", "loss{rank=\"1\"}", None, None);
        assert_eq!(shown(&[]), ShownValues::All);
        assert_eq!(shown(std::slice::from_ref(&other)), ShownValues::All);
        let both = ShownValues::Within(ValueRange { min: 0.0, max: 9.0 });
        assert_eq!(shown(&[low.clone(), high.clone(), other]), both);
        let all = filter("all", "lo*", None, None);
        assert_eq!(shown(&[low, high, all]), ShownValues::None);
    }
}
