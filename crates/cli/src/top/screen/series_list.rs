//! Draws the list of series with value, rate and history.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::bars::recent_values;
use super::detail;
use super::list_page::{self, ListContent};
use super::table::{TableCell, TopTableColumn, number, text};
use super::text::shorten_series;
use super::theme::StyleRole;
use crate::format::number::human_readable;
use crate::top::app::TopApp;
use crate::top::model::{self, SeriesTrack};
use crate::top::units;
use crate::top::view::TopView;

pub(crate) fn draw(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    list_page::draw(app, &SeriesPage { app }, area, buffer);
}

struct SeriesPage<'a> {
    app: &'a TopApp,
}

impl ListContent for SeriesPage<'_> {
    fn summary(&self) -> String {
        summary(self.app)
    }

    fn empty_reason(&self) -> String {
        empty_reason(self.app)
    }

    fn columns(&self, width: u16) -> Vec<TopTableColumn> {
        columns(width)
    }

    fn cells(&self, key: &str, widths: &[u16]) -> Option<Vec<TableCell>> {
        let track = self.app.model.track(key)?;
        Some(cells(self.app, track, widths).into())
    }

    fn draw_detail(&self, key: &str, area: Rect, buffer: &mut Buffer) {
        if let Some(track) = self.app.model.track(key) {
            detail::draw(self.app, track, area, buffer);
        }
    }
}

fn columns(width: u16) -> Vec<TopTableColumn> {
    let history = match width {
        116.. => width / 4,
        66.. => 15,
        _ => 10,
    };
    vec![
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
    if app.view == TopView::Programs && model::has_calls(&app.model) {
        text.push_str("; b lists the calls");
    }
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
    if app.view == TopView::Programs
        && let Some(fault) = app.model.agent.lane_faults.first()
    {
        return format!("The agent cannot read all shared memory of programs: {fault}");
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
