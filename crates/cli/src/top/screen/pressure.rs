//! Draws the pressure stall information: the share of time in which tasks waited, by resource.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Widget;

use super::bars::{draw_history, recent_values};
use super::layout::{below, take_rows};
use super::theme::{StyleRole, TerminalTheme};
use crate::top::app::TopApp;
use crate::top::model;
use crate::top::units;

/// Width of label and figure before the history.
const BEFORE: u16 = 24;

pub(crate) fn draw(app: &TopApp, mut area: Rect, buffer: &mut Buffer) {
    let theme = app.theme;
    let all = model::pressure(&app.model);
    if all.is_empty() {
        let agent = &app.model.agent;
        let reason = agent.empty_reason("pressure metrics", 2, &["pressure"]);
        super::draw_paragraph(theme, &reason, below(area, 1), buffer);
        return;
    }
    let title = " share of time in which some or all tasks waited";
    let title = theme.clipped(title, area.width, StyleRole::Title);
    title.render(take_rows(&mut area, 1), buffer);
    let series = all.iter().flat_map(|one| {
        [
            (one.resource, "some", one.some, one.some_series.as_str()),
            (one.resource, "all", one.full, one.full_series.as_str()),
        ]
    });
    let known = |text: &str| app.model.track(text).is_some();
    let series: Vec<_> = series.filter(|(.., text)| known(text)).collect();
    let rows = (area.height / series.len() as u16).clamp(1, 4);
    for (resource, scope, share, text) in series {
        let figure = share.map_or(theme.dash().to_owned(), units::percent);
        let line = Line::from(vec![
            theme.span(format!(" {resource:<8}"), StyleRole::Key),
            theme.span(format!("{scope:<4}"), StyleRole::Faint),
            theme.span(format!("{figure:>8}"), share_role(share)),
        ]);
        let band = take_rows(&mut area, rows);
        let [figures, chart, _] = Layout::horizontal([
            Constraint::Length(BEFORE),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(band);
        line.render(below(figures, rows - 1), buffer);
        if let Some(values) = recent_values(app, text, chart.width) {
            // Scaled to the highest value, at least to one percent.
            let highest = values.iter().flatten().copied().fold(0.01, f64::max);
            let chart = below(chart, u16::from(rows > 1));
            let range = (0.0, highest);
            draw_history(theme, &values, range, StyleRole::Warning, chart, buffer);
        }
    }
}

fn share_role(share: Option<f64>) -> StyleRole {
    match share.map(|share| TerminalTheme::usage_role(share + 0.5)) {
        None => StyleRole::Faint,
        Some(StyleRole::Good) => StyleRole::Plain,
        Some(role) => role,
    }
}
