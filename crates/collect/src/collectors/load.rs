//! Load averages, uptime and wall clock time, from `/proc/loadavg`, `/proc/uptime` and the clock.

use std::sync::Arc;

use pegel_metric::{Clock, Family, MetricKind, SampleGroup};

use crate::proc_file::{ProcFile, ReadMode};
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_decimal};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome,
    Tier,
};

static LOAD1: Family = Family::new(
    "node_load1",
    MetricKind::Gauge,
    "",
    2,
    "Load average over 1 minute.",
);
static LOAD5: Family = Family::new(
    "node_load5",
    MetricKind::Gauge,
    "",
    2,
    "Load average over 5 minutes.",
);
static LOAD15: Family = Family::new(
    "node_load15",
    MetricKind::Gauge,
    "",
    2,
    "Load average over 15 minutes.",
);
static LOAD_DRAGON: Family = Family::new(
    "load_average",
    MetricKind::Gauge,
    "",
    2,
    "Load average over 1 minute; Dragon's name.",
);
static UPTIME: Family = Family::new(
    "node_uptime_seconds",
    MetricKind::Gauge,
    "seconds",
    2,
    "Time since the node booted, in seconds.",
);
static TIME: Family = Family::new(
    "node_time_seconds",
    MetricKind::Gauge,
    "seconds",
    2,
    "System time, in seconds since the Unix epoch.",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "load",
    tier: Tier::Fast,
    execution: Execution::Inline,
    level: 2,
    families: &[&LOAD1, &LOAD5, &LOAD15, &LOAD_DRAGON, &UPTIME, &TIME],
    open,
};

#[derive(Debug)]
struct LoadCollector {
    loadavg: ProcFile,
    /// `None` in containers that hide it.
    uptime: Option<ProcFile>,
    clock: Arc<dyn Clock>,
    loads: [UnlabelledSeries; 3],
    load_dragon: UnlabelledSeries,
    uptime_seconds: UnlabelledSeries,
    time_seconds: UnlabelledSeries,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let path = context.host.proc.join("loadavg");
    let Some(loadavg) = ProcFile::open(path.clone(), ReadMode::SingleRead)? else {
        return Ok(OpenOutcome::Absent { looked_for: path });
    };
    Ok(OpenOutcome::Active(Box::new(LoadCollector {
        loadavg,
        uptime: ProcFile::open(context.host.proc.join("uptime"), ReadMode::SingleRead)?,
        clock: context.clock.clone(),
        loads: [&LOAD1, &LOAD5, &LOAD15].map(UnlabelledSeries::new),
        load_dragon: UnlabelledSeries::new(&LOAD_DRAGON),
        uptime_seconds: UnlabelledSeries::new(&UPTIME),
        time_seconds: UnlabelledSeries::new(&TIME),
    })))
}

impl Collector for LoadCollector {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        let loads = first_decimals(self.loadavg.read()?);
        let loads: [f64; 3] = loads.map_err(|fault| fault.at_path(self.loadavg.path()))?;
        let set = |single: &mut UnlabelledSeries, out: &mut SampleGroup, value| {
            single
                .set(out, value)
                .map_err(|error| ProcParseError::from(error).at_path(self.loadavg.path()))
        };
        for (single, load) in self.loads.iter_mut().zip(loads) {
            set(single, out, load)?;
        }
        set(&mut self.load_dragon, out, loads[0])?;
        if let Some(file) = &mut self.uptime {
            let uptime = first_decimals(file.read()?);
            let [uptime] = uptime.map_err(|fault| fault.at_path(file.path()))?;
            set(&mut self.uptime_seconds, out, uptime)?;
        }
        set(
            &mut self.time_seconds,
            out,
            self.clock.utc() as f64 / 1000.0,
        )
    }
}

/// Parses the first numbers of a file with one line.
fn first_decimals<const N: usize>(text: &[u8]) -> Result<[f64; N], ProcParseError> {
    let mut values = [0.0; N];
    let line = non_empty_lines(text)?
        .next()
        .map_or(&[][..], |(_, line)| line);
    let mut words = Words(line);
    for value in &mut values {
        let malformed = ProcParseError::Malformed {
            line: 1,
            what: "too few numbers",
        };
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
                ("", 0, "the file is empty"),
                ("0.1 0.2 0.", 1, "the last line is cut off"),
                ("0.1 0.2\n", 1, "too few numbers"),
                ("0.1 x 0.2\n", 1, "too few numbers"),
                ("0.1 -1.0 0.2\n", 1, "too few numbers"),
                ("\n", 1, "too few numbers"),
            ],
        );
    }
}
