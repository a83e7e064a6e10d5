//! Draws every core as a bar if they fit, else as a column of one character.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget};

use super::bars::stacked_bar;
use super::overview::mode_parts;
use super::theme::{StyleRole, TerminalTheme};
use crate::top::model::CpuShares;

/// Width of `255 ████████·· 100%`.
const BAR_WIDTH_MIN: u16 = 19;
/// Wider bars add no information.
const BAR_WIDTH_MAX: u16 = 60;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CoreLayout {
    /// Number of rows, and the width of a bar with core number and percentage.
    Bars { rows: u16, width: u16 },
    /// Number of rows, and of cores per row.
    Map { rows: u16, per_row: u16 },
}

impl CoreLayout {
    /// Chooses a layout for this number of cores in at most `rows_max` rows.
    pub(super) fn choose(cores: usize, width: u16, rows_max: u16) -> CoreLayout {
        let cores = u16::try_from(cores).unwrap_or(u16::MAX).max(1);
        let across_max = (width + 2) / (BAR_WIDTH_MIN + 2);
        let across = across_max.max(1).min(cores);
        // Use as few columns as possible: longer bars are easier to compare.
        let fitting = (1..=across).find(|across| cores.div_ceil(*across) <= rows_max.min(16));
        let fitting = fitting.or_else(|| (cores.div_ceil(across) <= rows_max).then_some(across));
        if let Some(across) = fitting.filter(|_| across_max > 0) {
            let across = if cores > 1 && across == 1 && width >= 76 {
                2
            } else {
                across
            };
            let width = ((width + 2) / across - 2).min(BAR_WIDTH_MAX);
            let rows = cores.div_ceil(across);
            return CoreLayout::Bars { rows, width };
        }
        // Rows of 64, 32, 16 or 8 are easy to count.
        let room = width.saturating_sub(5).max(1);
        let per_row = [256, 128, 64, 32, 16, 8]
            .into_iter()
            .find(|per_row| *per_row <= room)
            .unwrap_or(room);
        let rows = cores.div_ceil(per_row).min(rows_max);
        CoreLayout::Map { rows, per_row }
    }

    pub(super) fn rows(&self) -> u16 {
        match self {
            CoreLayout::Bars { rows, .. } | CoreLayout::Map { rows, .. } => *rows,
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
        CoreLayout::Map { rows, per_row } => {
            Paragraph::new(map(theme, cores, *rows, *per_row)).render(area, buffer);
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

/// Returns one character per core, or per group of cores (their mean) if they do not fit.
fn map(
    theme: TerminalTheme,
    cores: &[(u32, CpuShares)],
    rows: u16,
    per_row: u16,
) -> Vec<Line<'static>> {
    let (rows, per_row) = (usize::from(rows), usize::from(per_row));
    let group_size = cores.len().div_ceil((rows * per_row).max(1)).max(1);
    let line = |line: &[(u32, CpuShares)]| {
        let number = theme.span(format!("{:>4} ", line[0].0), StyleRole::Faint);
        let columns = line.chunks(group_size).map(|group| {
            let sum: f64 = group.iter().map(|(_, shares)| shares.busy()).sum();
            let busy = sum / group.len() as f64;
            theme.span(theme.column(busy), TerminalTheme::usage_role(busy))
        });
        std::iter::once(number).chain(columns).collect()
    };
    cores.chunks(per_row * group_size).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_cores_get_bars_and_many_get_columns() {
        assert_eq!(
            CoreLayout::choose(2, 80, 8),
            CoreLayout::Bars { rows: 1, width: 39 }
        );
        assert_eq!(
            CoreLayout::choose(2, 40, 3),
            CoreLayout::Bars { rows: 2, width: 40 }
        );
        assert_eq!(
            CoreLayout::choose(16, 80, 8),
            CoreLayout::Bars { rows: 8, width: 39 }
        );
        assert_eq!(
            CoreLayout::choose(256, 80, 8),
            CoreLayout::Map {
                rows: 4,
                per_row: 64
            }
        );
        assert_eq!(
            CoreLayout::choose(256, 200, 8),
            CoreLayout::Map {
                rows: 2,
                per_row: 128
            }
        );
        assert_eq!(CoreLayout::choose(256, 200, 40).rows(), 29);
        assert_eq!(
            CoreLayout::choose(256, 40, 2),
            CoreLayout::Map {
                rows: 2,
                per_row: 32
            }
        );
        assert_eq!(
            CoreLayout::choose(0, 0, 0),
            CoreLayout::Map {
                rows: 0,
                per_row: 1
            }
        );
    }
}
