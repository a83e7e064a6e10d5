//! Draws every core as a bar if they fit, else as a cell of a heat map.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget};

use super::bars::stacked_bar;
use super::cpu::mode_parts;
use super::theme::{StyleRole, TerminalTheme};
use crate::top::model::CpuShares;

/// Width of `255 ████████·· 100%`.
const BAR_WIDTH_MIN: u16 = 19;
/// Wider bars add no information.
const BAR_WIDTH_MAX: u16 = 60;
/// With more rows of bars, a heat map is easier to read.
const BAR_ROWS_MAX: u16 = 8;
/// Width of the core numbers at the left of a heat map.
const NUMBER: u16 = 5;
/// Core numbers above a heat map are this many columns apart.
const NUMBERED: usize = 8;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CoreLayout {
    /// Number of rows, and the width of a bar with core number and percentage.
    Bars { rows: u16, width: u16 },
    /// Number of rows of cells, and of cells per row; the width of a cell. Cells of one column show
    /// a bar, wider ones a percentage.
    Map {
        rows: u16,
        per_row: u16,
        cell: u16,
        has_numbers: bool,
    },
}

impl CoreLayout {
    /// Chooses a layout for this number of cores in at most `rows_max` rows. Percentages in cells
    /// of three columns touch each other, and need the colours of a heat map to tell them apart.
    pub(super) fn choose(cores: usize, width: u16, rows_max: u16, has_heat: bool) -> CoreLayout {
        let cores = u16::try_from(cores).unwrap_or(u16::MAX).max(1);
        if let Some(bars) = CoreLayout::bars(cores, width, rows_max.min(BAR_ROWS_MAX)) {
            return bars;
        }
        let cell = if has_heat { 3 } else { 4 };
        let figures = CoreLayout::map(cores, width, rows_max, cell);
        let fitting = figures.filter(|map| u32::from(map.rows()) <= u32::from(rows_max));
        fitting
            .or_else(|| CoreLayout::map(cores, width, rows_max, 1))
            .unwrap_or(CoreLayout::Map {
                rows: 0,
                per_row: 1,
                cell: 1,
                has_numbers: false,
            })
    }

    fn bars(cores: u16, width: u16, rows_max: u16) -> Option<CoreLayout> {
        let across_max = (width + 2) / (BAR_WIDTH_MIN + 2);
        // Use as few columns as possible: longer bars are easier to compare.
        let across =
            (1..=across_max.min(cores)).find(|across| cores.div_ceil(*across) <= rows_max)?;
        let across = if cores > 1 && across == 1 && width >= 76 {
            2
        } else {
            across
        };
        let width = ((width + 2) / across - 2).min(BAR_WIDTH_MAX);
        let rows = cores.div_ceil(across);
        Some(CoreLayout::Bars { rows, width })
    }

    /// Returns a map with cells of this width. Only cells of one column stand for several cores if
    /// there is no room for all of them.
    fn map(cores: u16, width: u16, rows_max: u16, cell: u16) -> Option<CoreLayout> {
        let room = width.saturating_sub(NUMBER) / cell;
        // Rows of 64, 32, 16 or 8 are easy to count.
        let mut lengths = [256, 128, 64, 32, 16, 8].into_iter();
        let per_row = lengths.find(|per_row| *per_row <= room).unwrap_or(room);
        if per_row == 0 {
            return None;
        }
        let needed = cores.div_ceil(per_row);
        let rows = if cell == 1 {
            needed.min(rows_max)
        } else {
            needed
        };
        Some(CoreLayout::Map {
            rows,
            per_row,
            cell,
            has_numbers: rows < rows_max && per_row > NUMBERED as u16,
        })
    }

    pub(super) fn rows(&self) -> u16 {
        match self {
            CoreLayout::Bars { rows, .. } => *rows,
            CoreLayout::Map {
                rows, has_numbers, ..
            } => rows + u16::from(*has_numbers),
        }
    }
}

pub(crate) fn draw(
    theme: TerminalTheme,
    cores: &[(u32, CpuShares)],
    plan: &CoreLayout,
    area: Rect,
    buffer: &mut Buffer,
) {
    match plan {
        CoreLayout::Bars { rows, width } => bars(theme, cores, (*rows, *width), area, buffer),
        CoreLayout::Map {
            rows,
            per_row,
            cell,
            has_numbers,
        } => {
            let [rows, per_row, cell] = [*rows, *per_row, *cell].map(usize::from);
            let group = cores.len().div_ceil((rows * per_row).max(1)).max(1);
            let numbers = has_numbers.then(|| numbers(theme, per_row, cell, group));
            let cells = cores.chunks(per_row * group);
            let cells = cells.map(|row| map_row(theme, row, cell, group));
            let lines: Vec<Line<'_>> = numbers.into_iter().chain(cells).collect();
            Paragraph::new(lines).render(area, buffer);
        }
    }
}

