use std::collections::BTreeSet;
use std::path::PathBuf;

use pegel_storage::{RecordPlace, StorageCredentials, StorageEndpoints};

use super::*;

const HOUR: Millis = 3_600_000;
/// Midnight, 2026-11-18.
const MIDNIGHT: Millis = 1_794_960_000_000;

/// A source that returns the times of its samples as text, and at most some of them.
struct TimesSource {
    times: Vec<Millis>,
    count_max: usize,
    windows: Vec<Range<Millis>>,
}

impl TimesSource {
    fn new(times: impl Iterator<Item = Millis>, count_max: usize) -> TimesSource {
        TimesSource {
            times: times.collect(),
            count_max,
            windows: Vec::new(),
        }
    }
}

impl ExportSource for TimesSource {
    fn export(&mut self, window: Range<Millis>) -> Result<ExportedWindow, ArchiveExportError> {
        let times: Vec<String> = { self.times.iter() }
            .filter(|time| window.contains(*time))
            .map(Millis::to_string)
            .collect();
        self.windows.push(window);
        if times.len() > self.count_max {
            return Ok(ExportedWindow::TooLarge);
        }
        let bytes = times.join("\n").into_bytes();
        Ok(match times.len() {
            0 => ExportedWindow::Empty,
            count => ExportedWindow::File {
                digest: SampleDigest::of_file(&bytes),
                samples: count as u64,
                bytes,
            },
        })
    }
}

/// A directory of exports, removed on drop.
struct ExportDir(PathBuf);

impl ExportDir {
    fn new(name: &str) -> ExportDir {
        let dir = format!("pegel-export-{name}-{}", std::process::id());
        ExportDir(std::env::temp_dir().join(dir))
    }

    fn export(
        &self,
        range: Range<Millis>,
        source: &mut dyn ExportSource,
    ) -> Result<ExportTotals, ArchiveExportError> {
        let place = RecordPlace::Directory(self.0.clone());
        let none = StorageCredentials::default();
        let place =
            FilePlace::open(&place, &none, &StorageEndpoints::default()).expect("a directory");
        let mut run = ExportRun::new(place, SampleFileFormat::Csv);
        run.export_node("n1", range, source, &mut |_, _| {})?;
        Ok(run.totals)
    }

    /// Returns the times in all files, with the folders in which they are.
    fn times(&self) -> Vec<(String, Millis)> {
        let mut times = Vec::new();
        for day in std::fs::read_dir(&self.0).expect("days") {
            let day = day.expect("a day");
            let name = day.file_name().to_string_lossy().into_owned();
            for file in std::fs::read_dir(day.path().join("node=n1")).expect("files") {
                let text = std::fs::read_to_string(file.expect("a file").path()).expect("text");
                let lines = text.lines().map(|line| line.parse().expect("a time"));
                times.extend(lines.map(|time| (name.clone(), time)));
            }
        }
        times.sort();
        times
    }
}

impl Drop for ExportDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn windows_are_halved_days_and_every_sample_is_in_the_folder_of_its_day() {
    let dir = ExportDir::new("days");
    let start = MIDNIGHT - 30 * HOUR;
    let times = |range: Range<i64>| range.map(move |n| start + n * 600_000);
    let mut source = TimesSource::new(times(0..400), 25);
    let range = start..start + 400 * 600_000;
    let totals = dir.export(range.clone(), &mut source).expect("stored");
    assert_eq!(totals.samples, 400);
    for window in &source.windows {
        assert_eq!(Day::of(window.start), Day::of(window.end - 1), "{window:?}");
    }
    let day = |time: Millis| match time < MIDNIGHT {
        _ if time < MIDNIGHT - 24 * HOUR => "date=2026-11-16",
        true => "date=2026-11-17",
        false if time < MIDNIGHT + 24 * HOUR => "date=2026-11-18",
        false => "date=2026-11-19",
    };
    let expected: Vec<(String, Millis)> = { times(0..400) }
        .map(|time| (day(time).to_owned(), time))
        .collect();
    assert_eq!(dir.times(), expected);
}

#[test]
fn an_export_that_was_interrupted_and_is_repeated_doubles_nothing() {
    let dir = ExportDir::new("repeated");
    let times = || (0..2000).map(|n| MIDNIGHT + n * 40_000);
    let end = MIDNIGHT + 24 * HOUR;
    // A first export that ended early, and one with other borders.
    for part in [MIDNIGHT..MIDNIGHT + 9 * HOUR, MIDNIGHT..end] {
        let mut source = TimesSource::new(times(), 100);
        dir.export(part, &mut source).expect("stored");
    }
    let stored = dir.times();
    assert_eq!(stored.len(), 2000);
    let totals = dir.export(MIDNIGHT..end, &mut TimesSource::new(times(), 100));
    let totals = totals.expect("stored");
    assert_eq!((totals.files, totals.samples), (0, 2000));
    assert_eq!(dir.times(), stored);
    // The store dropped its oldest samples in the meantime: only what shared a window with them is
    // stored again.
    let oldest = MIDNIGHT + 5 * HOUR + 1;
    let kept = times().filter(|time| *time >= oldest);
    let totals = dir.export(oldest..end, &mut TimesSource::new(kept, 100));
    assert_eq!(totals.expect("stored").files, 1);
    let distinct: BTreeSet<(String, Millis)> = dir.times().into_iter().collect();
    assert_eq!(distinct.len(), 2000);
}

#[test]
fn samples_of_one_millisecond_that_exceed_the_limits_are_an_error() {
    let dir = ExportDir::new("dense");
    let mut source = TimesSource::new(std::iter::repeat_n(MIDNIGHT, 3), 2);
    let error = dir.export(MIDNIGHT - HOUR..MIDNIGHT + HOUR, &mut source);
    assert!(matches!(error, Err(ArchiveExportError::TooDense)));
    assert!(source.windows.len() < 64, "{}", source.windows.len());
}

#[test]
fn an_empty_range_asks_for_nothing() {
    let dir = ExportDir::new("empty");
    for end in [MIDNIGHT, MIDNIGHT - HOUR] {
        let mut source = TimesSource::new(std::iter::once(MIDNIGHT), 1);
        let totals = dir.export(MIDNIGHT..end, &mut source).expect("nothing");
        assert_eq!(totals, ExportTotals::default());
        assert!(source.windows.is_empty());
    }
}
