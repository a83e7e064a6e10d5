//! Records which part of a response came from the history, and what is missing, for the header
//! `Pegel-History` and the notes of PromQL responses.

use std::fmt::Write;

use parking_lot::Mutex;
use pegel_metric::Millis;

use super::{HistoryAnswer, HistoryProblemKind};
use crate::promql::format_time;

/// The most messages of one response.
const PROBLEMS_MAX: usize = 8;

/// The use of the history in one request.
#[derive(Debug, Default)]
pub struct HistoryRecord(Mutex<Option<HistoryMark>>);

/// The content of the header and the notes of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryMark {
    /// The address of the engine.
    pub address: String,
    /// Samples before this time were read from the engine.
    pub until: Millis,
    /// Whether the engine had anything of what was read.
    pub has_series: bool,
    /// Samples before this time are missing; `None` in a complete response.
    pub from: Option<Millis>,
    /// Why samples are missing, or may be.
    pub problems: Vec<String>,
    pub kind: Option<HistoryProblemKind>,
}

impl HistoryRecord {
    pub(crate) fn add<T>(&self, address: &str, until: Millis, answer: &HistoryAnswer<T>) {
        let problem = answer.problem.as_ref();
        self.merge(HistoryMark {
            address: address.to_owned(),
            until,
            has_series: !answer.series.is_empty(),
            from: problem.map(|_| answer.complete_from.min(until)),
            problems: problem
                .map(|problem| problem.message.clone())
                .into_iter()
                .collect(),
            kind: problem.map(|problem| problem.kind),
        });
    }

    /// Adds the mark of another selection, or of another node.
    pub fn merge(&self, mark: HistoryMark) {
        let mut recorded = self.0.lock();
        let Some(known) = recorded.as_mut() else {
            *recorded = Some(mark);
            return;
        };
        known.until = known.until.max(mark.until);
        known.has_series |= mark.has_series;
        known.from = known.from.max(mark.from);
        known.kind = known.kind.or(mark.kind);
        for problem in mark.problems {
            if known.problems.len() < PROBLEMS_MAX && !known.problems.contains(&problem) {
                known.problems.push(problem);
            }
        }
    }

    /// Returns the mark of the response; `None` if it needed no history.
    pub fn mark(&self) -> Option<HistoryMark> {
        self.0.lock().clone()
    }
}

impl HistoryMark {
    /// Returns the value of the header `Pegel-History`.
    pub fn header(&self) -> String {
        let mut text = format!("until={}", format_time(self.until));
        if let Some(from) = self.from {
            let kind = self.kind.map_or("unknown", HistoryProblemKind::as_str);
            // Writing to a String cannot fail.
            let _ = write!(text, " from={} incomplete={kind}", format_time(from));
        }
        text
    }

    /// Returns the note of a response that contains history; `None` if the engine had no series.
    pub fn info(&self) -> Option<String> {
        let until = format_time(self.until);
        let note = || format!("history: samples before {until} are from {}", self.address);
        self.has_series.then(note)
    }

    /// Returns the warnings of a response that lacks a part.
    pub fn warnings(&self) -> Vec<String> {
        let Some(from) = self.from else {
            return Vec::new();
        };
        let from = format_time(from);
        let warning = |problem: &String| {
            format!("incomplete result: history before {from} is missing or incomplete: {problem}")
        };
        self.problems.iter().map(warning).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::HistoryProblem;

    const T: Millis = 1_700_000_000_000;

    fn answer(problem: Option<&str>) -> HistoryAnswer<()> {
        HistoryAnswer {
            series: Vec::new(),
            complete_from: T - 1_000,
            problem: problem.map(|message| HistoryProblem {
                kind: HistoryProblemKind::Timeout,
                message: message.to_owned(),
            }),
        }
    }

    #[test]
    fn a_complete_response_names_its_border() {
        let record = HistoryRecord::default();
        assert_eq!(record.mark(), None);
        record.add("http://vm:8428", T - 5_000, &answer(None));
        record.add("http://vm:8428", T, &answer(None));
        let mark = record.mark().expect("a mark");
        assert_eq!(mark.header(), "until=2023-11-14T22:13:20Z");
        assert_eq!(mark.info(), None, "nothing was read");
        let mark = HistoryMark {
            has_series: true,
            ..mark
        };
        let expected = "history: samples before 2023-11-14T22:13:20Z are from http://vm:8428";
        assert_eq!(mark.info().as_deref(), Some(expected));
        assert!(mark.warnings().is_empty());
    }

    #[test]
    fn an_incomplete_response_names_the_reason_once() {
        let record = HistoryRecord::default();
        record.add("http://vm:8428", T, &answer(None));
        for _ in 0..2 {
            record.add("http://vm:8428", T, &answer(Some("no answer within 10 s")));
        }
        let mark = record.mark().expect("a mark");
        assert_eq!(
            mark.header(),
            "until=2023-11-14T22:13:20Z from=2023-11-14T22:13:19Z incomplete=timeout"
        );
        assert_eq!(
            mark.warnings(),
            [
                "incomplete result: history before 2023-11-14T22:13:19Z is missing or \
              incomplete: no answer within 10 s"
            ]
        );
        for index in 0..20 {
            record.add("http://vm:8428", T, &answer(Some(&index.to_string())));
        }
        assert_eq!(record.mark().expect("a mark").problems.len(), PROBLEMS_MAX);
    }
}
