//! Load averages, uptime and wall clock time, from `/proc/loadavg`, `/proc/uptime` and the clock.

use std::sync::Arc;

use pegel_metric::{Clock, SampleGroup};

use crate::families::families;
use crate::file_collector::{FileParser, open_files, parsed_file};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, Words, first_line, parse_decimal};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectorEntry, Context, OpenResult, Tier};

families! {
    LOAD1 Gauge 2 "node_load1" "" "Load average over 1 minute.";
    LOAD5 Gauge 2 "node_load5" "" "Load average over 5 minutes.";
    LOAD15 Gauge 2 "node_load15" "" "Load average over 15 minutes.";
    LOAD_DRAGON Gauge 2 "load_average" "" "Load average over 1 minute; Dragon's name.";
    UPTIME Gauge 2 "node_uptime_seconds" "seconds" "Time since the node booted, in seconds.";
    TIME Gauge 2 "node_time_seconds" "seconds" "System time, in seconds since the Unix epoch.";
}

pub static ENTRY: CollectorEntry = CollectorEntry::inline("load", Tier::Fast, FAMILIES, open);

fn open(context: &Context) -> OpenResult {
    let averages = LoadAverages {
        loads: [&LOAD1, &LOAD5, &LOAD15, &LOAD_DRAGON].map(UnlabelledSeries::new),
        time: UnlabelledSeries::new(&TIME),
        clock: context.clock.clone(),
    };
    let uptime = Uptime(UnlabelledSeries::new(&UPTIME));
    let mode = ReadMode::SingleRead;
    open_files([
        parsed_file(context, "proc/loadavg", mode, averages),
        // Hidden in some containers.
        parsed_file(context, "proc/uptime", mode, uptime),
    ])
}

#[derive(Debug)]
struct LoadAverages {
    /// Over 1, 5 and 15 minutes, and the first with Dragon's name.
    loads: [UnlabelledSeries; 4],
    time: UnlabelledSeries,
    clock: Arc<dyn Clock>,
}

impl FileParser for LoadAverages {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let [one, five, fifteen] = first_decimals(text)?;
        for (single, load) in self.loads.iter_mut().zip([one, five, fifteen, one]) {
            single.set(out, load)?;
        }
        Ok(self.time.set(out, self.clock.utc() as f64 / 1000.0)?)
    }
}

#[derive(Debug)]
struct Uptime(UnlabelledSeries);

impl FileParser for Uptime {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let [uptime] = first_decimals(text)?;
        Ok(self.0.set(out, uptime)?)
    }
}

/// Parses the first numbers of a file with one line.
fn first_decimals<const N: usize>(text: &[u8]) -> Result<[f64; N], ProcParseError> {
    let mut values = [0.0; N];
    let mut words = Words(first_line(text)?);
    for value in &mut values {
        let malformed = ProcParseError::at_line(1, "too few numbers");
        *value = words.next().and_then(parse_decimal).ok_or(malformed)?;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::update_fails;

    #[test]
    fn numbers_keep_all_their_digits() {
        assert_eq!(
            first_decimals(b"0.07 12.30 1024.99 1/200 4711 new\n"),
            Ok([0.07, 12.3, 1024.99])
        );
        assert_eq!(first_decimals(b"123456789.01 1.00\n"), Ok([123456789.01]));
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let parse = |text: &[u8]| first_decimals::<3>(text).map(|_| ());
        update_fails(
            parse,
            &[
                ("", 0, "empty file"),
                ("0.1 0.2 0.", 1, "the last line is cut off"),
                ("0.1 0.2\n", 1, "too few numbers"),
                ("0.1 x 0.2\n", 1, "too few numbers"),
                ("0.1 -1.0 0.2\n", 1, "too few numbers"),
                ("\n", 1, "too few numbers"),
            ],
        );
    }
}
