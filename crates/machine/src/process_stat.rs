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
    /// Page faults, without those that read from a disk.
    pub minor_faults: u64,
    /// The same of the children that the process waited for, and of theirs.
    pub child_faults: u64,
    pub major_faults: u64,
    /// CPU time in user and kernel mode.
    pub user_ticks: u64,
    pub system_ticks: u64,
    /// The same of the children that the process waited for, and of theirs.
    pub child_user_ticks: u64,
    pub child_system_ticks: u64,
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
        let stat = ProcessStat {
            pid: parse_u64(text[..open].trim_ascii())?,
            comm: text.get(open + 1..close)?,
            state,
            parent: u32::try_from(skip(0)?).ok()?,
            minor_faults: skip(10 - 5)?,
            child_faults: skip(0)?,
            major_faults: skip(0)?,
            user_ticks: skip(14 - 13)?,
            system_ticks: skip(0)?,
            child_user_ticks: skip(0)?,
            child_system_ticks: skip(0)?,
            threads: skip(20 - 18)?,
            start_ticks: skip(22 - 21)?,
            virtual_bytes: skip(0)?,
            resident_pages: skip(0)?,
        };
        // No process has used more ticks than a number can hold.
        stat.user_ticks.checked_add(stat.system_ticks)?;
        Some(stat)
    }

    /// Returns the CPU time in user and kernel mode.
    pub fn cpu_ticks(&self) -> u64 {
        self.user_ticks.saturating_add(self.system_ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_parentheses() {
        let text = b"17 (a) (b\n) S 1 1 1 0 -1 4194304 2 6 7 0 30 12 8 9 20 0 3 0 99 4096 5 0\n";
        let expected = ProcessStat {
            pid: 17,
            comm: b"a) (b\n",
            state: b'S',
            parent: 1,
            minor_faults: 2,
            child_faults: 6,
            major_faults: 7,
            user_ticks: 30,
            system_ticks: 12,
            child_user_ticks: 8,
            child_system_ticks: 9,
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
