//! The end of a run: writes the report and prints the summary.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pegel_run::ProgramSummary;

use super::RunArgs;
use super::job_reporter::JobReporter;
use super::local_rank::LocalRank;
use super::rank_group::{FinishedGroup, RankMember};
use super::report::{self, RunReport};
use super::summary_text::summary_text;
use crate::output;

/// The environment variable that requests a summary: `1`, or the path of a file.
const SUMMARY_VARIABLE: &str = "PEGEL_SUMMARY";

/// Where the summary is written.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SummaryDestination {
    Stderr,
    /// Appended to this file, so that the nodes of a job and several runs can share it.
    File(PathBuf),
}

/// What is done when the program has ended. Created before the program starts; used in the helper
/// process, whose working directory and environment may differ.
#[derive(Debug)]
pub(super) struct RunEnd {
    summary: Option<SummaryDestination>,
    report: Option<PathBuf>,
    rank: Option<LocalRank>,
    group: RefCell<Option<RankMember>>,
    command: Vec<OsString>,
    job: Option<JobReporter>,
}

impl RunEnd {
    pub(super) fn new(args: &RunArgs) -> anyhow::Result<RunEnd> {
        let variable = std::env::var_os(SUMMARY_VARIABLE);
        let destination = destination(args, variable, output::stderr_is_terminal());
        let summary = match destination {
            Some(SummaryDestination::File(path)) => {
                Some(SummaryDestination::File(std::path::absolute(path)?))
            }
            destination => destination,
        };
        let report = args
            .report
            .as_deref()
            .map(std::path::absolute)
            .transpose()?;
        let is_wanted = summary.is_some() || report.is_some();
        let job = match &args.job {
            Some(job) => Some(JobReporter::new(job, args.socket.as_deref())?),
            None => None,
        };
        Ok(RunEnd {
            job,
            summary,
            report,
            // An attached process is not a rank of this command's launcher.
            rank: (is_wanted && args.pid.is_none())
                .then(LocalRank::of_self)
                .flatten(),
            group: RefCell::default(),
            command: args.command.clone(),
        })
    }

    /// Returns whether the end of the program is written or reported.
    pub(super) fn is_wanted(&self) -> bool {
        self.prints() || self.job.is_some()
    }

    /// Returns whether a summary or a report is written.
    pub(super) fn prints(&self) -> bool {
        self.summary.is_some() || self.report.is_some()
    }

    /// Joins the other ranks on this node. Called in the helper before the program starts.
    pub(super) fn on_start(&self) {
        if let Some(job) = &self.job {
            job.begin();
        }
        if let (Some(rank), Some(_)) = (&self.rank, &self.summary)
            && let Some(base) = pegel_run::run_directory()
        {
            // On an error this rank prints a summary of its own.
            *self.group.borrow_mut() = RankMember::join(&base, rank).ok();
        }
    }

    /// Writes the report, and the summary if this is the last rank.
    pub(super) fn on_end(&self, summary: &ProgramSummary) {
        if let Some(job) = &self.job {
            job.end(summary);
        }
        let report = RunReport::new(summary, &self.command);
        if let Some(path) = &self.report {
            let text = format!("{:#}\n", report.to_json());
            print_error(output::write(Some(&self.report_path(path)), &text));
        }
        let Some(destination) = &self.summary else {
            return;
        };
        let group = match self.group.take().map(|member| member.finish(&report)) {
            Some(Ok(None)) => return,
            Some(Ok(Some(group))) => group,
            // Not a rank, or its group cannot be read.
            None | Some(Err(_)) => FinishedGroup {
                reports: vec![report],
                expected: self.rank.as_ref().and_then(|rank| rank.local_size),
            },
        };
        let text = summary_text(&group.reports, group.expected);
        match destination {
            SummaryDestination::Stderr => output::print_text(&text),
            SummaryDestination::File(path) => print_error(append(path, &text)),
        }
    }

    /// Returns the file of this rank.
    fn report_path(&self, path: &Path) -> PathBuf {
        match &self.rank {
            Some(rank) => {
                let path = report::rank_path(path, &rank.rank);
                report::unused_in_job(path, rank.launcher.start_time())
            }
            None => path.to_owned(),
        }
    }
}

/// Returns where the summary goes: as requested, else to standard error if it is a terminal.
fn destination(
    args: &RunArgs,
    variable: Option<OsString>,
    is_terminal: bool,
) -> Option<SummaryDestination> {
    if args.quiet {
        return None;
    }
    match &args.summary {
        Some(Some(path)) => return Some(SummaryDestination::File(path.clone())),
        Some(None) => return Some(SummaryDestination::Stderr),
        None => {}
    }
    match variable.filter(|value| !value.is_empty()) {
        Some(value) if value == "0" => args.verbose.then_some(SummaryDestination::Stderr),
        Some(value) if value.as_encoded_bytes().contains(&b'/') => {
            Some(SummaryDestination::File(PathBuf::from(value)))
        }
        Some(_) => Some(SummaryDestination::Stderr),
        None => (is_terminal || args.verbose).then_some(SummaryDestination::Stderr),
    }
}

/// Appends with one write, so that summaries of several nodes do not mix.
fn append(path: &Path, text: &str) -> anyhow::Result<()> {
    let opened = File::options().append(true).create(true).open(path);
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write the summary to {}", path.display()))
}

fn print_error(result: anyhow::Result<()>) {
    if let Err(error) = result {
        output::print_message(&format!("pegel: {error:#}"));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestArgs {
        #[command(flatten)]
        run: RunArgs,
    }

    fn destination_of(words: &[&str], variable: Option<&str>, terminal: bool) -> Option<String> {
        let words = [&["run"], words, &["--", "true"]].concat();
        let args = TestArgs::try_parse_from(words).expect("valid").run;
        let found = destination(&args, variable.map(OsString::from), terminal);
        found.map(|found| match found {
            SummaryDestination::Stderr => "stderr".to_owned(),
            SummaryDestination::File(path) => path.display().to_string(),
        })
    }

    #[test]
    fn nothing_is_written_unasked_except_to_a_terminal() {
        let stderr = Some("stderr".to_owned());
        assert_eq!(destination_of(&["-s"], None, false), None);
        assert_eq!(destination_of(&["-s"], None, true), stderr);
        assert_eq!(destination_of(&["-s", "--quiet"], None, true), None);
        assert_eq!(destination_of(&["-s", "--quiet"], Some("1"), true), None);
        assert_eq!(destination_of(&["--summary"], None, false), stderr);
        assert_eq!(destination_of(&["--summary"], Some("0"), false), stderr);
        assert_eq!(destination_of(&[], Some("1"), false), stderr);
        assert_eq!(destination_of(&[], Some(""), false), None);
        assert_eq!(destination_of(&[], Some("0"), true), None);
        let file = Some("a/b".to_owned());
        assert_eq!(destination_of(&["--summary=a/b"], Some("1"), true), file);
        assert_eq!(destination_of(&[], Some("a/b"), true), file);
    }
}
