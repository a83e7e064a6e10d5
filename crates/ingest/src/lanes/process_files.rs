//! The state of a process and the kernel function in which it sleeps, from `/proc`.

use std::path::Path;

use pegel_machine::{ProcDir, ProcessStat};

/// Reads files of processes.
#[derive(Debug)]
pub(super) struct ProcessFiles(Option<ProcDir>);

/// What `/proc` shows of a process.
#[derive(Debug, Default)]
pub(super) struct ProcessView {
    /// As in `ps`.
    pub state: Option<char>,
    pub wchan: Option<String>,
}

impl ProcessFiles {
    pub(super) fn open() -> ProcessFiles {
        ProcessFiles(ProcDir::open(Path::new("/proc")).ok())
    }

    /// Reads the state of a thread, or that of the process's first.
    pub(super) fn read(&self, pid: u32, thread: Option<u32>) -> ProcessView {
        let thread = thread.unwrap_or(pid);
        let text = |name: &str| -> Option<Vec<u8>> {
            let mut buffer = [0; 1024];
            let path = format!("task/{thread}/{name}");
            let length = self.0.as_ref()?.read(pid, &path, &mut buffer).ok()?;
            Some(buffer.get(..length)?.to_vec())
        };
        let stat = text("stat");
        let state = stat.as_deref().and_then(ProcessStat::parse);
        // "0": not asleep, or not permitted.
        let is_name = |name: &String| !name.is_empty() && name != "0";
        let printable = |bytes: Vec<u8>| {
            let name = String::from_utf8(bytes).ok()?;
            name.chars().all(|c| c.is_ascii_graphic()).then_some(name)
        };
        ProcessView {
            state: state.map(|stat| char::from(stat.state)),
            wchan: text("wchan").and_then(printable).filter(is_name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_no_other_is_seen() {
        let files = ProcessFiles::open();
        let own = files.read(std::process::id(), None);
        assert!(
            own.state.is_some_and(|state| "RSD".contains(state)),
            "{own:?}"
        );
        assert_eq!(files.read(u32::MAX, None).state, None);
    }
}
