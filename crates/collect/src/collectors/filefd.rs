//! Open file handles of the whole node and their limit, from `/proc/sys/fs/file-nr`.

use pegel_metric::SampleGroup;

use crate::families::families;
use crate::file_collector::{FileParser, open_file};
use crate::proc_parse::{ProcParseError, Words, first_line, parse_u64s};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectorEntry, Tier};

families! {
    ALLOCATED Gauge 2 "node_filefd_allocated" "" "Number of allocated file handles.";
    MAXIMUM Gauge 2 "node_filefd_maximum" "" "Maximum number of file handles.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("filefd", Tier::FiveSeconds, FAMILIES, |context| {
        open_file(context, "proc/sys/fs/file-nr", FilefdReadings::new())
    });

#[derive(Debug)]
struct FilefdReadings {
    allocated: UnlabelledSeries,
    maximum: UnlabelledSeries,
}

impl FilefdReadings {
    fn new() -> FilefdReadings {
        FilefdReadings {
            allocated: UnlabelledSeries::new(&ALLOCATED),
            maximum: UnlabelledSeries::new(&MAXIMUM),
        }
    }
}

impl FileParser for FilefdReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut numbers = [0; 3];
        if parse_u64s(Words(first_line(text)?), &mut numbers) != Some(3) {
            return Err(ProcParseError::at_line(1, "expected three numbers"));
        }
        // The second number counts allocated but unused handles; it is zero since Linux 2.6.
        let [allocated, _, maximum] = numbers;
        self.allocated.set(out, allocated as f64)?;
        Ok(self.maximum.set(out, maximum as f64)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    #[test]
    fn a_missing_limit_is_a_large_number() {
        let mut group = SampleGroup::new("filefd", 3, 1000);
        let text = b"674\t0\t9223372036854775807\n";
        FilefdReadings::new()
            .update(text, &mut group)
            .expect("valid");
        assert_eq!(
            present_series(&mut group),
            [
                "node_filefd_allocated 674",
                "node_filefd_maximum 9.223372036854776e18"
            ]
        );
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        update_fails(
            |text| FilefdReadings::new().update(text, &mut SampleGroup::new("filefd", 3, 1000)),
            &[
                ("", 0, "empty file"),
                ("1 2\n", 1, "expected three numbers"),
                ("1 2 x\n", 1, "expected three numbers"),
            ],
        );
    }
}
