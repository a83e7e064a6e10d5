//! Draws the pressure stall information: the share of time in which tasks waited, by resource.

use super::canvas::Canvas;
use super::theme::{StyleRole, TerminalTheme};
use crate::top::app::TopApp;
use crate::top::model::{self, History};
use crate::top::units;

/// Width of label and figure before the history.
const BEFORE: u16 = 24;

pub fn draw(canvas: &mut Canvas<'_>, app: &TopApp) {
    let all = model::pressure(&app.model);
    if all.is_empty() {
        let reason = app
            .model
            .agent
            .empty_reason("pressure metrics", 2, &["pressure"]);
        super::draw_paragraph(canvas, 1, &reason);
        return;
    }
    let known = |text: &str| app.model.track(text).is_some();
    let series: Vec<(&str, &str, Option<f64>, &str)> = all
        .iter()
        .flat_map(|one| {
            [
                (one.resource, "some", one.some, one.some_series.as_str()),
                (one.resource, "all", one.full, one.full_series.as_str()),
            ]
        })
        .filter(|(.., text)| known(text))
        .collect();
    let width = canvas.width();
    canvas.text(
        1,
        0,
        width - 1,
        "share of time in which some or all tasks waited",
        StyleRole::Title,
    );
    let rows = canvas.height().saturating_sub(1) / series.len() as u16;
    let rows = rows.clamp(1, 4);
    for (index, (resource, scope, share, text)) in series.into_iter().enumerate() {
        let y = 1 + index as u16 * rows + rows - 1;
        canvas.text(1, y, 7, resource, StyleRole::Key);
        canvas.text(9, y, 4, scope, StyleRole::Faint);
        let figure = share.map_or(canvas.theme.dash().to_owned(), units::percent);
        let role = share.map_or(StyleRole::Faint, |share| {
            TerminalTheme::usage_role(share + 0.5)
        });
        let role = if role == StyleRole::Good {
            StyleRole::Plain
        } else {
            role
        };
        canvas.text_right(13, y, 8, &figure, role);
        let room = width.saturating_sub(BEFORE + 1);
        if let Some(history) = app.model.history(text) {
            let height = if rows > 1 { rows - 1 } else { 1 };
            draw_history(canvas, app, history, (y, height, room));
        }
    }
}

/// Draws a history scaled to its highest value, at least to one percent.
fn draw_history(
    canvas: &mut Canvas<'_>,
    app: &TopApp,
    history: &History,
    (y, height, room): (u16, u16, u16),
) {
    let values = history.columns(app.model.second(), room.into());
    let highest = values.iter().flatten().copied().fold(0.01, f64::max);
    let top = (BEFORE, y + 1 - height);
    canvas.column_chart(top, height, &values, (0.0, highest), StyleRole::Warning);
}