/// Draws one bar per core, numbered down the columns.
fn bars(
    theme: TerminalTheme,
    cores: &[(u32, CpuShares)],
    (rows, width): (u16, u16),
    area: Rect,
    buffer: &mut Buffer,
) {
    for (index, (number, shares)) in cores.iter().enumerate() {
        let index = index as u16;
        let cell = Rect {
            x: area.x + index / rows * (width + 2),
            y: area.y + index % rows,
            width,
            height: 1,
        };
        let mut line = stacked_bar(theme, width - 10, &mode_parts(shares));
        let number = theme.span(format!("{number:>4} "), StyleRole::Faint);
        line.spans.insert(0, number);
        let percent = format!("{:>4.0}%", shares.busy() * 100.0);
        line.push_span(theme.span(percent, StyleRole::Plain));
        line.render(cell.intersection(area), buffer);
    }
}

/// Returns the row above a map: the numbers to add to the first core of each row.
fn numbers(theme: TerminalTheme, per_row: usize, cell: usize, group: usize) -> Line<'static> {
    let mut text = " ".repeat(NUMBER.into());
    let last = per_row.saturating_sub(1) / NUMBERED;
    for index in 0..=last {
        let number = format!("+{}", index * NUMBERED * group);
        // Above the digits of the percentage, which is aligned to the right.
        let at = index * NUMBERED * cell + cell.saturating_sub(2);
        text.push_str(&" ".repeat((usize::from(NUMBER) + at).saturating_sub(text.len())));
        text.push_str(&number);
    }
    theme.span(text, StyleRole::Faint).into()
}

/// Returns one row of a map: a cell per core, or per group of cores (their mean).
fn map_row(
    theme: TerminalTheme,
    row: &[(u32, CpuShares)],
    cell: usize,
    group: usize,
) -> Line<'static> {
    let number = row.first().map_or(0, |(number, _)| *number);
    let number = theme.span(format!("{number:>4} "), StyleRole::Faint);
    let cells = row.chunks(group).map(|group| {
        let sum: f64 = group.iter().map(|(_, shares)| shares.busy()).sum();
        map_cell(theme, sum / group.len() as f64, cell)
    });
    std::iter::once(number).chain(cells).collect()
}

fn map_cell(theme: TerminalTheme, busy: f64, cell: usize) -> Span<'static> {
    if cell == 1 {
        return theme.span(theme.column(busy), TerminalTheme::usage_role(busy));
    }
    let percent = format!("{:>cell$.0}", busy * 100.0);
    theme.span(percent, TerminalTheme::heat_role(busy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_cores_get_bars_and_many_get_a_map() {
        let bars = |rows, width| CoreLayout::Bars { rows, width };
        let map = |rows, per_row, cell| CoreLayout::Map {
            rows,
            per_row,
            cell,
            has_numbers: true,
        };
        let choose = |cores, width, rows| CoreLayout::choose(cores, width, rows, true);
        assert_eq!(choose(2, 80, 8), bars(1, 39));
        assert_eq!(choose(2, 40, 3), bars(2, 40));
        assert_eq!(choose(16, 80, 8), bars(8, 39));
        assert_eq!(choose(256, 80, 8), map(4, 64, 1));
        assert_eq!(choose(256, 120, 12), map(8, 32, 3));
        assert_eq!(choose(256, 200, 20), map(4, 64, 3));
        assert_eq!(CoreLayout::choose(256, 120, 12, false), map(4, 64, 1));
        assert_eq!(choose(256, 40, 2).rows(), 2);
        assert_eq!(choose(0, 0, 0).rows(), 0);
    }

    #[test]
    fn numbers_stand_above_their_cells() {
        let theme = TerminalTheme::detect(|_| None);
        let above = numbers(theme, 32, 3, 1).to_string();
        assert_eq!(
            above,
            "      +0                      +8                      +16                     +24"
        );
        assert_eq!(numbers(theme, 16, 1, 2).to_string(), "     +0      +16");
        assert_eq!(map_cell(theme, 0.434, 3).content, " 43");
        assert_eq!(map_cell(theme, 1.0, 3).content, "100");
    }
}
