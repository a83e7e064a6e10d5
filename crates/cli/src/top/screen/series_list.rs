//! Draws the list of series with value, rate and history.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::widgets::{HighlightSpacing, StatefulWidget, TableState, Widget};

use super::bars::recent_values;
use super::table::{TableCell, TableColumn, column_widths, number, table, text};
use super::text::shorten_series;
use super::theme::StyleRole;
use super::{detail, layout};
use crate::format::number::human_readable;
use crate::top::app::{TopApp, TopView};
use crate::top::model::SeriesTrack;
use crate::top::units;

/// Shows the selection on terminals without reverse video.
const MARK: &str = "> ";

pub(crate) fn draw(app: &TopApp, mut area: Rect, buffer: &mut Buffer) {
    let theme = app.theme;
    let detail_rows = layout::detail_rows(area.height);
    let summary_area = layout::take_rows(&mut area, 1).inner(Margin::new(1, 0));
    let summary = theme.clipped(summary(app), summary_area.width, StyleRole::Faint);
    summary.render(summary_area, buffer);
    if app.list.count == 0 {
        super::draw_paragraph(theme, &empty_reason(app), layout::below(area, 1), buffer);
        return;
    }
    let selected = app.list.position - app.offset.min(app.list.position);
    if app.has_detail {
        let constraints = [Constraint::Fill(1), Constraint::Length(detail_rows)];
        let [list, detail_area] = Layout::vertical(constraints).areas(area);
        let row = app.list.rows.get(selected);
        if let Some(track) = row.and_then(|row| app.model.track(row)) {
            detail::draw(app, track, detail_area, buffer);
        }
        area = list;
    }
    super::draw_scrollbar(
        theme,
        app.list.count,
        app.offset,
        layout::below(area, 1),
        buffer,
    );
    let [area, _] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(2)]).areas(area);
    let columns = columns(area.width + 2);
    let width = area.width - MARK.len() as u16;
    let widths = column_widths(&columns, width);
    let tracks = app.list.rows.iter().filter_map(|row| app.model.track(row));
    let list = table(
        theme,
        &columns,
        width,
        tracks.map(|track| cells(app, track, &widths)),
    )
    .highlight_symbol(MARK)
    .highlight_spacing(HighlightSpacing::Always)
    .row_highlight_style(theme.style(StyleRole::Selected));
    let mut state = TableState::new().with_selected(selected);
    StatefulWidget::render(list, area, buffer, &mut state);
}

fn columns(width: u16) -> [TableColumn; 4] {
    let history = match width {
        120.. => width / 4 - 1,
        70.. => 15,
        _ => 10,
    };
    [
        text("series", 16),
        number("value", 11),
        number("rate", 11),
        text("last seconds", history),
    ]
}

fn cells(app: &TopApp, track: &SeriesTrack, widths: &[u16]) -> [TableCell; 4] {
    let family = track.series.family();
    let value = track.last().map(|last| last.value);
    let rate = match app.model.rate(track) {
        Some(0.0) if track.is_counter() => TableCell::Text("0".to_owned(), StyleRole::Faint),
        Some(rate) if track.is_counter() => TableCell::plain(units::rate(rate, family)),
        None if track.is_counter() => TableCell::Missing,
        _ => TableCell::plain(""),
    };
    let history = widths
        .get(3)
        .and_then(|width| recent_values(app, track.series.text(), *width));
    let history = match history {
        Some(values) => {
            let range = value_range(&values);
            TableCell::Sparkline(values, range)
        }
        None => TableCell::plain(""),
    };
    let name_width = widths.first().copied().unwrap_or_default();
    [
        TableCell::plain(shorten_series(track.series.text(), name_width, app.theme)),
        TableCell::number(value, |value| units::value(value, family)),
        rate,
        history,
    ]
}

/// Returns the range from the lowest to the highest value, extended to zero if that is near, so
/// that noise stays small.
pub(super) fn value_range(values: &[Option<f64>]) -> (f64, f64) {
    let known = || values.iter().flatten().copied();
    let (low, high) = (
        known().fold(f64::INFINITY, f64::min),
        known().fold(f64::NEG_INFINITY, f64::max),
    );
    if !low.is_finite() {
        return (0.0, 1.0);
    }
    // Draw constant values at the bottom.
    if low == high {
        return (low, low + 1.0);
    }
    if low > 0.0 && low < high / 2.0 {
        return (0.0, high);
    }
    (low, high)
}

fn summary(app: &TopApp) -> String {
    let list = &app.list;
    let noun = if app.view == TopView::Programs {
        "series of programs"
    } else {
        "series"
    };
    let counts = if list.count == list.all {
        format!("{} {noun}", human_readable(list.all as f64))
    } else {
        let (shown, all) = (
            human_readable(list.count as f64),
            human_readable(list.all as f64),
        );
        format!("{shown} of {all} {noun}")
    };
    let mut text = format!("{counts}, by {}", app.sort.label());
    if !app.filter.is_empty() {
        text.push_str(&format!(", with \"{}\"", app.filter));
    }
    if let Some((pattern, _)) = &app.pattern {
        text.push_str(&format!(", --match {pattern}"));
    }
    text
}

fn empty_reason(app: &TopApp) -> String {
    if !app.filter.is_empty() {
        return format!(
            "No series contains \"{}\"; esc clears the filter.",
            app.filter
        );
    }
    if let Some((pattern, _)) = &app.pattern {
        return format!("No series matches --match \"{pattern}\" yet.");
    }
    if app.view == TopView::Programs {
        return "No program has sent metrics yet, by client library, statsd, or pegel run."
            .to_owned();
    }
    "The agent has no values.".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_history_extends_to_a_near_zero() {
        assert_eq!(value_range(&[None, Some(3.0), Some(10.0)]), (0.0, 10.0));
        assert_eq!(value_range(&[Some(99.0), Some(100.0)]), (99.0, 100.0));
        assert_eq!(value_range(&[Some(5.0)]), (5.0, 6.0));
        assert_eq!(value_range(&[None]), (0.0, 1.0));
        assert_eq!(value_range(&[Some(-2.0), Some(2.0)]), (-2.0, 2.0));
    }
}
