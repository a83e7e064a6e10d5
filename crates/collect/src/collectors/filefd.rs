//! Open file handles of the whole node and their limit, from `/proc/sys/fs/file-nr`.

use pegel_metric::{Family, Group, Kind};

use crate::files::{Parser, open_files};
use crate::procfile::Shape;
use crate::scan::{Fault, Words, integers, whole_lines};
use crate::single::Single;
use crate::{Context, Entry, OpenError, Opened, Pace, Tier};

static ALLOCATED: Family = Family::new(
    "node_filefd_allocated",
    Kind::Gauge,
    "",
    2,
    "Number of allocated file handles.",
);
static MAXIMUM: Family = Family::new(
    "node_filefd_maximum",
    Kind::Gauge,
    "",
    2,
    "Maximum number of file handles.",
);

pub static ENTRY: Entry = Entry {
    name: "filefd",
    tier: Tier::FiveSeconds,
    pace: Pace::Here,
    level: 2,
    families: &[&ALLOCATED, &MAXIMUM],
    open,
};

fn open(context: &Context) -> Result<Opened, OpenError> {
    let path = context.host.proc.join("sys/fs/file-nr");
    open_files([(path, Shape::Whole, FilefdReadings::new())])
}

#[derive(Debug)]
struct FilefdReadings {
    allocated: Single,
    maximum: Single,
}

impl FilefdReadings {
    fn new() -> FilefdReadings {
        FilefdReadings {
            allocated: Single::new(&ALLOCATED),
            maximum: Single::new(&MAXIMUM),
        }
    }
}

impl Parser for FilefdReadings {
    fn update(&mut self, text: &[u8], out: &mut Group) -> Result<(), Fault> {
        let line = whole_lines(text)?.next().map_or(&[][..], |(_, line)| line);
        let mut numbers = [0; 3];
        if integers(Words(line), &mut numbers) != Some(3) {
            return Err(Fault::Malformed {
                line: 1,
                what: "expected three numbers",
            });
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
        let mut group = Group::new("filefd", 3, 1000);
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
            |text| FilefdReadings::new().update(text, &mut Group::new("filefd", 3, 1000)),
            &[
                ("", 0, "the file is empty"),
                ("1 2\n", 1, "expected three numbers"),
                ("1 2 x\n", 1, "expected three numbers"),
            ],
        );
    }
}
