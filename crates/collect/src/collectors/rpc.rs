//! Parser of the files in `/proc/net/rpc`, for the collectors `nfs` and `nfsd`: each line is a word
//! and numbers that are identified by their position.

use std::sync::Arc;

use pegel_metric::{Family, SampleGroup, Slot};

use crate::file_collector::FileParser;
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_u64};

/// The series of one number.
#[derive(Debug)]
pub(super) struct RpcColumn {
    pub(super) family: &'static Family,
    pub(super) labels: &'static [(&'static str, &'static str)],
}

/// The meaning of the numbers of a line.
#[derive(Debug)]
pub(super) enum RpcColumns {
    /// One column per number; `None` for numbers that are not published.
    Named(&'static [Option<RpcColumn>]),
    /// The number of procedures, then the calls of each. A procedure with an empty name is skipped.
    Procedures {
        family: &'static Family,
        proto: &'static str,
        names: &'static [&'static str],
    },
}

/// The lines of a file by their first word.
pub(super) type RpcLayout = &'static [(&'static [u8], RpcColumns)];

#[derive(Debug)]
pub(super) struct RpcReadings {
    layout: RpcLayout,
    /// For each line of the layout.
    slots: Vec<Vec<Option<Slot>>>,
}

impl RpcReadings {
    pub(super) fn new(layout: RpcLayout) -> RpcReadings {
        RpcReadings {
            layout,
            slots: layout.iter().map(|_| Vec::new()).collect(),
        }
    }
}

impl FileParser for RpcReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        for (number, line) in non_empty_lines(text)? {
            let malformed = ProcParseError::at_line(number, "expected a word and numbers");
            let mut words = Words(line);
            let word = words.next().ok_or(malformed.clone())?;
            let Some(known) = self.layout.iter().position(|(name, _)| *name == word) else {
                continue;
            };
            let columns = &self.layout[known].1;
            if let RpcColumns::Procedures { .. } = columns {
                words.next().and_then(parse_u64).ok_or(malformed.clone())?;
            }
            let slots = &mut self.slots[known];
            for (index, word) in words.enumerate().take(columns.count()) {
                if slots.len() == index {
                    slots.push(columns.declare(index, out)?);
                }
                if let Some(slot) = slots[index] {
                    let value = parse_u64(word).ok_or(malformed.clone())?;
                    out.set(slot, value as f64);
                }
            }
        }
        Ok(())
    }
}

impl RpcColumns {
    fn count(&self) -> usize {
        match self {
            RpcColumns::Named(columns) => columns.len(),
            RpcColumns::Procedures { names, .. } => names.len(),
        }
    }

    fn declare(&self, index: usize, out: &mut SampleGroup) -> Result<Option<Slot>, ProcParseError> {
        let slot = match self {
            RpcColumns::Named(columns) => match &columns[index] {
                Some(column) => out.declare(&Arc::new(column.family.clone()), column.labels)?,
                None => return Ok(None),
            },
            RpcColumns::Procedures { names, .. } if names[index].is_empty() => return Ok(None),
            RpcColumns::Procedures {
                family,
                proto,
                names,
            } => out.declare(
                &Arc::new((*family).clone()),
                &[("proto", proto), ("method", names[index])],
            )?,
        };
        Ok(Some(slot))
    }
}

/// The procedures of NFS 2 and 3, the same for client and server.
#[rustfmt::skip]
pub(super) const NFS2: &[&str] = &[
    "Null", "GetAttr", "SetAttr", "Root", "Lookup", "ReadLink", "Read", "WrCache", "Write", "Create", "Remove",
    "Rename", "Link", "SymLink", "MkDir", "RmDir", "ReadDir", "FsStat",
];
#[rustfmt::skip]
pub(super) const NFS3: &[&str] = &[
    "Null", "GetAttr", "SetAttr", "Lookup", "Access", "ReadLink", "Read", "Write", "Create", "MkDir", "SymLink",
    "MkNod", "Remove", "RmDir", "Rename", "Link", "ReadDir", "ReadDirPlus", "FsStat", "FsInfo", "PathConf",
    "Commit",
];

#[cfg(test)]
mod tests {
    use pegel_metric::MetricKind;

    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    static CALLS: Family = Family::new("calls_total", MetricKind::Counter, "", 3, "Calls.");
    static LAYOUT: RpcLayout = &[
        (
            b"net",
            RpcColumns::Named(&[
                None,
                Some(RpcColumn {
                    family: &CALLS,
                    labels: &[("protocol", "udp")],
                }),
            ]),
        ),
        (
            b"proc3",
            RpcColumns::Procedures {
                family: &CALLS,
                proto: "3",
                names: &["Null", "", "Read"],
            },
        ),
    ];

    #[test]
    fn numbers_are_identified_by_their_position() {
        let mut group = SampleGroup::new("rpc", 3, 1000);
        let mut readings = RpcReadings::new(LAYOUT);
        let text = b"net 1 2 3\nwdeleg_getattr x\nproc3 4 10 x 12 13\n";
        readings.update(text, &mut group).expect("valid");
        let expected = [
            "calls_total{protocol=\"udp\"} 2",
            "calls_total{method=\"Null\",proto=\"3\"} 10",
            "calls_total{method=\"Read\",proto=\"3\"} 12",
        ];
        assert_eq!(present_series(&mut group), expected);
        group.clear();
        readings.update(text, &mut group).expect("again");
        assert_eq!(present_series(&mut group), expected);
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let what = "expected a word and numbers";
        update_fails(
            |text| RpcReadings::new(LAYOUT).update(text, &mut SampleGroup::new("rpc", 3, 1000)),
            &[
                ("", 0, "empty file"),
                ("net 1 2\nproc3 2 1", 2, "the last line is cut off"),
                ("net 1 x\n", 1, what),
                ("proc3\n", 1, what),
                ("proc3 x 1\n", 1, what),
                ("\n", 1, what),
            ],
        );
    }
}
