//! Number of processes by state, from `/proc/<pid>/stat` of each process.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegel_metric::{Family, SampleGroup, Slot};
use pegel_plain_file::open_plain;

use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::unlabelled_series::UnlabelledSeries;
use crate::{
    CollectError, Collector, CollectorEntry, Context, CurrentOperation, OpenOutcome, OpenResult,
    Tier,
};

families! {
    PIDS Gauge 4 "node_processes_pids" "" "Number of processes.";
    STATE Gauge 4 "node_processes_state" "" "Number of processes by state, with the kernel's letter: R running, S sleeping, D waiting for a device, Z zombie.";
}

/// Runs on a thread of its own, because a node may have very many processes.
pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("process_states", Tier::FiveSeconds, FAMILIES, open);

/// States are single ASCII letters, used as an index.
const LETTERS: usize = 128;

#[derive(Debug)]
struct ProcessStates {
    proc: PathBuf,
    operation: CurrentOperation,
    pids: UnlabelledSeries,
    family: Arc<Family>,
    /// By letter, from the first time that a process had the state.
    slots: [Option<Slot>; LETTERS],
}

fn open(context: &Context) -> OpenResult {
    let proc = context.host.proc.clone();
    if !proc.is_dir() {
        return OpenOutcome::absent(proc);
    }
    OpenOutcome::active(ProcessStates {
        proc,
        operation: context.operation.clone(),
        pids: UnlabelledSeries::new(&PIDS),
        family: Arc::new(STATE.clone()),
        slots: [None; LETTERS],
    })
}

impl Collector for ProcessStates {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.operation.set(&self.proc.to_string_lossy());
        let counts = count_by_state(&self.proc)?;
        let set = self.set(&counts, out);
        set.map_err(|fault| fault.at_path(&self.proc))
    }
}

impl ProcessStates {
    fn set(
        &mut self,
        counts: &[u64; LETTERS],
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        self.pids.set(out, counts.iter().sum::<u64>() as f64)?;
        let letters = (0_u8..).zip(counts.iter().zip(&mut self.slots));
        for (letter, (&count, slot)) in letters {
            // Once published, a state without processes is zero.
            if slot.is_none() && count > 0 {
                let state = char::from(letter).to_string();
                *slot = Some(out.declare(&self.family, &[("state", &state)])?);
            }
            if let Some(slot) = *slot {
                out.set(slot, count as f64);
            }
        }
        Ok(())
    }
}

/// Counts the processes by the letter of their state. Skips processes that ended after they were
/// listed.
fn count_by_state(proc: &Path) -> Result<[u64; LETTERS], CollectError> {
    let entries = fs::read_dir(proc).map_err(|source| CollectError::Read {
        path: proc.to_owned(),
        source,
    })?;
    let mut counts = [0; LETTERS];
    // The state follows the program's name, which has at most 64 bytes.
    let mut text = [0; 256];
    for name in entries.filter_map(|entry| Some(entry.ok()?.file_name())) {
        if !name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let file = open_plain(&proc.join(name).join("stat"));
        let Ok(length) = file.and_then(|mut file| file.read(&mut text)) else {
            continue;
        };
        if let Some(letter) = state(&text[..length]) {
            counts[usize::from(letter)] += 1;
        }
    }
    Ok(counts)
}

/// Returns the state in `4711 (a name) S 1 …`. The name may contain anything, including
/// parentheses.
fn state(text: &[u8]) -> Option<u8> {
    let end = text.iter().rposition(|&byte| byte == b')')?;
    match text.get(end + 1..)? {
        [b' ', letter, b' ', ..] if letter.is_ascii_alphabetic() => Some(*letter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::present_series;

    #[test]
    fn the_state_follows_the_last_parenthesis() {
        assert_eq!(state(b"1 (init) S 0 1"), Some(b'S'));
        assert_eq!(state(b"7 (a) R (b) D 1 7"), Some(b'D'));
        for bad in [
            &b""[..],
            b"1 (init)",
            b"1 init S 0",
            b"1 (x) \xff 0",
            b"1 (x) S",
        ] {
            assert_eq!(state(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_ended_process_is_skipped_and_its_state_is_zero() {
        let proc = std::env::temp_dir().join(format!("pegel-states-of-{}", std::process::id()));
        for (pid, state) in [("1", "S"), ("22", "D"), ("333", "S")] {
            fs::create_dir_all(proc.join(pid)).expect("create");
            let text = format!("{pid} (name) {state} 1 1\n");
            fs::write(proc.join(pid).join("stat"), text).expect("write");
        }
        fs::create_dir_all(proc.join("4444")).expect("an ended process has no stat file");
        fs::create_dir_all(proc.join("net")).expect("create");
        let mut states = ProcessStates {
            proc: proc.clone(),
            operation: CurrentOperation::default(),
            pids: UnlabelledSeries::new(&PIDS),
            family: Arc::new(STATE.clone()),
            slots: [None; LETTERS],
        };
        let mut group = SampleGroup::new("process_states", 4, 1000);
        states.collect(&mut group).expect("valid");
        let of =
            |state: &str, count: u8| format!("node_processes_state{{state=\"{state}\"}} {count}");
        let pids = |count: u8| format!("node_processes_pids {count}");
        assert_eq!(
            present_series(&mut group),
            [pids(3), of("D", 1), of("S", 2)]
        );

        fs::remove_dir_all(proc.join("22")).expect("remove");
        group.clear();
        states.collect(&mut group).expect("valid");
        assert_eq!(
            present_series(&mut group),
            [pids(2), of("D", 0), of("S", 2)]
        );
        fs::remove_dir_all(&proc).expect("remove");
    }
}
