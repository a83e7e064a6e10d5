//! Connection tracking of the kernel, from `/proc/sys/net/netfilter` and `/proc/net/stat/nf_conntrack`.
//!
//! The statistics are gauges, as in node_exporter, although they count since boot. Runs on the sampler's thread.

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::proc_file::{ProcFile, ReadMode};
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_hex};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome,
    Tier,
};

const fn gauge(name: &'static str, level: u8, help: &'static str) -> Family {
    Family::new(name, MetricKind::Gauge, "", level, help)
}

static ENTRIES: Family = gauge(
    "node_nf_conntrack_entries",
    2,
    "Number of tracked connections.",
);
static LIMIT: Family = gauge(
    "node_nf_conntrack_entries_limit",
    2,
    "Maximum number of tracked connections.",
);
static FOUND: Family = gauge(
    "node_nf_conntrack_stat_found",
    4,
    "Number of table lookups that found a connection, since boot.",
);
static INVALID: Family = gauge(
    "node_nf_conntrack_stat_invalid",
    4,
    "Number of packets that could not be tracked, since boot.",
);
static IGNORE: Family = gauge(
    "node_nf_conntrack_stat_ignore",
    4,
    "Number of packets that were already tracked, since boot.",
);
static INSERT: Family = gauge(
    "node_nf_conntrack_stat_insert",
    4,
    "Number of connections added to the table, since boot.",
);
static INSERT_FAILED: Family = gauge(
    "node_nf_conntrack_stat_insert_failed",
    4,
    "Number of connections that could not be added to the table, since boot.",
);
static DROP: Family = gauge(
    "node_nf_conntrack_stat_drop",
    4,
    "Number of packets dropped because tracking failed, since boot.",
);
static EARLY_DROP: Family = gauge(
    "node_nf_conntrack_stat_early_drop",
    4,
    "Number of connections evicted to make room for new ones, since boot.",
);
static RESTART: Family = gauge(
    "node_nf_conntrack_stat_search_restart",
    4,
    "Number of table lookups that were restarted, since boot.",
);

/// The columns by name. Each is summed over the CPUs.
const STATISTICS: usize = 8;
static COLUMNS: [(&[u8], &Family); STATISTICS] = [
    (b"found", &FOUND),
    (b"invalid", &INVALID),
    (b"ignore", &IGNORE),
    (b"insert", &INSERT),
    (b"insert_failed", &INSERT_FAILED),
    (b"drop", &DROP),
    (b"early_drop", &EARLY_DROP),
    (b"search_restart", &RESTART),
];

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "conntrack",
    tier: Tier::FiveSeconds,
    execution: Execution::Inline,
    level: 2,
    families: &[
        &ENTRIES,
        &LIMIT,
        &FOUND,
        &INVALID,
        &IGNORE,
        &INSERT,
        &INSERT_FAILED,
        &DROP,
        &EARLY_DROP,
        &RESTART,
    ],
    open,
};

#[derive(Debug)]
struct Conntrack {
    count: ProcFile,
    limit: ProcFile,
    /// `None` if the kernel does not have the file.
    statistics: Option<ProcFile>,
    entries: UnlabelledSeries,
    entries_limit: UnlabelledSeries,
    sums: [UnlabelledSeries; STATISTICS],
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let folder = context.host.proc.join("sys/net/netfilter");
    let count = ProcFile::open(folder.join("nf_conntrack_count"), ReadMode::SingleRead)?;
    let limit = ProcFile::open(folder.join("nf_conntrack_max"), ReadMode::SingleRead)?;
    let (Some(count), Some(limit)) = (count, limit) else {
        let looked_for = folder.join("nf_conntrack_count");
        return Ok(OpenOutcome::Absent { looked_for });
    };
    let statistics = context.host.proc.join("net/stat/nf_conntrack");
    Ok(OpenOutcome::Active(Box::new(Conntrack {
        count,
        limit,
        statistics: ProcFile::open(statistics, ReadMode::UntilEof)?,
        entries: UnlabelledSeries::new(&ENTRIES),
        entries_limit: UnlabelledSeries::new(&LIMIT),
        sums: COLUMNS.map(|(_, family)| UnlabelledSeries::new(family)),
    })))
}

impl Collector for Conntrack {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.entries.set_from_file(&mut self.count, out)?;
        self.entries_limit.set_from_file(&mut self.limit, out)?;
        if let Some(file) = &mut self.statistics
            && out.keeps_level(FOUND.level)
        {
            let sums = sum_columns(file.read()?).map_err(|fault| fault.at_path(file.path()))?;
            for (single, sum) in self.sums.iter_mut().zip(sums) {
                if let Some(sum) = sum {
                    let set = single.set(out, sum as f64);
                    set.map_err(|error| ProcParseError::from(error).at_path(file.path()))?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the sum of each known column over the CPUs; `None` for a column that the kernel does not have.
fn sum_columns(text: &[u8]) -> Result<[Option<u64>; STATISTICS], ProcParseError> {
    let mut lines = non_empty_lines(text)?;
    let heading = lines.next().map_or(&[][..], |(_, line)| line);
    let mut sums = [None; STATISTICS];
    for (sum, (name, _)) in sums.iter_mut().zip(COLUMNS) {
        *sum = Words(heading).any(|word| word == name).then_some(0_u64);
    }
    if sums.iter().all(Option::is_none) {
        return Err(ProcParseError::Malformed {
            line: 1,
            what: "expected the header of connection tracking statistics",
        });
    }
    for (number, line) in lines {
        let malformed = ProcParseError::Malformed {
            line: number,
            what: "expected one hexadecimal number per column",
        };
        let mut values = Words(line);
        for name in Words(heading) {
            let value = values.next().and_then(parse_hex).ok_or(malformed.clone())?;
            let known = COLUMNS.iter().position(|(column, _)| *column == name);
            if let Some(sum) = known.and_then(|index| sums[index].as_mut()) {
                *sum = sum.saturating_add(value);
            }
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::update_fails;

    #[test]
    fn columns_are_found_by_name_and_added_up() {
        let text = b"entries  clashres found drop search_restart\n1 2 a 4 5\n1 2 5 4 5\n";
        let sums = sum_columns(text).expect("valid");
        assert_eq!(
            sums,
            [Some(15), None, None, None, None, Some(8), None, Some(10)]
        );
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        update_fails(
            |text| sum_columns(text).map(|_| ()),
            &[
                ("", 0, "the file is empty"),
                (
                    "1 2 3\n",
                    1,
                    "expected the header of connection tracking statistics",
                ),
                (
                    "found drop\n1\n",
                    2,
                    "expected one hexadecimal number per column",
                ),
                (
                    "found drop\n1 x\n",
                    2,
                    "expected one hexadecimal number per column",
                ),
            ],
        );
    }
}
