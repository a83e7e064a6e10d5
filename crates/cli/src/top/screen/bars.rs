//! Bars and charts. ratatui's `Sparkline` draws histories; its gauges have one part and no place in
//! a table cell, so that bars are lines of text.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Sparkline, Widget};

use super::table::TableCell;
use super::theme::{StyleRole, TerminalTheme, level};
use crate::top::app::TopApp;
use crate::top::model::HISTORY_SECONDS;

/// Returns a bar of several fractions of one; the rest is empty.
pub(crate) fn stacked_bar(
    theme: TerminalTheme,
    width: u16,
    parts: &[(f64, StyleRole)],
) -> Line<'static> {
    let cells = |share: f64| (share.min(1.0) * f64::from(width)).round() as usize;
    let part = |count: usize, role| Span::styled(theme.cell(role).repeat(count), theme.style(role));
    let mut spans = Vec::new();
    let mut end = 0.0;
    for (share, role) in parts.iter().filter(|(share, _)| *share > 0.0) {
        // Round the ends, not the lengths: the whole bar is never a cell too long.
        let start = cells(end);
        end += share;
        spans.push(part(cells(end) - start, *role));
    }
    spans.push(part(usize::from(width) - cells(end), StyleRole::Faint));
    Line::from(spans)
}

/// Returns a bar of one fraction, in eighths of a cell.
pub(crate) fn bar(theme: TerminalTheme, width: u16, share: f64, role: StyleRole) -> Line<'static> {
    let eighths = (share.clamp(0.0, 1.0) * f64::from(width) * 8.0).round() as usize;
    let filled = (0..eighths.div_ceil(8)).map(|column| theme.eighth(eighths - column * 8));
    let filled = Span::styled(filled.collect::<String>(), theme.style(role));
    let empty = usize::from(width) - eighths.div_ceil(8);
    let empty = Span::styled(theme.eighth(0).repeat(empty), theme.style(StyleRole::Faint));
    Line::from(vec![filled, empty])
}

/// Draws one column per value, from `low` at the bottom of the area to `high` at its top.
pub(crate) fn draw_history(
    theme: TerminalTheme,
    values: &[Option<f64>],
    (low, high): (f64, f64),
    role: StyleRole,
    area: Rect,
    buffer: &mut Buffer,
) {
    let columns = values
        .iter()
        .map(|value| value.map(|value| level(fraction(value, low, high), area.height)));
    Sparkline::default()
        .data(columns)
        .max(u64::from(area.height) * 8)
        .bar_set(theme.bar_set())
        .style(theme.style(role))
        .render(area, buffer);
}

/// Returns a history as text of one row.
pub(crate) fn history_line(
    theme: TerminalTheme,
    values: &[Option<f64>],
    (low, high): (f64, f64),
) -> Line<'static> {
    let columns = values.iter().map(|value| match value {
        Some(value) => theme.column(fraction(*value, low, high)),
        None => " ",
    });
    Line::styled(columns.collect::<String>(), theme.style(StyleRole::Good))
}

fn fraction(value: f64, low: f64, high: f64) -> f64 {
    let span = if high > low { high - low } else { 1.0 };
    (value - low) / span
}

/// Returns the last seconds of a series, one value per column.
pub(crate) fn recent_values(app: &TopApp, series: &str, columns: u16) -> Option<Vec<Option<f64>>> {
    let history = app.model.history(series)?;
    Some(history.columns(app.model.second(), columns.into(), 1))
}

/// Returns a cell with the history of two counters of bytes, added up.
pub(crate) fn throughput(app: &TopApp, series: &[String; 2]) -> TableCell {
    let columns = HISTORY_SECONDS as u16;
    let [first, second] = series
        .each_ref()
        .map(|one| recent_values(app, one, columns));
    let (Some(first), Some(second)) = (first, second) else {
        return TableCell::plain("");
    };
    let sums = first.into_iter().zip(second);
    let sums: Vec<Option<f64>> = sums
        .map(|(a, b)| a.zip(b).map(|(a, b)| a + b).or(a).or(b))
        .collect();
    TableCell::Throughput(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::CpuMode::{System, User};

    const THEME: TerminalTheme = TerminalTheme::WITHOUT_COLOURS;

    #[test]
    fn bars_are_proportional_to_their_share() {
        let one = |width, share| bar(THEME, width, share, StyleRole::Plain).to_string();
        assert_eq!(one(8, 0.5), "████····");
        assert_eq!(one(8, 0.3), "██▍·····");
        assert_eq!(one(4, 7.0), "████");
        assert_eq!(one(4, f64::NAN), "····");
        let several = |width, user, system| {
            let parts = [
                (user, StyleRole::Cpu(User)),
                (system, StyleRole::Cpu(System)),
            ];
            stacked_bar(THEME, width, &parts).to_string()
        };
        assert_eq!(several(8, 0.5, 0.25), "████▓▓··");
        assert_eq!(several(4, 0.9, 0.9), "████");
        assert_eq!(several(4, f64::NAN, -1.0), "····");
    }

    #[test]
    fn an_existing_value_is_visible() {
        let values = [Some(0.0), None, Some(0.5), Some(1.0)];
        assert_eq!(history_line(THEME, &values, (0.0, 1.0)).to_string(), "▁ ▄█");
    }
}
