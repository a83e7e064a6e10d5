//! Connection tracking of the kernel, from `/proc/sys/net/netfilter` and
//! `/proc/net/stat/nf_conntrack`.
//!
//! The statistics are gauges, as in node_exporter, although they count since boot. Runs on the
//! sampler's thread.

use pegel_metric::{Level, SampleGroup};

use crate::families::families;
use crate::file_collector::{FileParser, FirstNumberParser, open_files, parsed_file};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_hex};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectorEntry, Context, OpenResult, Tier};

// With the column of each statistic, which is summed over the CPUs.
families! {
    sources: &str;
    ENTRIES Gauge 2 "node_nf_conntrack_entries" "" "Number of tracked connections.";
    LIMIT Gauge 2 "node_nf_conntrack_entries_limit" "" "Maximum number of tracked connections.";
    FOUND Gauge 4 "node_nf_conntrack_stat_found" "" "Number of table lookups that found a connection, since boot." <- "found";
    INVALID Gauge 4 "node_nf_conntrack_stat_invalid" "" "Number of packets that could not be tracked, since boot." <- "invalid";
    IGNORE Gauge 4 "node_nf_conntrack_stat_ignore" "" "Number of packets that were already tracked, since boot." <- "ignore";
    INSERT Gauge 4 "node_nf_conntrack_stat_insert" "" "Number of connections added to the table, since boot." <- "insert";
    INSERT_FAILED Gauge 4 "node_nf_conntrack_stat_insert_failed" "" "Number of connections that could not be added to the table, since boot." <- "insert_failed";
    DROP Gauge 4 "node_nf_conntrack_stat_drop" "" "Number of packets dropped because tracking failed, since boot." <- "drop";
    EARLY_DROP Gauge 4 "node_nf_conntrack_stat_early_drop" "" "Number of connections evicted to make room for new ones, since boot." <- "early_drop";
    RESTART Gauge 4 "node_nf_conntrack_stat_search_restart" "" "Number of table lookups that were restarted, since boot." <- "search_restart";
}

const STATISTICS: usize = 8;

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("conntrack", Tier::FiveSeconds, FAMILIES, open);

fn open(context: &Context) -> OpenResult {
    let sums = SOURCES
        .iter()
        .map(|(family, _)| UnlabelledSeries::new(family));
    let statistics = ConntrackStatistics(sums.collect());
    let netfilter = "proc/sys/net/netfilter";
    open_files([
        FirstNumberParser::file(
            context,
            &format!("{netfilter}/nf_conntrack_count"),
            &ENTRIES,
        ),
        FirstNumberParser::file(context, &format!("{netfilter}/nf_conntrack_max"), &LIMIT),
        parsed_file(
            context,
            "proc/net/stat/nf_conntrack",
            ReadMode::UntilEof,
            statistics,
        ),
    ])
}

/// One series per statistic.
#[derive(Debug)]
struct ConntrackStatistics(Vec<UnlabelledSeries>);

impl FileParser for ConntrackStatistics {
    fn level(&self) -> Level {
        FOUND.level
    }

    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        for (single, sum) in self.0.iter_mut().zip(sum_columns(text)?) {
            if let Some(sum) = sum {
                single.set(out, sum as f64)?;
            }
        }
        Ok(())
    }
}

/// Returns the sum of each known column over the CPUs; `None` for a column that the kernel does not
/// have.
fn sum_columns(text: &[u8]) -> Result<[Option<u64>; STATISTICS], ProcParseError> {
    let mut lines = non_empty_lines(text)?;
    let heading = lines.next().map_or(&[][..], |(_, line)| line);
    let mut sums = [None; STATISTICS];
    for (sum, (_, name)) in sums.iter_mut().zip(SOURCES) {
        *sum = Words(heading)
            .any(|word| word == name.as_bytes())
            .then_some(0_u64);
    }
    if sums.iter().all(Option::is_none) {
        let what = "expected the header of connection tracking statistics";
        return Err(ProcParseError::at_line(1, what));
    }
    for (number, line) in lines {
        let malformed =
            ProcParseError::at_line(number, "expected one hexadecimal number per column");
        let mut values = Words(line);
        for name in Words(heading) {
            let value = values.next().and_then(parse_hex).ok_or(malformed.clone())?;
            let known = SOURCES
                .iter()
                .position(|(_, column)| column.as_bytes() == name);
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
                ("", 0, "empty file"),
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
