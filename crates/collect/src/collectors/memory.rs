//! Memory statistics: every line of `/proc/meminfo`.
//!
//! Runs on the sampler's thread at every tick. Series are declared when a key first appears, so
//! that keys of newer kernels are published without a change here.

use pegel_machine::MeminfoField;
use pegel_metric::{SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::families::{families, keyed_family};
use crate::file_collector::{FileParser, open_file};
use crate::proc_parse::{ProcParseError, non_empty_lines};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectorEntry, Tier};

families! {
    BYTES Gauge 2 "node_memory_<key>_bytes" "bytes" "Field of /proc/meminfo, in bytes; a part in parentheses is appended with an underscore.";
    COUNT Gauge 2 "node_memory_<key>" "" "Field of /proc/meminfo without a unit.";
    USED Gauge 2 "used_RAM" "" "Share of memory that is not available to new programs, in percent.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("memory", Tier::Fast, FAMILIES, |context| {
        open_file(context, "proc/meminfo", MemoryReadings::new())
    });

#[derive(Debug)]
struct MemoryReadings {
    keys: CursorMap<Slot>,
    used: UnlabelledSeries,
}

/// The sizes from which the share of used memory is computed.
#[derive(Debug, Default)]
struct MemorySizes {
    total: f64,
    available: Option<f64>,
    free: f64,
    buffers: f64,
    cached: f64,
}

impl MemoryReadings {
    fn new() -> MemoryReadings {
        MemoryReadings {
            keys: CursorMap::new(),
            used: UnlabelledSeries::new(&USED),
        }
    }
}

impl FileParser for MemoryReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut sizes = MemorySizes::default();
        self.keys.begin_pass();
        for (number, line) in non_empty_lines(text)? {
            let malformed = ProcParseError::at_line(number, "expected a key and a size");
            let field = MeminfoField::parse(line).ok_or(malformed)?;
            // With or without the colon: a size and a plain number of the same name are two series.
            let length = field.key.len() + usize::from(!field.is_kib);
            let slot = self.keys.entry(&line[..length], || declare(&field, out))?;
            out.set(*slot, field.value());
            sizes.record(&field);
        }
        self.keys.sweep(|slot| out.retire(slot));
        if let Some(percent) = sizes.used_percent() {
            self.used.set(out, percent)?;
        }
        Ok(())
    }
}

impl MemorySizes {
    fn record(&mut self, field: &MeminfoField<'_>) {
        match field.key {
            b"MemTotal" => self.total = field.value(),
            b"MemAvailable" => self.available = Some(field.value()),
            b"MemFree" => self.free = field.value(),
            b"Buffers" => self.buffers = field.value(),
            b"Cached" => self.cached = field.value(),
            _ => {}
        }
    }

    fn used_percent(&self) -> Option<f64> {
        // Kernels before 3.14 do not have MemAvailable.
        let available = self
            .available
            .unwrap_or(self.free + self.buffers + self.cached);
        (self.total > 0.0).then(|| (self.total - available) / self.total * 100.0)
    }
}

fn declare(field: &MeminfoField<'_>, out: &mut SampleGroup) -> Result<Slot, ProcParseError> {
    let (base, unit) = if field.is_kib {
        (&BYTES, ", in bytes")
    } else {
        (&COUNT, "")
    };
    let key = String::from_utf8_lossy(field.key);
    let help = format!("Field {key} of /proc/meminfo{unit}.");
    Ok(out.declare(&keyed_family(base, &field.metric_key(), help), &[])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    fn update(text: &str) -> Vec<String> {
        let mut group = SampleGroup::new("memory", 3, 1000);
        MemoryReadings::new()
            .update(text.as_bytes(), &mut group)
            .expect("valid");
        present_series(&mut group)
    }

    #[test]
    fn keys_become_names() {
        assert_eq!(
            update("Active(anon):  2 kB\nHugePages_Total:  18446744073709551615\nX1: 0 kB\n"),
            [
                "node_memory_Active_anon_bytes 2048",
                "node_memory_HugePages_Total 1.8446744073709552e19",
                "node_memory_X1_bytes 0",
            ]
        );
    }

    #[test]
    fn a_key_with_and_without_a_unit_is_two_series() {
        let (mut readings, mut group) =
            (MemoryReadings::new(), SampleGroup::new("memory", 3, 1000));
        for (text, expected) in [
            ("X: 2 kB\n", "node_memory_X_bytes 2048"),
            ("X: 2\n", "node_memory_X 2"),
        ] {
            group.clear();
            readings.update(text.as_bytes(), &mut group).expect("valid");
            assert_eq!(present_series(&mut group), [expected]);
        }
    }

    #[test]
    fn used_memory_is_what_is_not_available() {
        let found = update("MemTotal: 200 kB\nMemFree: 10 kB\nMemAvailable: 50 kB\n");
        assert_eq!(found[3], "used_RAM 75");
        let found = update("MemTotal: 200 kB\nMemFree: 10 kB\nBuffers: 20 kB\nCached: 70 kB\n");
        assert_eq!(found[4], "used_RAM 50", "before kernel 3.14");
        assert_eq!(update("MemTotal: 0 kB\n").len(), 1, "no share of nothing");
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let update = |text: &[u8]| {
            MemoryReadings::new().update(text, &mut SampleGroup::new("memory", 3, 1000))
        };
        let what = "expected a key and a size";
        update_fails(
            update,
            &[
                ("", 0, "empty file"),
                ("MemTotal: 1 kB\nMemFr", 2, "the last line is cut off"),
                ("MemTotal: 1 kB\nMemFree:\n", 2, what),
                ("MemTotal: 1 MB\n", 1, what),
                ("Mem\"Total: 1 kB\n", 1, what),
                (": 1 kB\n", 1, what),
                ("MemTotal: 18446744073709551616 kB\n", 1, what),
                ("\n", 1, what),
            ],
        );
    }
}
