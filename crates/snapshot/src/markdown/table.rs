//! Markdown tables and lists whose columns are aligned, so that they are readable as plain text.

/// Maximum width of a cell; longer texts are truncated.
const CELL_CHARS_MAX: usize = 72;

/// Formats a table with aligned columns. Columns of numbers are right-aligned, empty columns are
/// left out. A table without rows is empty.
pub(super) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| row.iter().map(|text| cell(text)).collect())
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let is_used = |column: &usize| {
        rows.iter()
            .any(|row| row.get(*column).is_some_and(|text| !text.is_empty()))
    };
    let columns: Vec<usize> = (0..head.len()).filter(is_used).collect();
    let width = |column: &usize| {
        let cells = rows.iter().filter_map(|row| row.get(*column));
        cells
            .map(|text| length(text))
            .chain([length(head[*column]), 3])
            .max()
            .unwrap_or(3)
    };
    let widths: Vec<usize> = columns.iter().map(width).collect();
    let is_number = |column: &usize| {
        let cells = rows.iter().filter_map(|row| row.get(*column));
        cells
            .filter(|text| !text.is_empty())
            .all(|text| is_quantity(text))
    };
    let right: Vec<bool> = columns.iter().map(is_number).collect();
    let line = |texts: Vec<&str>| {
        let cells = texts
            .iter()
            .zip(&widths)
            .zip(&right)
            .map(|((text, width), right)| {
                let blanks = " ".repeat(width.saturating_sub(length(text)));
                if *right {
                    format!("{blanks}{text}")
                } else {
                    format!("{text}{blanks}")
                }
            });
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let rule = widths.iter().zip(&right).map(|(width, right)| {
        if *right {
            format!("{}:", "-".repeat(width + 1))
        } else {
            "-".repeat(width + 2)
        }
    });
    let mut out = line(columns.iter().map(|column| head[*column]).collect());
    out.push_str(&format!("|{}|\n", rule.collect::<Vec<_>>().join("|")));
    for row in &rows {
        out.push_str(&line(
            columns
                .iter()
                .map(|column| row.get(*column).map_or("", String::as_str))
                .collect(),
        ));
    }
    out
}

/// Whether a text is a number, with or without a unit.
fn is_quantity(text: &str) -> bool {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let is_unit = |c: char| c.is_alphabetic() || c == '/';
    number.parse::<f64>().is_ok() && unit.chars().all(is_unit)
}

/// Formats names and values as an aligned list. Empty values are left out.
pub(super) fn definition_list(rows: &[(&str, String)]) -> String {
    let rows = rows.iter().filter(|(_, text)| !text.is_empty());
    let rows: Vec<(&str, String)> = rows
        .map(|(name, text)| (*name, single_line(text)))
        .collect();
    let width = rows.iter().map(|(name, _)| length(name)).max().unwrap_or(0) + 4;
    let mut out = String::new();
    for (name, text) in rows {
        let name = format!("**{name}**");
        let blanks = " ".repeat(width.saturating_sub(length(&name)));
        out.push_str(&format!("- {name}{blanks} {text}\n"));
    }
    out
}

/// Joins the blocks that are not empty, with an empty line between them.
pub(super) fn join_blocks(blocks: &[String]) -> String {
    let blocks = blocks.iter().map(String::as_str);
    let blocks: Vec<&str> = blocks.filter(|block| !block.is_empty()).collect();
    blocks.join("\n")
}

fn cell(text: &str) -> String {
    let text = single_line(text).replace('|', "\\|");
    if length(&text) <= CELL_CHARS_MAX {
        return text;
    }
    let start: String = text.chars().take(CELL_CHARS_MAX - 1).collect();
    format!("{start}…")
}

/// Replaces control characters: text from files must not break the page or send escape sequences to
/// a terminal.
pub(super) fn single_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_ones_are_left_out() {
        let rows = [
            vec!["eth0".to_owned(), String::new(), "1500".to_owned()],
            vec!["a|b\u{1b}".to_owned(), String::new(), "9".to_owned()],
        ];
        assert_eq!(
            table(&["name", "nothing", "mtu"], rows),
            "| name  |  mtu |\n|-------|-----:|\n| eth0  | 1500 |\n| a\\|b  |    9 |\n"
        );
        assert_eq!(
            definition_list(&[
                ("a", "1".into()),
                ("long", "2".into()),
                ("no", String::new())
            ]),
            "- **a**    1\n- **long** 2\n"
        );
    }
}
