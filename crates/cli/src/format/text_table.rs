//! A table of left-aligned texts.

use pegel_metric::escape_unprintable;

/// Formats rows below a title line. Characters that could control a terminal are escaped.
pub(crate) fn text_table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            row.iter()
                .map(|cell| escape_unprintable(cell).to_string())
                .collect()
        })
        .collect();
    let width = |column: usize| {
        let cells = rows
            .iter()
            .map(|row: &Vec<String>| row[column].chars().count());
        cells.chain([titles[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths);
        let padded: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut out = line(&mut titles.iter().copied());
    for row in &rows {
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(
            text_table(&["A", "LONG"], &[row(["äöü", ""]), row(["x\u{1b}", "y"])]),
            "A        LONG\näöü\nx\\u{1b}  y\n"
        );
    }
}
