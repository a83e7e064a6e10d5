//! Properties of processes and their threads, from `/proc/PID`.

use std::fs;

use libc::pid_t;

/// The maximum number of scans for threads: new ones may appear while the others are visited.
const ROUNDS_MAX: usize = 1000;

/// The fields of `/proc/PID/status`; none if the process does not exist.
#[derive(Debug)]
pub(crate) struct ProcessStatus(String);

impl ProcessStatus {
    pub(crate) fn of(pid: pid_t) -> ProcessStatus {
        ProcessStatus(fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
    }

    pub(crate) fn of_self() -> ProcessStatus {
        ProcessStatus(fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    /// Returns the decimal numbers of a field: `Uid`, `Tgid`.
    pub(crate) fn numbers(&self, field: &str) -> Vec<u32> {
        let words = self.field(field).unwrap_or_default().split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    }

    /// Returns the first number of a field, which is a process.
    pub(crate) fn process(&self, field: &str) -> Option<pid_t> {
        self.numbers(field).first().copied().map(u32::cast_signed)
    }

    /// Returns a field that is a hexadecimal mask: `CapEff`.
    pub(crate) fn mask(&self, field: &str) -> Option<u64> {
        u64::from_str_radix(self.field(field)?.trim(), 16).ok()
    }

    fn field(&self, field: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
    }
}

/// Returns the threads of a process, the main thread first.
pub(crate) fn threads(pid: pid_t) -> Vec<pid_t> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut threads: Vec<pid_t> = names.collect();
    // The main thread first: if it can be traced, so can all others.
    threads.sort_by_key(|thread| (*thread != pid, *thread));
    threads
}

/// Calls `add` with each thread of a process and the number added so far, until there are no new
/// ones. `add` returns whether the thread was new. Returns the number of new threads.
pub(crate) fn add_threads<E>(
    pid: pid_t,
    mut add: impl FnMut(pid_t, usize) -> Result<bool, E>,
) -> Result<usize, E> {
    let mut count = 0;
    for _ in 0..ROUNDS_MAX {
        let before = count;
        for thread in threads(pid) {
            count += usize::from(add(thread, count)?);
        }
        // Threads created from here on have creators that were added.
        if count == before {
            break;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_their_whole_name() {
        let status = ProcessStatus("Tgid:\t7\nUid:\t1\t2\t3\t4\nCapEff:\t00000001\n".to_owned());
        assert_eq!(status.process("Tgid"), Some(7));
        assert_eq!(status.numbers("Uid"), [1, 2, 3, 4]);
        assert_eq!(status.mask("CapEff"), Some(1));
        assert_eq!((status.mask("Cap"), status.process("Ppid")), (None, None));
    }

    #[test]
    fn every_thread_is_added_once() {
        let own = std::process::id().cast_signed();
        let mut seen = std::collections::BTreeSet::new();
        let count = add_threads(own, |thread, _| Ok::<_, ()>(seen.insert(thread)));
        assert_eq!(count, Ok(seen.len()));
        assert!(seen.contains(&own));
    }
}
