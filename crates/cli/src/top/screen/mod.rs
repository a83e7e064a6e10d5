//! Draws the application's state. A pure function: the same state gives the same screen.

mod canvas;
mod cores;
mod detail;
mod disks;
mod frame;
mod gpus;
pub mod layout;
mod network;
mod overview;
mod pressure;
mod series_list;
mod table;
pub mod theme;

use ratatui::buffer::Buffer;

use super::app::{TopApp, TopView};
use super::model::{self, SeriesTrack};
use canvas::Canvas;
use theme::StyleRole;

pub fn draw(buffer: &mut Buffer, app: &TopApp) {
    let mut canvas = Canvas::new(buffer, app.theme);
    let (width, height) = (canvas.width(), canvas.height());
    if width < layout::WIDTH_MIN || height < layout::HEIGHT_MIN {
        frame::too_small(&mut canvas);
        return;
    }
    frame::header(&mut canvas, app);
    frame::tabs(&mut canvas, app);
    frame::footer(&mut canvas, app);
    let mut body = canvas.region(0, layout::HEAD_ROWS, width, layout::body_rows(height));
    if app.has_help {
        frame::help(&mut body);
        return;
    }
    if app.model.is_empty() {
        body.text(
            1,
            1,
            width - 2,
            "Waiting for the agent's first values.",
            StyleRole::Faint,
        );
        return;
    }
    match app.view {
        TopView::Node => overview::draw(&mut body, app),
        TopView::Gpus => gpus::draw(&mut body, app),
        TopView::Disks => disks::draw(&mut body, app),
        TopView::Network => network::draw(&mut body, app),
        TopView::Pressure => pressure::draw(&mut body, app),
        TopView::Programs | TopView::Metrics => series_list::draw(&mut body, app, height),
    }
}

/// Returns the number of rows in the tables of a view, which limits scrolling.
pub fn row_count(app: &TopApp) -> usize {
    match app.view {
        TopView::Gpus => model::gpus(&app.model).len(),
        TopView::Disks => disks::row_count(app),
        TopView::Network => model::interfaces(&app.model).len(),
        TopView::Node | TopView::Pressure | TopView::Programs | TopView::Metrics => 0,
    }
}

/// Returns the series whose history a view draws.
pub fn history_series(app: &TopApp) -> Vec<String> {
    match app.view {
        TopView::Node => vec![
            overview::CPU_SERIES.to_owned(),
            overview::MEMORY_SERIES.to_owned(),
        ],
        TopView::Gpus => model::gpus(&app.model)
            .into_iter()
            .map(|gpu| gpu.busy_series)
            .collect(),
        TopView::Pressure => model::pressure(&app.model)
            .into_iter()
            .flat_map(|one| [one.some_series, one.full_series])
            .collect(),
        _ => Vec::new(),
    }
    .into_iter()
    .filter(|text| app.model.track(text).and_then(SeriesTrack::last).is_some())
    .collect()
}

/// Draws a sentence in an empty view, wrapped over several rows.
fn draw_paragraph(canvas: &mut Canvas<'_>, y: u16, text: &str) {
    let room = usize::from(canvas.width().saturating_sub(2)).max(1);
    let mut line = String::new();
    let mut row = y;
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            canvas.text(1, row, u16::MAX, &line, StyleRole::Faint);
            line.clear();
            row += 1;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    canvas.text(1, row, u16::MAX, &line, StyleRole::Faint);
}

#[cfg(test)]
mod tests;
