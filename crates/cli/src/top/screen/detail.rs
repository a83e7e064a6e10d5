//! Draws the details of one series: value, help, labels, type, history.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Widget};

use super::bars::{draw_history, recent_values};
use super::layout::below;
use super::series_list::value_range;
use super::theme::StyleRole;
use crate::format::number::{exact, utc};
use crate::top::app::TopApp;
use crate::top::model::{HISTORY_SECONDS, SeriesTrack};
use crate::top::units;

pub(crate) fn draw(app: &TopApp, track: &SeriesTrack, area: Rect, buffer: &mut Buffer) {
    let theme = app.theme;
    let border = theme.border_set();
    let title = Line::from(vec![
        theme.span(border.horizontal_top, StyleRole::Faint),
        theme.span(
            format!(" {} ", track.series.family().name),
            StyleRole::Title,
        ),
    ]);
    let block = Block::new()
        .borders(Borders::TOP)
        .border_set(border)
        .border_style(theme.style(StyleRole::Faint))
        .title(title);
    let inner = block.inner(area);
    Clear.render(area, buffer);
    block.render(area, buffer);
    let lines = lines(app, track).into_iter().map(|(label, text)| {
        let label = theme.span(format!(" {label:<8}"), StyleRole::Faint);
        let width = area.width.saturating_sub(label.width() as u16 + 1);
        Line::from(vec![label, theme.clipped(text, width, StyleRole::Plain)])
    });
    let lines: Vec<Line<'_>> = lines.collect();
    let rows = lines.len() as u16;
    Paragraph::new(lines).render(inner, buffer);
    draw_chart(app, track, below(inner, rows), buffer);
}

/// Returns labels and texts of the details.
fn lines(app: &TopApp, track: &SeriesTrack) -> Vec<(&'static str, String)> {
    let family = track.series.family();
    let mut value = String::new();
    if let Some(last) = track.last() {
        value = format!(
            "{}   {}",
            units::value(last.value, family),
            exact(last.value)
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
fn draw_chart(app: &TopApp, track: &SeriesTrack, area: Rect, buffer: &mut Buffer) {
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
