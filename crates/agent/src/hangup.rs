//! SIGHUP: reloads files, or stops the agent when its terminal is closed.

use std::fs;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a hangup means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HangupAction {
    /// Sent by hand or by a service manager, to reload.
    Reload,
    /// The agent's terminal was closed.
    End,
}

/// Receives SIGHUP, which no longer terminates the process from now on.
#[derive(Debug)]
pub(crate) struct HangupSignals {
    signal: Signal,
    /// Whether the agent stops with its terminal: not without one, nor under `nohup`.
    has_terminal: bool,
}

impl HangupSignals {
    /// Must be called inside a runtime.
    pub(crate) fn new() -> io::Result<HangupSignals> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let has_terminal = has_controlling_terminal() && !ignores_hangup(&status);
        Ok(HangupSignals {
            signal: signal(SignalKind::hangup())?,
            has_terminal,
        })
    }

    /// Reloads files on each hangup; returns when the terminal is closed.
    pub(crate) async fn run_until_terminal_closes(
        mut self,
        reload: impl Fn() + Clone + Send + 'static,
    ) {
        while self.next().await == HangupAction::Reload {
            tracing::info!("SIGHUP received; reloading files");
            // Not on this task: file systems may be slow.
            tokio::task::spawn_blocking(reload.clone());
        }
    }

    async fn next(&mut self) -> HangupAction {
        // The stream of signals does not end while the runtime exists.
        let _ = self.signal.recv().await;
        if self.has_terminal && !has_controlling_terminal() {
            HangupAction::End
        } else {
            HangupAction::Reload
        }
    }
}

/// Whether the process has a controlling terminal. After a hangup of its terminal it has none.
fn has_controlling_terminal() -> bool {
    fs::File::open("/dev/tty").is_ok()
}

/// Whether the process was started with SIGHUP ignored; signal 1 is the lowest bit of the mask.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nohup_is_seen_in_the_mask() {
        assert!(ignores_hangup("Name:\tpegel\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}
