//! Draws the details of one series: value, help, labels, type, history.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Widget;

use super::bars::{draw_history, recent_values};
use super::charts::draw_time_axis;
use super::layout::below;
use super::list_page::draw_detail_lines;
use super::series_list::value_range;
use super::theme::StyleRole;
use crate::format::number::{human_readable, utc};
use crate::top::app::TopApp;
use crate::top::model::{HISTORY_SECONDS, SeriesTrack};
use crate::top::units;

pub(crate) fn draw(app: &TopApp, track: &SeriesTrack, area: Rect, buffer: &mut Buffer) {
    let name = &track.series.family().name;
    let rest = draw_detail_lines(app, name, lines(app, track), area, buffer);
    draw_chart(app, track, rest, buffer);
}

/// Returns labels and texts of the details.
fn lines(app: &TopApp, track: &SeriesTrack) -> Vec<(&'static str, String)> {
    let family = track.series.family();
    let mut value = String::new();
    if let Some(last) = track.last() {
        value = format!(
            "{}   {}",
            units::value(last.value, family),
            human_readable(last.value)
        );
        if let Some(rate) = app.model.rate(track).filter(|_| track.is_counter()) {
            value.push_str(&format!("   {}", units::rate(rate, family)));
        }
        value.push_str(&format!("   since {}", utc(last.ts)));
    }
    let mut lines = vec![("value", value)];
    if !family.help.is_empty() {
        lines.push(("help", family.help.to_string()));
    }
    let labels = track.series.labels();
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if !labels.is_empty() {
        lines.push(("labels", labels.join("  ")));
    }
    let kind = match family.unit.as_ref() {
        "" => family.kind.as_str().to_owned(),
        unit => format!("{} in {unit}", family.kind.as_str()),
    };
    lines.push(("type", kind));
    lines
}

/// Draws the history over several rows, with its lowest and highest value.
pub(super) fn draw_chart(app: &TopApp, track: &SeriesTrack, area: Rect, buffer: &mut Buffer) {
    let mut area = area;
    let has_axis = area.height >= 4;
    let axis = if has_axis {
        let [rest, axis] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
        area = rest;
        Some(axis)
    } else {
        None
    };
    let [scale, _, chart, _] = Layout::horizontal([
        Constraint::Length(12),
        Constraint::Length(1),
        Constraint::Max(HISTORY_SECONDS as u16),
        Constraint::Min(1),
    ])
    .areas(area);
    let Some(values) = recent_values(app, track.series.text(), chart.width) else {
        return;
    };
    let (low, high) = value_range(&values);
    let family = track.series.family();
    let figure = |value: f64| {
        let text = if track.is_counter() {
            units::rate(value, family)
        } else {
            units::value(value, family)
        };
        Line::from(app.theme.span(text, StyleRole::Faint)).right_aligned()
    };
    if let Some(axis) = axis {
        let axis = Rect {
            x: chart.x,
            width: chart.width,
            ..axis
        };
        draw_time_axis(app.theme, 1, axis, buffer);
    }
    if scale.height > 1 {
        figure(low).render(below(scale, scale.height - 1), buffer);
    }
    figure(high).render(scale, buffer);
    draw_history(
        app.theme,
        &values,
        (low, high),
        StyleRole::Good,
        chart,
        buffer,
    );
}
