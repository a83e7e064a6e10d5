//! The table of nodes for people: as many columns as fit, and what stands out at the end of a line.

use pegel_metric::escape_unprintable;

use crate::doctor::pluralize::pluralized;
use crate::format::table::truncate_middle;
use crate::listed_node::{ListedNode, milliseconds, percent_text};

/// The longest shown name. Longer ones are truncated in the middle on a terminal.
const NAME_WIDTH_MAX: usize = 24;
/// The column with what stands out has at least this width, or others are omitted.
const NOTE_WIDTH_MIN: usize = 28;
const GAP: usize = 2;

/// A column of the table.
struct NodeColumn {
    title: &'static str,
    is_number: bool,
    cells: Vec<String>,
}

impl NodeColumn {
    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(self.title.len())
    }
}

/// Formats one line per node and the counts of all `total` nodes. `width` is that of a terminal.
pub(super) fn write(nodes: &[&ListedNode], total: usize, width: Option<usize>) -> String {
    let notes: Vec<String> = nodes
        .iter()
        .map(|n| escape_unprintable(&n.note()).into_owned())
        .collect();
    let has_notes = notes.iter().any(|note| !note.is_empty());
    let mut columns = columns(nodes, width.is_some());
    if let Some(width) = width {
        let needed = if has_notes { NOTE_WIDTH_MIN } else { 0 };
        // The least important ones first.
        for title in ["PARENT", "LAG", "CLOCK", "MEM"] {
            let used: usize = columns.iter().map(|column| column.width() + GAP).sum();
            if used + needed > width {
                columns.retain(|column| column.title != title);
            }
        }
    }
    let used: usize = columns.iter().map(|column| column.width() + GAP).sum();
    let note_width = width.map(|width| width.saturating_sub(used));
    let title = if has_notes { "STANDS OUT" } else { "" };
    let mut out = line(&columns, |column| column.title.to_owned(), title);
    for (row, note) in notes.iter().enumerate() {
        let note = clipped(note, note_width);
        out.push_str(&line(&columns, |column| column.cells[row].clone(), &note));
    }
    let shown = match nodes.len() {
        shown if shown < total => format!("{shown} of {}", pluralized(total as u64, "node")),
        _ => pluralized(total as u64, "node"),
    };
    out.push_str(&format!(
        "\n{shown}: {}\n",
        state_counts(nodes.iter().map(|n| n.state.as_str()))
    ));
    out
}

fn columns(nodes: &[&ListedNode], is_terminal: bool) -> Vec<NodeColumn> {
    let column = |title, is_number, cell: &dyn Fn(&ListedNode) -> String| NodeColumn {
        title,
        is_number,
        cells: nodes.iter().map(|node| cell(node)).collect(),
    };
    let name = |name: &str| {
        let name = escape_unprintable(name);
        let width = if is_terminal {
            NAME_WIDTH_MAX
        } else {
            usize::MAX
        };
        match name.as_ref() {
            "" => "-".to_owned(),
            name => truncate_middle(name, width),
        }
    };
    let number = |value: Option<f64>, text: fn(f64) -> String| match value {
        Some(value) => text(value),
        None => "-".to_owned(),
    };
    let mut columns = vec![
        column("NODE", false, &|node| name(&node.node)),
        column("STATE", false, &|node| {
            escape_unprintable(&node.state).into_owned()
        }),
        column("LAG", true, &|node| number(node.lag_ms, milliseconds)),
        column("CLOCK", true, &|node| {
            number(node.clock_offset_ms, signed_milliseconds)
        }),
        column("PARENT", false, &|node| name(&node.parent)),
        column("BUSY", true, &|node| number(node.busy, percent_text)),
        column("MEM", true, &|node| number(node.memory, percent_text)),
        column("GPU", true, &|node| number(node.gpu, percent_text)),
    ];
    // Most clusters have no GPUs, or have them everywhere.
    if is_terminal && nodes.iter().all(|node| node.gpu.is_none()) {
        columns.retain(|column| column.title != "GPU");
    }
    columns
}

fn signed_milliseconds(millis: f64) -> String {
    let sign = if millis >= 0.5 { "+" } else { "" };
    format!("{sign}{}", milliseconds(millis))
}

