//! The terminal: taken over at the start, and given back however this ends.

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

/// Whether the terminal is ours at the moment.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// Drawing goes through a buffer and reaches the terminal with one write, and only what differs from
/// the screen before is written: nothing flickers.
#[derive(Debug)]
pub struct TerminalScreen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl TerminalScreen {
    pub fn enter() -> anyhow::Result<TerminalScreen> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // First the terminal, so that the message can be read.
            restore();
            HAS_PANICKED.store(true, Ordering::Release);
            before(panic);
        }));
        enter_raw_screen().context("cannot take over the terminal")?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(64 << 10, io::stdout()));
        let terminal = Terminal::new(backend).inspect_err(|_| restore());
        let terminal = terminal.context("cannot draw on the terminal")?;
        Ok(TerminalScreen { terminal })
    }

    pub fn height(&self) -> u16 {
        self.terminal.size().map_or(0, |size| size.height)
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> anyhow::Result<()> {
        anyhow::ensure!(!HAS_PANICKED.load(Ordering::Acquire), "a thread panicked");
        self.terminal
            .draw(|frame| draw(frame.buffer_mut()))
            .map(drop)
            .context("cannot draw on the terminal")
    }

    /// Everything anew, whatever others have drawn meanwhile. Not by `Terminal::clear`, which asks the
    /// terminal where the cursor is: the answer would go to the thread that reads keys.
    pub fn redraw(&mut self) -> anyhow::Result<()> {
        let size = self.terminal.size();
        size.and_then(|size| {
            self.terminal
                .resize(Rect::new(0, 0, size.width, size.height))
        })
        .context("cannot clear the terminal")
    }

    /// Stops this process, as Ctrl-Z does, until somebody lets it go on. Where nobody would, it does not.
    pub fn suspend(&mut self) -> anyhow::Result<()> {
        if !has_job_control() {
            return Ok(());
        }
        restore();
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::STOP)
            .context("cannot suspend")?;
        self.resume()
    }

    /// After a stop the shell has put the terminal into the state that it likes.
    pub fn resume(&mut self) -> anyhow::Result<()> {
        // Else it would be taken for raw already.
        let _ = disable_raw_mode();
        enter_raw_screen().context("cannot take over the terminal again")?;
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

/// Harmless when it was given back already. A terminal that is gone needs nothing.
fn restore() {
    if IS_ACTIVE.swap(false, Ordering::AcqRel) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}

/// Whether a shell of our session looks after us: the first process above that is not in our group
/// belongs to the session. The kernel's own rule for the signal that Ctrl-Z sends.
fn has_job_control() -> bool {
    let own = rustix::process::getpid();
    let (Ok(session), group) = (
        rustix::process::getsid(Some(own)),
        rustix::process::getpgrp(),
    ) else {
        return false;
    };
    let mut above = rustix::process::getppid();
    for _ in 0..64 {
        let Some(pid) = above else { return false };
        if rustix::process::getsid(Some(pid)) != Ok(session) {
            return false;
        }
        if rustix::process::getpgid(Some(pid)) != Ok(group) {
            return true;
        }
        above = parent(pid);
    }
    false
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name in brackets may hold anything; after it come the state and the parent.
    let after = stat.rsplit_once(')')?.1;
    Pid::from_raw(after.split_whitespace().nth(1)?.parse().ok()?)
}
