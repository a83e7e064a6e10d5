//! SIGHUP: files are to be read again, or the terminal is gone.

use std::fs;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a hangup means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HangupAction {
    /// Someone sent it by hand, as one does with daemons.
    Reload,
    /// The terminal in which the agent was started is gone.
    End,
}

/// Hangups from now on do not end the process by themselves.
#[derive(Debug)]
pub struct HangupSignals {
    signal: Signal,
    /// Whether the agent ends with its terminal: not without one, nor under `nohup`.
    has_terminal: bool,
}

impl HangupSignals {
    /// Must be called inside a runtime.
    pub fn new() -> io::Result<HangupSignals> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let has_terminal = has_controlling_terminal() && !ignores_hangup(&status);
        Ok(HangupSignals {
            signal: signal(SignalKind::hangup())?,
            has_terminal,
        })
    }

    /// Has files read again whenever it is asked for; returns when the terminal is gone.
    pub async fn run_until_terminal_closes(mut self, reload: impl Fn() + Clone + Send + 'static) {
        while self.next().await == HangupAction::Reload {
            tracing::info!("hangup: files are read again");
            // Not here: files may be slow.
            tokio::task::spawn_blocking(reload.clone());
        }
    }

    async fn next(&mut self) -> HangupAction {
        // Signals never end while there is a runtime.
        let _ = self.signal.recv().await;
        match self.has_terminal && !has_controlling_terminal() {
            true => HangupAction::End,
            false => HangupAction::Reload,
        }
    }
}

/// A process whose terminal was hung up has none any more.
fn has_controlling_terminal() -> bool {
    fs::File::open("/dev/tty").is_ok()
}

/// Whether the process was started with SIGHUP ignored; signal 1 is the lowest bit.
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