fn line(columns: &[NodeColumn], cell: impl Fn(&NodeColumn) -> String, last: &str) -> String {
    let gap = " ".repeat(GAP);
    let mut cells: Vec<String> = Vec::new();
    for column in columns {
        let (cell, width) = (cell(column), column.width());
        cells.push(match column.is_number {
            true => format!("{cell:>width$}"),
            false => format!("{cell:width$}"),
        });
    }
    cells.push(last.to_owned());
    format!("{}\n", cells.join(&gap).trim_end())
}

/// Cuts a text that is wider than the terminal permits.
fn clipped(text: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if text.chars().count() > width => {
            let kept: String = text.chars().take(width.saturating_sub(1)).collect();
            format!("{kept}…")
        }
        _ => text.to_owned(),
    }
}

/// Counts states in the order of their severity: `62 up, 1 late, 1 lost`.
pub(crate) fn state_counts<'a>(states: impl Iterator<Item = &'a str>) -> String {
    const STATES: [&str; 4] = ["up", "late", "lost", "refused"];
    let mut counts = [0_u64; 5];
    for state in states {
        let index = STATES.iter().position(|known| *known == state);
        counts[index.unwrap_or(4)] += 1;
    }
    let names = STATES.into_iter().chain(["unknown"]);
    let counts = counts
        .into_iter()
        .zip(names)
        .filter(|(count, _)| *count > 0);
    let texts: Vec<String> = counts
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listed_node::OutlierFigure;

    fn nodes() -> Vec<ListedNode> {
        let node = |index: usize| ListedNode {
            node: format!("nid{index:06}"),
            parent: format!("rack{:02}", index / 64),
            state: "up".to_owned(),
            lag_ms: Some(12.0),
            clock_offset_ms: Some(-3.0),
            busy: Some(3.1),
            memory: Some(40.2),
            ..ListedNode::default()
        };
        let mut nodes: Vec<ListedNode> = (0..2000).map(node).collect();
        nodes[7].state = "lost".to_owned();
        nodes[7].problem =
            "no connection for 12 s; the last error was a rather long one, cut off".to_owned();
        nodes[8].outliers = vec![OutlierFigure {
            figure: "busy".to_owned(),
            value: 97.0,
            median: 3.0,
        }];
        nodes
    }

    #[test]
    fn lines_fit_the_terminal_and_what_stands_out_is_visible() {
        let nodes = nodes();
        let mut listed: Vec<&ListedNode> = nodes.iter().collect();
        listed.sort_by(|a, b| a.problems_first(b));
        for width in [70, 80, 200] {
            let text = write(&listed, 2000, Some(width));
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 2003, "{width}");
            let widest = lines.iter().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width}: {widest:?}");
            assert!(
                lines[0].ends_with("STANDS OUT") && !lines[0].contains("GPU"),
                "{}",
                lines[0]
            );
            assert!(lines[1].contains("nid000007  lost"), "{}", lines[1]);
            assert!(lines[1].contains("no connection for 12 s"), "{}", lines[1]);
            assert!(lines[2].ends_with("busy 97 % (median 3 %)"), "{}", lines[2]);
            assert_eq!(lines[2002], "2000 nodes: 1999 up, 1 lost");
            assert_eq!(lines[0].contains("PARENT"), width >= 80, "{}", lines[0]);
        }
    }

    #[test]
    fn a_file_has_every_column() {
        let nodes = nodes();
        let text = write(&[&nodes[7], &nodes[1]], 2000, None);
        let expected = "\
NODE       STATE    LAG  CLOCK  PARENT  BUSY   MEM  GPU  STANDS OUT
nid000007  lost   12 ms  -3 ms  rack00   3 %  40 %    -  no connection for 12 s; the last error was a rather long one, cut off
nid000001  up     12 ms  -3 ms  rack00   3 %  40 %    -

2 of 2000 nodes: 1 up, 1 lost
";
        assert_eq!(text, expected);
    }

    #[test]
    fn states_are_counted() {
        assert_eq!(
            state_counts(["up", "lost", "up", "?"].into_iter()),
            "2 up, 1 lost, 1 unknown"
        );
    }
}
