//! Tables with aligned columns. Columns that do not fit are left out, starting with the last.

use ratatui::layout::{Alignment, Constraint};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table};

use super::bars;
use super::theme::{StyleRole, TerminalTheme};

/// A column. The first one takes the remaining width.
pub(super) struct TableColumn {
    pub title: &'static str,
    pub width: u16,
    pub alignment: Alignment,
}

pub(super) enum TableCell {
    Text(String, StyleRole),
    /// A fraction of one.
    Bar(Option<f64>),
    Sparkline(Vec<Option<f64>>, (f64, f64)),
    Missing,
}

impl TableCell {
    pub(super) fn plain(text: impl Into<String>) -> TableCell {
        TableCell::Text(text.into(), StyleRole::Plain)
    }

    /// Formats a number; `None` is shown as missing.
    pub(super) fn number(value: Option<f64>, write: impl Fn(f64) -> String) -> TableCell {
        match value {
            Some(value) => TableCell::plain(write(value)),
            None => TableCell::Missing,
        }
    }

    /// Formats a share, coloured if it is high.
    pub(crate) fn share(value: Option<f64>) -> TableCell {
        // A counter is read slightly after the clock, so that the share may exceed one.
        let Some(share) = value.map(|share| share.min(1.0)) else {
            return TableCell::Missing;
        };
        let role = match TerminalTheme::usage_role(share) {
            StyleRole::Good => StyleRole::Plain,
            role => role,
        };
        TableCell::Text(crate::top::units::percent(share), role)
    }

    fn line(self, theme: TerminalTheme, width: u16) -> Line<'static> {
        match self {
            TableCell::Text(text, role) => theme.clipped(text, width, role).into(),
            TableCell::Bar(Some(share)) => {
                bars::bar(theme, width, share, TerminalTheme::usage_role(share))
            }
            TableCell::Sparkline(values, range) => {
                let first = values.len().saturating_sub(width.into());
                bars::history_line(theme, &values[first..], range)
            }
            TableCell::Bar(None) | TableCell::Missing => {
                theme.span(theme.dash(), StyleRole::Faint).into()
            }
        }
    }
}

pub(super) const fn text(title: &'static str, width: u16) -> TableColumn {
    TableColumn {
        title,
        width,
        alignment: Alignment::Left,
    }
}

pub(super) const fn number(title: &'static str, width: u16) -> TableColumn {
    TableColumn {
        title,
        width,
        alignment: Alignment::Right,
    }
}

/// Returns the width of each column that fits.
pub(crate) fn column_widths(columns: &[TableColumn], width: u16) -> Vec<u16> {
    let mut widths: Vec<u16> = Vec::new();
    let mut taken = 0;
    for column in columns {
        let needed = column.width + u16::from(!widths.is_empty());
        if taken + needed > width && !widths.is_empty() {
            break;
        }
        taken += needed;
        widths.push(column.width);
    }
    if let Some(first) = widths.first_mut() {
        *first += width.saturating_sub(taken);
    }
    widths
}

/// Returns a table of this width with column titles.
pub(crate) fn table<const N: usize>(
    theme: TerminalTheme,
    columns: &[TableColumn; N],
    width: u16,
    rows: impl IntoIterator<Item = [TableCell; N]>,
) -> Table<'static> {
    let widths = column_widths(columns, width);
    let rows = rows
        .into_iter()
        .map(|cells| row(theme, columns, &widths, cells));
    let table = Table::new(rows, widths.iter().map(|width| Constraint::Length(*width)));
    table.header(title_row(theme, columns, width))
}

/// Returns the column titles as a row.
pub(crate) fn title_row<const N: usize>(
    theme: TerminalTheme,
    columns: &[TableColumn; N],
    width: u16,
) -> Row<'static> {
    let titles = columns
        .each_ref()
        .map(|column| TableCell::Text(column.title.to_owned(), StyleRole::Title));
    row(theme, columns, &column_widths(columns, width), titles)
}

/// Returns one row of a table with these columns.
pub(crate) fn row<const N: usize>(
    theme: TerminalTheme,
    columns: &[TableColumn; N],
    widths: &[u16],
    cells: [TableCell; N],
) -> Row<'static> {
    let columns = columns.iter().zip(widths);
    Row::new(
        cells
            .into_iter()
            .zip(columns)
            .map(|(cell, (column, width))| cell.line(theme, *width).alignment(column.alignment)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_column_takes_the_remaining_width() {
        let columns = [text("name", 10), number("a", 8), number("b", 8)];
        assert_eq!(column_widths(&columns, 40), [22, 8, 8]);
        assert_eq!(column_widths(&columns, 28), [10, 8, 8]);
        assert_eq!(column_widths(&columns, 27), [18, 8]);
        assert_eq!(column_widths(&columns, 5), [10]);
    }
}
