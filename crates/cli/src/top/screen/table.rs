//! Draws tables with aligned columns. Columns that do not fit are left out, starting with the last.

use super::canvas::Canvas;
use super::theme::StyleRole;

pub struct TableColumn {
    pub title: &'static str,
    pub width: u16,
    pub kind: TableColumnKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableColumnKind {
    /// Left-aligned text; the first column takes the remaining width.
    Text,
    Number,
    Bar,
}

pub enum TableCell {
    Text(String, StyleRole),
    /// A fraction of one.
    Bar(Option<f64>),
    Sparkline(Vec<Option<f64>>, (f64, f64)),
    Missing,
}

impl TableCell {
    pub fn plain(text: impl Into<String>) -> TableCell {
        TableCell::Text(text.into(), StyleRole::Plain)
    }

    /// Formats a number; `None` is shown as missing.
    pub fn number(value: Option<f64>, write: impl Fn(f64) -> String) -> TableCell {
        match value {
            Some(value) => TableCell::plain(write(value)),
            None => TableCell::Missing,
        }
    }
}

pub const fn text(title: &'static str, width: u16) -> TableColumn {
    TableColumn {
        title,
        width,
        kind: TableColumnKind::Text,
    }
}

pub const fn number(title: &'static str, width: u16) -> TableColumn {
    TableColumn {
        title,
        width,
        kind: TableColumnKind::Number,
    }
}

pub const fn bar(title: &'static str, width: u16) -> TableColumn {
    TableColumn {
        title,
        width,
        kind: TableColumnKind::Bar,
    }
}

/// Returns position and width of each column that fits.
pub fn column_positions(columns: &[TableColumn], width: u16) -> Vec<(u16, u16)> {
    let Some((first, rest)) = columns.split_first() else {
        return Vec::new();
    };
    let mut taken = first.width;
    let mut fitting = 0;
    for column in rest {
        if taken + 1 + column.width > width {
            break;
        }
        taken += 1 + column.width;
        fitting += 1;
    }
    let spare = width.saturating_sub(taken);
    let first_width = first.width + spare;
    let mut positions = vec![(0, first_width)];
    let mut x = first_width + 1;
    for column in &rest[..fitting] {
        positions.push((x, column.width));
        x += column.width + 1;
    }
    positions
}

pub fn header_row(canvas: &mut Canvas<'_>, y: u16, columns: &[TableColumn]) {
    for ((x, width), column) in column_positions(columns, canvas.width())
        .into_iter()
        .zip(columns)
    {
        match column.kind {
            TableColumnKind::Number => {
                canvas.text_right(x, y, width, column.title, StyleRole::Title)
            }
            _ => drop(canvas.text(x, y, width, column.title, StyleRole::Title)),
        }
    }
}

pub fn row(canvas: &mut Canvas<'_>, y: u16, columns: &[TableColumn], cells: &[TableCell]) {
    let positions = column_positions(columns, canvas.width());
    for (((x, width), column), cell) in positions.into_iter().zip(columns).zip(cells) {
        match (cell, column.kind) {
            (TableCell::Text(text, role), TableColumnKind::Number) => {
                canvas.text_right(x, y, width, text, *role)
            }
            (TableCell::Text(text, role), _) => drop(canvas.text(x, y, width, text, *role)),
            (TableCell::Bar(Some(share)), _) => {
                canvas.bar(
                    x,
                    y,
                    width,
                    *share,
                    super::theme::TerminalTheme::usage_role(*share),
                );
            }
            (TableCell::Sparkline(values, range), _) => {
                let first = values.len().saturating_sub(width.into());
                canvas.column_chart((x, y), 1, &values[first..], *range, StyleRole::Good);
            }
            (TableCell::Bar(None) | TableCell::Missing, TableColumnKind::Text) => {}
            (TableCell::Bar(None) | TableCell::Missing, _) => {
                let dash = canvas.theme.dash();
                canvas.text_right(x, y, width, dash, StyleRole::Faint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_column_takes_the_remaining_width() {
        let columns = [text("name", 10), number("a", 8), number("b", 8)];
        assert_eq!(column_positions(&columns, 40), [(0, 22), (23, 8), (32, 8)]);
        assert_eq!(column_positions(&columns, 28), [(0, 10), (11, 8), (20, 8)]);
        assert_eq!(column_positions(&columns, 27), [(0, 18), (19, 8)]);
        assert_eq!(column_positions(&columns, 5), [(0, 10)]);
    }
}
