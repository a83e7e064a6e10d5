//! The only place that writes to the terminal.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::Context;

/// Where a command's result goes: a file, or standard output.
pub fn open(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    Ok(match path {
        Some(path) => {
            let file =
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            Box::new(io::BufWriter::new(file))
        }
        None => Box::new(io::BufWriter::new(io::stdout().lock())),
    })
}

/// Writes a whole result at once.
pub fn write(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let mut out = open(path)?;
    let place = path.map_or("standard output".into(), |path| path.display().to_string());
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .with_context(|| format!("cannot write {place}"))
}

/// A message to the person at the terminal. One that nobody can read is no reason to fail.
pub fn print_message(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A line that the next one replaces.
pub fn progress(text: &str) {
    let mut err = io::stderr();
    let _ = write!(err, "\r{text}\u{1b}[K").and_then(|()| err.flush());
}

pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// The width of the terminal that standard output is; `None` when it is none.
pub fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let columns = rustix::termios::tcgetwinsize(&stdout).ok()?.ws_col;
    (columns > 0).then_some(usize::from(columns))
}
