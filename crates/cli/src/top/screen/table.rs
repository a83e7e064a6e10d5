//! Tables with aligned columns. Columns that do not fit are left out, starting with the last.

use ratatui::layout::{Alignment, Constraint};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table};

use super::bars;
use super::theme::{StyleRole, TerminalTheme};

/// A column. The flexible one, else the first, takes the remaining width.
#[derive(Debug, Clone, Copy)]
pub(super) struct TopTableColumn {
    pub title: &'static str,
    pub width: u16,
    pub alignment: Alignment,
    pub is_flexible: bool,
    /// Whether rows are ordered by this column, highest first.
    pub is_sorted: bool,
}

impl TopTableColumn {
    pub(super) const fn flexible(self) -> TopTableColumn {
        TopTableColumn {
            is_flexible: true,
            ..self
        }
    }

    pub(super) const fn sorted(self, is_sorted: bool) -> TopTableColumn {
        TopTableColumn { is_sorted, ..self }
    }
}

pub(super) enum TableCell {
    Text(String, StyleRole),
    /// A fraction of one.
    Bar(Option<f64>),
    /// A history and its range.
    Sparkline(Vec<Option<f64>>, (f64, f64)),
    /// A history from zero to the highest visible value.
    Throughput(Vec<Option<f64>>),
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
            TableCell::Throughput(values) => {
                let visible = &values[values.len().saturating_sub(width.into())..];
                let highest = visible.iter().flatten().copied().fold(0.0, f64::max);
                let top = if highest > 0.0 { highest } else { 1.0 };
                bars::history_line(theme, visible, (0.0, top))
            }
            TableCell::Bar(None) | TableCell::Missing => {
                theme.span(theme.dash(), StyleRole::Faint).into()
            }
        }
    }
}

pub(super) const fn text(title: &'static str, width: u16) -> TopTableColumn {
    TopTableColumn {
        title,
        width,
        alignment: Alignment::Left,
        is_flexible: false,
        is_sorted: false,
    }
}

pub(super) const fn number(title: &'static str, width: u16) -> TopTableColumn {
    TopTableColumn {
        title,
        width,
        alignment: Alignment::Right,
        is_flexible: false,
        is_sorted: false,
    }
}

/// Returns the width of each column that fits.
pub(crate) fn column_widths(columns: &[TopTableColumn], width: u16) -> Vec<u16> {
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
    let fitting = &columns[..widths.len()];
    let flexible = fitting.iter().position(|column| column.is_flexible);
    if let Some(flexible) = widths.get_mut(flexible.unwrap_or(0)) {
        *flexible += width.saturating_sub(taken);
    }
    widths
}

/// Returns a table of this width with column titles.
pub(crate) fn table<R: IntoIterator<Item = TableCell>>(
    theme: TerminalTheme,
    columns: &[TopTableColumn],
    width: u16,
    rows: impl IntoIterator<Item = R>,
) -> Table<'static> {
    let widths = column_widths(columns, width);
    let rows = rows
        .into_iter()
        .map(|cells| row(theme, columns, &widths, cells));
    let table = Table::new(rows, widths.iter().map(|width| Constraint::Length(*width)));
    table.header(title_row(theme, columns, width))
}

/// Returns the column titles as a row.
pub(crate) fn title_row(
    theme: TerminalTheme,
    columns: &[TopTableColumn],
    width: u16,
) -> Row<'static> {
    let titles = columns.iter().map(|column| {
        let mark = if column.is_sorted {
            theme.sort_mark()
        } else {
            ""
        };
        TableCell::Text(format!("{}{mark}", column.title), StyleRole::Title)
    });
    row(theme, columns, &column_widths(columns, width), titles)
}

/// Returns one row of a table with these columns.
pub(crate) fn row(
    theme: TerminalTheme,
    columns: &[TopTableColumn],
    widths: &[u16],
    cells: impl IntoIterator<Item = TableCell>,
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
    fn the_flexible_column_takes_the_remaining_width() {
        let columns = [text("name", 10), number("a", 8).flexible()];
        assert_eq!(column_widths(&columns, 40), [10, 29]);
        assert_eq!(column_widths(&columns, 15), [15], "it does not fit");
        let columns = [text("name", 10), number("a", 8), number("b", 8)];
        assert_eq!(column_widths(&columns, 40), [22, 8, 8]);
        assert_eq!(column_widths(&columns, 28), [10, 8, 8]);
        assert_eq!(column_widths(&columns, 27), [18, 8]);
        assert_eq!(column_widths(&columns, 5), [10]);
    }
}
