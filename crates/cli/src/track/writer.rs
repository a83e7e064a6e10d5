//! Writes the output of `pegel track` step by step. The file is complete after
//! [`TrackWriter::close`].

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::api_values::SeriesValue;
use crate::format::{self, OutputFormat};
use crate::output;

pub(super) struct TrackWriter {
    format: OutputFormat,
    out: Box<dyn Write>,
    destination: String,
    steps: u64,
    values: u64,
    progress: Option<ProgressLine>,
}

/// The progress line on the terminal.
struct ProgressLine {
    started: Instant,
    shown: Option<Instant>,
}

impl TrackWriter {
    pub(super) fn open(format: OutputFormat, path: Option<&Path>) -> anyhow::Result<TrackWriter> {
        let destination = path.map_or("standard output".into(), |path| path.display().to_string());
        let mut out = output::open(path)?;
        out.write_all(format::track_head(format).as_bytes())
            .with_context(|| format!("cannot write {destination}"))?;
        // No progress line if the values themselves go to the terminal.
        let is_shown = path.is_some() || !io::stdout().is_terminal();
        let progress = (is_shown && output::stderr_is_terminal()).then(|| ProgressLine {
            started: Instant::now(),
            shown: None,
        });
        Ok(TrackWriter {
            format,
            out,
            destination,
            steps: 0,
            values: 0,
            progress,
        })
    }

    /// Writes one step and flushes it, so that other programs can follow the file.
    pub(super) fn step(&mut self, readings: &[SeriesValue]) -> anyhow::Result<()> {
        let text = format::track_step(self.format, readings, self.steps == 0);
        self.out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
            .with_context(|| format!("cannot write {}", self.destination))?;
        self.steps += 1;
        self.values += readings.len() as u64;
        self.show_progress(false);
        Ok(())
    }

    pub(super) fn close(&mut self) -> anyhow::Result<()> {
        let tail = format::track_tail(self.format, self.steps == 0);
        self.out
            .write_all(tail.as_bytes())
            .and_then(|()| self.out.flush())
            .with_context(|| format!("cannot write {}", self.destination))?;
        self.show_progress(true);
        Ok(())
    }

    fn show_progress(&mut self, is_last: bool) {
        let Some(progress) = &mut self.progress else {
            return;
        };
        let due = progress
            .shown
            .is_none_or(|shown| shown.elapsed() > Duration::from_millis(200));
        if !due && !is_last {
            return;
        }
        progress.shown = Some(Instant::now());
        let seconds = progress.started.elapsed().as_secs();
        let end = if is_last { "\n" } else { "" };
        output::progress(&format!(
            "{}: {} steps, {} values, {seconds} s{end}",
            self.destination, self.steps, self.values
        ));
    }
}
