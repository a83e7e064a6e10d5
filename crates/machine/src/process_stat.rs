//! The state of one process, from `/proc/PID/stat`.

use crate::{Words, parse_u64};

/// The fields that are used, numbered as in proc(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat<'a> {
    pub pid: u64,
    /// The program's name, which may contain anything.
    pub comm: &'a [u8],
    /// The kernel's letter: R running, S sleeping, D waiting for a device, Z zombie.
    pub state: u8,
    pub parent: u32,
    /// Page faults of children that ended, without those that read from a disk.
    pub child_faults: u64,
    pub major_faults: u64,
    /// CPU time in user and kernel mode.
    pub cpu_ticks: u64,
    pub threads: u64,
    /// Since boot.
    pub start_ticks: u64,
    pub virtual_bytes: u64,
    pub resident_pages: u64,
}

impl<'a> ProcessStat<'a> {
    /// Parses `17 (a (b) c) S 1 …`. The name ends at the last parenthesis.
    pub fn parse(text: &'a [u8]) -> Option<ProcessStat<'a>> {
        let open = text.iter().position(|&byte| byte == b'(')?;
        let close = text.iter().rposition(|&byte| byte == b')')?;
        // The first word is field 3, the state.
        let mut words = Words(text[close + 1..].trim_ascii());
        let state = words.next().and_then(|word| word.first().copied())?;
        let mut skip = |fields: usize| words.nth(fields).and_then(parse_u64);
        Some(ProcessStat {
            pid: parse_u64(text[..open].trim_ascii())?,
            comm: text.get(open + 1..close)?,
            state,
            parent: u32::try_from(skip(0)?).ok()?,
            child_faults: skip(11 - 5)?,
            major_faults: skip(0)?,
            cpu_ticks: skip(14 - 13)?.checked_add(skip(0)?)?,
            threads: skip(20 - 16)?,
            start_ticks: skip(22 - 21)?,
            virtual_bytes: skip(0)?,
            resident_pages: skip(0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_parentheses() {
        let text = b"17 (a) (b\n) S 1 1 1 0 -1 4194304 0 6 7 0 30 12 0 0 20 0 3 0 99 4096 5 0\n";
        let expected = ProcessStat {
            pid: 17,
            comm: b"a) (b\n",
            state: b'S',
            parent: 1,
            child_faults: 6,
            major_faults: 7,
            cpu_ticks: 42,
            threads: 3,
            start_ticks: 99,
            virtual_bytes: 4096,
            resident_pages: 5,
        };
        assert_eq!(ProcessStat::parse(text), Some(expected));
        for bad in ["", "17", "17 (x", "17 )x( S", "17 (x) S 1", "x (x) S 1"] {
            assert_eq!(ProcessStat::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
