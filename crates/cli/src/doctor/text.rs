//! Formats findings as text: one line each, with the fix below it.

use super::finding::{Finding, FindingGroup, FindingState};
use crate::format::table::wrap;

/// Width and colour of the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextStyle {
    pub width: usize,
    pub has_colour: bool,
}

/// Columns used by margin and state; the message follows the name of the check.
const INDENT: usize = 11;

pub(super) fn write(groups: &[FindingGroup], style: TextStyle) -> String {
    let checks = groups
        .iter()
        .flat_map(|group| &group.findings)
        .map(|f| f.check.len());
    let column = INDENT + checks.max().unwrap_or(0);
    let mut out = String::new();
    for group in groups.iter().filter(|group| !group.findings.is_empty()) {
        out.push_str(&format!("{}\n", paint(group.name, BOLD, style)));
        for finding in &group.findings {
            append_finding(&mut out, finding, column, style);
        }
        out.push('\n');
    }
    out.push_str(&summary(groups));
    out.push('\n');
    out
}

const BOLD: &str = "1";

fn append_finding(out: &mut String, finding: &Finding, column: usize, style: TextStyle) {
    let (word, colour) = match finding.state {
        FindingState::Ok => ("ok    ", "32"),
        FindingState::Better => ("better", "33"),
        FindingState::Broken => ("BROKEN", "31;1"),
    };
    let width = style.width.max(40).saturating_sub(column);
    let mut lines = wrap(&finding.message, width).into_iter();
    let first = lines.next().unwrap_or_default();
    let name = column - INDENT;
    out.push_str(&format!(
        "  {} {:name$}  {first}\n",
        paint(word, colour, style),
        finding.check
    ));
    let space = " ".repeat(column);
    for line in lines {
        out.push_str(&format!("{space}{line}\n"));
    }
    if let Some(fix) = &finding.fix {
        for (index, line) in wrap(fix, width.saturating_sub(5)).iter().enumerate() {
            let mark = if index == 0 { "fix: " } else { "     " };
            out.push_str(&format!("{space}{mark}{line}\n"));
        }
    }
}

fn paint(text: &str, colour: &str, style: TextStyle) -> String {
    if style.has_colour {
        format!("\u{1b}[{colour}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

/// Formats the totals: `20 ok, 3 could be better, 1 broken`.
pub(super) fn summary(groups: &[FindingGroup]) -> String {
    let count = |state| {
        let findings = groups.iter().flat_map(|group| &group.findings);
        findings.filter(|finding| finding.state == state).count()
    };
    let (ok, better, broken) = (
        count(FindingState::Ok),
        count(FindingState::Better),
        count(FindingState::Broken),
    );
    format!("{ok} ok, {better} could be better, {broken} broken")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups() -> Vec<FindingGroup> {
        vec![
            FindingGroup {
                name: "kernel",
                findings: vec![
                    Finding::ok("version", "Linux 6.1"),
                    Finding::better(
                        "pressure",
                        "stalls are not counted at all on this machine",
                        "add psi=1 and reboot",
                    ),
                ],
            },
            FindingGroup {
                name: "empty",
                findings: Vec::new(),
            },
            FindingGroup {
                name: "store",
                findings: vec![Finding::broken("room", "none", "make some")],
            },
        ]
    }

    #[test]
    fn lines_are_aligned_and_wrapped() {
        let style = TextStyle {
            width: 50,
            has_colour: false,
        };
        let expected = "\
kernel
  ok     version   Linux 6.1
  better pressure  stalls are not counted at all
                   on this machine
                   fix: add psi=1 and reboot

store
  BROKEN room      none
                   fix: make some

1 ok, 1 could be better, 1 broken
";
        assert_eq!(write(&groups(), style), expected);
    }

    #[test]
    fn colour_leaves_the_text_unchanged() {
        let plain = write(
            &groups(),
            TextStyle {
                width: 80,
                has_colour: false,
            },
        );
        let coloured = write(
            &groups(),
            TextStyle {
                width: 80,
                has_colour: true,
            },
        );
        assert!(
            coloured.contains("\u{1b}[33mbetter\u{1b}[0m pressure"),
            "{coloured}"
        );
        let mut stripped = coloured;
        for colour in ["1", "32", "33", "31;1", "0"] {
            stripped = stripped.replace(&format!("\u{1b}[{colour}m"), "");
        }
        assert_eq!(stripped, plain);
    }
}
