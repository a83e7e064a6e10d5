//! Series with value, rate and history.

use super::canvas::{Canvas, shortened_series};
use super::look::Role;
use super::table::{self, Cell, Column, bar, number, places, text};
use super::{detail, place};
use crate::format::number::for_people;
use crate::top::app::{App, View};
use crate::top::model::Track;
use crate::top::units;

pub fn draw(canvas: &mut Canvas<'_>, app: &App, height: u16) {
    let width = canvas.width();
    let columns = columns(width);
    summary(canvas, app);
    if app.list.count == 0 {
        super::sentence(canvas, 2, &why_empty(app));
        return;
    }
    let rows = app.list.rows.len() as u16 + 1;
    let mut page = canvas.part(2, 1, width - 3, rows);
    table::head(&mut page, 0, &columns);
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
    // The mark is seen where reverse is not.
    let chosen = (app.list.position - app.offset.min(app.list.position)) as u16;
    let y = place::LIST_HEAD_ROWS + chosen;
    canvas.text(0, y, 1, ">", Role::Key);
    canvas.choose(y);
    if app.has_detail {
        let detail = place::detail_rows(height);
        let top = canvas.height().saturating_sub(detail);
        let track = app.list.rows.get(usize::from(chosen));
        if let Some(track) = track.and_then(|row| app.model.track(row)) {
            detail::draw(&mut canvas.part(0, top, width, detail), app, track);
        }
    }
}

fn columns(width: u16) -> [Column; 4] {
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

fn cells(app: &App, track: &Track, columns: &[Column], width: u16) -> [Cell; 4] {
    let family = track.series.family();
    let value = track.last().map(|last| last.value);
    let rate = match app.model.rate(track) {
        Some(0.0) if track.is_counter() => Cell::Text("0".to_owned(), Role::Faint),
        Some(rate) if track.is_counter() => Cell::plain(units::rate(rate, family)),
        None if track.is_counter() => Cell::Nothing,
        _ => Cell::plain(""),
    };
    let room = places(columns, width.saturating_sub(3));
    let past = match (app.model.history(track.series.text()), room.get(3)) {
        (Some(history), Some((_, room))) => {
            let values = history.columns(app.model.second(), (*room).into());
            let range = range(&values);
            Cell::Columns(values, range)
        }
        _ => Cell::plain(""),
    };
    [
        Cell::plain(shortened_series(
            track.series.text(),
            room.first().map_or(0, |(_, room)| *room),
            app.look,
        )),
        Cell::number(value, |value| units::value(value, family)),
        rate,
        past,
    ]
}

/// From the lowest to the highest value; from zero where that is not far, so that noise stays small.
pub fn range(values: &[Option<f64>]) -> (f64, f64) {
    let known = || values.iter().flatten().copied();
    let (low, high) = (
        known().fold(f64::INFINITY, f64::min),
        known().fold(f64::NEG_INFINITY, f64::max),
    );
    if !low.is_finite() {
        return (0.0, 1.0);
    }
    // What does not move is drawn at the bottom.
    if low == high {
        return (low, low + 1.0);
    }
    if low > 0.0 && low < high / 2.0 {
        return (0.0, high);
    }
    (low, high)
}

fn summary(canvas: &mut Canvas<'_>, app: &App) {
    let list = &app.list;
    let what = if app.view == View::Programs {
        "series of programs"
    } else {
        "series"
    };
    let counts = if list.count == list.all {
        format!("{} {what}", for_people(list.all as f64))
    } else {
        let (shown, all) = (for_people(list.count as f64), for_people(list.all as f64));
        format!("{shown} of {all} {what}")
    };
    let mut text = format!("{counts}, by {}", app.sort.word());
    if !app.filter.is_empty() {
        text.push_str(&format!(", with \"{}\"", app.filter));
    }
    if let Some((pattern, _)) = &app.pattern {
        text.push_str(&format!(", --match {pattern}"));
    }
    canvas.text(1, 0, canvas.width() - 2, &text, Role::Faint);
}

fn why_empty(app: &App) -> String {
    if !app.filter.is_empty() {
        return format!(
            "No series contains \"{}\"; esc drops the filter.",
            app.filter
        );
    }
    if let Some((pattern, _)) = &app.pattern {
        return format!("No series fits --match \"{pattern}\" yet.");
    }
    if app.view == View::Programs {
        return "No program has sent anything yet: neither a client library, nor statsd, nor pegel run."
            .to_owned();
    }
    "The agent has no values.".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_history_starts_at_zero_where_that_is_near() {
        assert_eq!(range(&[None, Some(3.0), Some(10.0)]), (0.0, 10.0));
        assert_eq!(range(&[Some(99.0), Some(100.0)]), (99.0, 100.0));
        assert_eq!(range(&[Some(5.0)]), (5.0, 6.0));
        assert_eq!(range(&[None]), (0.0, 1.0));
        assert_eq!(range(&[Some(-2.0), Some(2.0)]), (-2.0, 2.0));
    }
}
