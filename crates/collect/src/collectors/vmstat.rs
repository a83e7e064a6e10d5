//! Paging, swapping and out-of-memory kills, and at level 4 all other lines, from `/proc/vmstat`.

use pegel_metric::{SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::families::{families, keyed_family};
use crate::file_collector::{FileParser, open_list};
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_u64};
use crate::{CollectorEntry, Tier};

families! {
    DEFAULT_FAMILY Unknown 2 "node_vmstat_<key>" "" "Field of /proc/vmstat about paging, swapping, page faults or out-of-memory kills.";
    DETAIL Unknown 4 "node_vmstat_<key>" "" "Any other field of /proc/vmstat.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("vmstat", Tier::FiveSeconds, FAMILIES, |context| {
        open_list(context, "proc/vmstat", VmstatReadings(CursorMap::new()))
    });

#[derive(Debug)]
struct VmstatReadings(CursorMap<Slot>);

impl FileParser for VmstatReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        self.0.begin_pass();
        let mut is_found = false;
        let has_detail = out.keeps_level(DETAIL.level);
        for (number, line) in non_empty_lines(text)? {
            if !has_detail && !is_default_key(line) {
                continue;
            }
            let malformed = ProcParseError::at_line(number, "expected a key and a number");
            let (key, value) = parse(line).ok_or(malformed)?;
            let slot = self.0.entry(key, || declare(key, out))?;
            out.set(*slot, value as f64);
            is_found = true;
        }
        if !is_found {
            let what = "missing lines about paging and page faults";
            return Err(ProcParseError::at_line(1, what));
        }
        self.0.sweep(|slot| out.retire(slot));
        Ok(())
    }
}

/// Returns whether node_exporter publishes the line by default: `oom_kill…`, `pgpg…`, `pswp…`,
/// `pg…fault…`.
fn is_default_key(line: &[u8]) -> bool {
    match line {
        [b'p', b'g', rest @ ..] => {
            rest.starts_with(b"pg") || rest.windows(5).any(|part| part == b"fault")
        }
        [b'p', b's', b'w', b'p', ..] => true,
        _ => line.starts_with(b"oom_kill"),
    }
}

fn parse(line: &[u8]) -> Option<(&[u8], u64)> {
    let mut words = Words(line);
    let key = words.next()?;
    let is_key = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let value = parse_u64(words.next()?)?;
    key.iter().all(is_key).then_some((key, value))
}

fn declare(key: &[u8], out: &mut SampleGroup) -> Result<Slot, ProcParseError> {
    let base = if is_default_key(key) {
        &DEFAULT_FAMILY
    } else {
        &DETAIL
    };
    // The parser accepts only ASCII keys.
    let key = String::from_utf8_lossy(key);
    let help = format!("Field {key} of /proc/vmstat.");
    Ok(out.declare(&keyed_family(base, &key, help), &[])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    fn update(text: &[u8], group: &mut SampleGroup) -> Result<(), ProcParseError> {
        VmstatReadings(CursorMap::new()).update(text, group)
    }

    #[test]
    fn only_default_lines_are_published() {
        let text = "nr_free_pages x\npgpgin 1\npswpout 2\npgfault 3\npgmajfault 18446744073709551615\n\
                    pgalloc_dma 5\npgsteal 6\noom_kill 7\npgfree 8\nfault 9\n";
        let mut group = SampleGroup::new("vmstat", 3, 1000);
        update(text.as_bytes(), &mut group).expect("valid");
        assert_eq!(
            present_series(&mut group),
            [
                "node_vmstat_pgpgin 1",
                "node_vmstat_pswpout 2",
                "node_vmstat_pgfault 3",
                "node_vmstat_pgmajfault 1.8446744073709552e19",
                "node_vmstat_oom_kill 7",
            ]
        );
    }

    #[test]
    fn level_four_has_all_lines() {
        let mut group = SampleGroup::new("vmstat", 4, 1000);
        let text = b"nr_free_pages 5\npgpgin 1\nthp_split_page 0\n";
        update(text, &mut group).expect("valid");
        let expected = [
            "node_vmstat_nr_free_pages 5",
            "node_vmstat_pgpgin 1",
            "node_vmstat_thp_split_page 0",
        ];
        assert_eq!(present_series(&mut group), expected);
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let group = || SampleGroup::new("vmstat", 3, 1000);
        let what = "expected a key and a number";
        update_fails(
            |text| update(text, &mut group()),
            &[
                ("", 0, "empty file"),
                ("pgpgin 1\npgpgo", 2, "the last line is cut off"),
                ("pgpgin 1\npgpgout\n", 2, what),
                ("pgpgin -1\n", 1, what),
                ("pgpg\"in 1\n", 1, what),
                (
                    "\u{fffd}\0\n\n",
                    1,
                    "missing lines about paging and page faults",
                ),
            ],
        );
    }
}
