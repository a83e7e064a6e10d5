//! Pressure stall information: the time that tasks waited for a resource, from `/proc/pressure`.

use std::io;

use pegel_metric::{Family, SampleGroup};

use crate::families::families;
use crate::proc_file::{ProcFile, ReadMode};
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_u64};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectError, Collector, CollectorEntry, Context, OpenOutcome, OpenResult, Tier};

families! {
    CPU_WAITING Counter 2 "node_pressure_cpu_waiting_seconds_total" "seconds" "Total time in which some task waited for a CPU, in seconds.";
    IO_WAITING Counter 2 "node_pressure_io_waiting_seconds_total" "seconds" "Total time in which some task waited for I/O, in seconds.";
    IO_STALLED Counter 2 "node_pressure_io_stalled_seconds_total" "seconds" "Total time in which all runnable tasks waited for I/O, in seconds.";
    MEMORY_WAITING Counter 2 "node_pressure_memory_waiting_seconds_total" "seconds" "Total time in which some task waited for memory, in seconds.";
    MEMORY_STALLED Counter 2 "node_pressure_memory_stalled_seconds_total" "seconds" "Total time in which all runnable tasks waited for memory, in seconds.";
    IRQ_STALLED Counter 2 "node_pressure_irq_stalled_seconds_total" "seconds" "Total time in which interrupts kept all tasks from running, in seconds.";
}

pub static ENTRY: CollectorEntry = CollectorEntry::inline("pressure", Tier::Fast, FAMILIES, open);

/// A file and the families of its lines `some` and `full`. `cpu` has no family for `full`: on a
/// whole node the CPUs cannot all be stalled for lack of a CPU, and the kernel writes zero there.
type PressureResource = (
    &'static str,
    Option<&'static Family>,
    Option<&'static Family>,
);
static RESOURCES: [PressureResource; 4] = [
    ("cpu", Some(&CPU_WAITING), None),
    ("io", Some(&IO_WAITING), Some(&IO_STALLED)),
    ("memory", Some(&MEMORY_WAITING), Some(&MEMORY_STALLED)),
    ("irq", None, Some(&IRQ_STALLED)),
];

#[derive(Debug)]
struct PressureCollector {
    files: Vec<PressureFile>,
}

#[derive(Debug)]
struct PressureFile {
    file: ProcFile,
    some: Option<UnlabelledSeries>,
    full: Option<UnlabelledSeries>,
}

/// The totals of one file, in microseconds.
#[derive(Debug, Default, PartialEq, Eq)]
struct PressureTotals {
    some: Option<u64>,
    full: Option<u64>,
}

fn open(context: &Context) -> OpenResult {
    let folder = context.host.proc.join("pressure");
    let mut sources = Vec::new();
    for (name, some, full) in &RESOURCES {
        let Some(mut file) = ProcFile::open(folder.join(name), ReadMode::SingleRead)? else {
            continue;
        };
        if is_switched_off(&mut file) {
            continue;
        }
        sources.push(PressureFile {
            file,
            some: some.map(UnlabelledSeries::new),
            full: full.map(UnlabelledSeries::new),
        });
    }
    if sources.is_empty() {
        return OpenOutcome::absent(folder);
    }
    OpenOutcome::active(PressureCollector { files: sources })
}

/// Returns whether the kernel was booted with `psi=0`: then the files exist, but reading them is
/// not supported.
fn is_switched_off(file: &mut ProcFile) -> bool {
    let unsupported = rustix::io::Errno::OPNOTSUPP.raw_os_error();
    matches!(file.read(), Err(CollectError::Read { source, .. })
        if source.raw_os_error() == Some(unsupported) || source.kind() == io::ErrorKind::Unsupported)
}

impl Collector for PressureCollector {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        for PressureFile { file, some, full } in &mut self.files {
            let totals = parse(file.read()?).map_err(|fault| fault.at_path(file.path()))?;
            for (single, total) in [(some, totals.some), (full, totals.full)] {
                if let (Some(single), Some(total)) = (single, total) {
                    let set = single.set(out, total as f64 / 1e6);
                    set.map_err(|error| ProcParseError::from(error).at_path(file.path()))?;
                }
            }
        }
        Ok(())
    }
}

/// Parses lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`.
fn parse(text: &[u8]) -> Result<PressureTotals, ProcParseError> {
    let mut totals = PressureTotals::default();
    for (number, line) in non_empty_lines(text)? {
        let mut words = Words(line);
        let place = match words.next() {
            Some(b"some") => &mut totals.some,
            Some(b"full") => &mut totals.full,
            _ => {
                return Err(ProcParseError::at_line(number, "expected `some` or `full`"));
            }
        };
        let total = words
            .find_map(|word| word.strip_prefix(b"total="))
            .and_then(parse_u64);
        let malformed = ProcParseError::at_line(number, "missing total=");
        *place = Some(total.ok_or(malformed)?);
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::update_fails;

    #[test]
    fn totals_are_found_in_any_column() {
        let text = b"some avg10=0.00 total=18446744073709551615 more=1\n";
        assert_eq!(
            parse(text),
            Ok(PressureTotals {
                some: Some(u64::MAX),
                full: None
            })
        );
        let text = b"some total=1\nfull avg5=1 total=2\n";
        assert_eq!(
            parse(text),
            Ok(PressureTotals {
                some: Some(1),
                full: Some(2)
            })
        );
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        update_fails(
            |text| parse(text).map(|_| ()),
            &[
                ("", 0, "empty file"),
                ("some total=1\nfull tot", 2, "the last line is cut off"),
                ("some total=1\nfull avg10=0.00\n", 2, "missing total="),
                ("some total=-1\n", 1, "missing total="),
                ("\u{fffd}\n", 1, "expected `some` or `full`"),
            ],
        );
    }
}
