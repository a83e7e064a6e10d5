//! Draws the list of series with value, rate and history.

use super::canvas::{Canvas, shorten_series};
use super::table::{self, TableCell, TableColumn, bar, column_positions, number, text};
use super::theme::StyleRole;
use super::{detail, layout};
use crate::format::number::human_readable;
use crate::top::app::{TopApp, TopView};
use crate::top::model::SeriesTrack;
use crate::top::units;

pub fn draw(canvas: &mut Canvas<'_>, app: &TopApp, height: u16) {
    let width = canvas.width();
    let columns = columns(width);
    summary(canvas, app);
    if app.list.count == 0 {
        super::draw_paragraph(canvas, 2, &empty_reason(app));
        return;
    }
    let rows = app.list.rows.len() as u16 + 1;
    let mut page = canvas.region(2, 1, width - 3, rows);
    table::header_row(&mut page, 0, &columns);
    for (index, row) in app.list.rows.iter().enumerate() {
        if let Some(track) = app.model.track(row) {
            table::row(
                &mut page,
                index as u16 + 1,
                &columns,
                &cells(app, track, &columns, width),
            );
        }
    }
    // The mark shows the selection on terminals without reverse video.
    let selected = (app.list.position - app.offset.min(app.list.position)) as u16;
    let y = layout::LIST_HEAD_ROWS + selected;
    canvas.text(0, y, 1, ">", StyleRole::Key);
    canvas.highlight_row(y);
    if app.has_detail {
        let detail = layout::detail_rows(height);
        let top = canvas.height().saturating_sub(detail);
        let track = app.list.rows.get(usize::from(selected));
        if let Some(track) = track.and_then(|row| app.model.track(row)) {
            detail::draw(&mut canvas.region(0, top, width, detail), app, track);
        }
    }
}

fn columns(width: u16) -> [TableColumn; 4] {
    let history = match width {
        120.. => width / 4,
        70.. => 16,
        _ => 10,
    };
    [
        text("series", 16),
        number("value", 11),
        number("rate", 11),
        bar("last seconds", history),
    ]
}

fn cells(app: &TopApp, track: &SeriesTrack, columns: &[TableColumn], width: u16) -> [TableCell; 4] {
    let family = track.series.family();
    let value = track.last().map(|last| last.value);
    let rate = match app.model.rate(track) {
        Some(0.0) if track.is_counter() => TableCell::Text("0".to_owned(), StyleRole::Faint),
        Some(rate) if track.is_counter() => TableCell::plain(units::rate(rate, family)),
        None if track.is_counter() => TableCell::Missing,
        _ => TableCell::plain(""),
    };
    let room = column_positions(columns, width.saturating_sub(3));
    let history = match (app.model.history(track.series.text()), room.get(3)) {
        (Some(history), Some((_, room))) => {
            let values = history.columns(app.model.second(), (*room).into());
            let range = value_range(&values);
            TableCell::Sparkline(values, range)
        }
        _ => TableCell::plain(""),
    };
    [
        TableCell::plain(shorten_series(
            track.series.text(),
            room.first().map_or(0, |(_, room)| *room),
            app.theme,
        )),
        TableCell::number(value, |value| units::value(value, family)),
        rate,
        history,
    ]
}

/// Returns the range from the lowest to the highest value, extended to zero if that is near, so that noise stays small.
pub fn value_range(values: &[Option<f64>]) -> (f64, f64) {
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

fn summary(canvas: &mut Canvas<'_>, app: &TopApp) {
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
    canvas.text(1, 0, canvas.width() - 2, &text, StyleRole::Faint);
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
