//! Switches the terminal to raw mode and the alternate screen, and restores it on every exit:
//! return, error, panic, signal or suspension.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use rustix::process::Pid;

/// Whether the terminal is in raw mode now.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// Draws without flicker: only changed cells are written, through a buffer and with one write.
#[derive(Debug)]
pub(super) struct TerminalScreen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl TerminalScreen {
    pub(super) fn enter() -> anyhow::Result<TerminalScreen> {
        let previous_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Restore the terminal first, so that the message is readable.
            restore();
            HAS_PANICKED.store(true, Ordering::Release);
            previous_hook(panic);
        }));
        enter_raw_screen().context("cannot switch the terminal to raw mode")?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(64 << 10, io::stdout()));
        let terminal = Terminal::new(backend).inspect_err(|_| restore());
        let terminal = terminal.context("cannot draw on the terminal")?;
        Ok(TerminalScreen { terminal })
    }

    pub(super) fn height(&self) -> u16 {
        self.terminal.size().map_or(0, |size| size.height)
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> anyhow::Result<()> {
        anyhow::ensure!(
            !HAS_PANICKED.load(Ordering::Acquire),
            "internal error: a thread panicked"
        );
        self.terminal
            .draw(|frame| draw(frame.buffer_mut()))
            .map(drop)
            .context("cannot draw on the terminal")
    }

    /// Redraws everything, over the output of other programs. Does not use `Terminal::clear`, which
    /// queries the terminal for the cursor position: the thread that reads keys would receive the
    /// response.
    pub(super) fn redraw(&mut self) -> anyhow::Result<()> {
        let size = self.terminal.size();
        size.and_then(|size| {
            self.terminal
                .resize(Rect::new(0, 0, size.width, size.height))
        })
        .context("cannot clear the terminal")
    }

    /// Stops this process until SIGCONT, as Ctrl-Z does. Does nothing without a job-control shell,
    /// which would never continue it.
    pub(super) fn suspend(&mut self) -> anyhow::Result<()> {
        if !has_job_control() {
            return Ok(());
        }
        restore();
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::STOP)
            .context("cannot suspend")?;
        self.resume()
    }

    /// Returns to raw mode: after a stop, the shell has changed the terminal's settings.
    pub(super) fn resume(&mut self) -> anyhow::Result<()> {
        // Resets crossterm's own flag, which still says raw.
        let _ = disable_raw_mode();
        enter_raw_screen().context("cannot switch the terminal to raw mode")?;
        self.redraw()
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        restore();
    }
}

fn enter_raw_screen() -> io::Result<()> {
    enable_raw_mode()?;
    IS_ACTIVE.store(true, Ordering::Release);
    execute!(io::stdout(), EnterAlternateScreen, Hide).inspect_err(|_| restore())
}

/// Restores the terminal; idempotent. Errors are ignored: the terminal may be closed.
fn restore() {
    if IS_ACTIVE.swap(false, Ordering::AcqRel) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}

/// Returns whether a job-control shell can continue this process: the nearest ancestor outside of
/// our process group belongs to our session. The kernel applies the same rule to SIGTSTP (orphaned
/// process groups).
fn has_job_control() -> bool {
    let own = rustix::process::getpid();
    let (Ok(session), group) = (
        rustix::process::getsid(Some(own)),
        rustix::process::getpgrp(),
    ) else {
        return false;
    };
    let mut ancestor = rustix::process::getppid();
    for _ in 0..64 {
        let Some(pid) = ancestor else { return false };
        if rustix::process::getsid(Some(pid)) != Ok(session) {
            return false;
        }
        if rustix::process::getpgid(Some(pid)) != Ok(group) {
            return true;
        }
        ancestor = parent(pid);
    }
    false
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The command name in parentheses may contain any character; state and parent follow it.
    let fields = stat.rsplit_once(')')?.1;
    Pid::from_raw(fields.split_whitespace().nth(1)?.parse().ok()?)
}
