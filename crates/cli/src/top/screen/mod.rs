//! Draws the state, and nothing else: the same state gives the same screen.

mod canvas;
mod cores;
mod detail;
mod disks;
mod frame;
mod gpus;
mod list;
pub mod look;
mod network;
mod overview;
pub mod place;
mod pressure;
mod table;

use ratatui::buffer::Buffer;

use super::app::{App, View};
use super::model::{self, Track};
use canvas::Canvas;
use look::Role;

pub fn draw(buffer: &mut Buffer, app: &App) {
    let mut canvas = Canvas::new(buffer, app.look);
    let (width, height) = (canvas.width(), canvas.height());
    if width < place::WIDTH_MIN || height < place::HEIGHT_MIN {
        frame::too_small(&mut canvas);
        return;
    }
    frame::head(&mut canvas, app);
    frame::tabs(&mut canvas, app);
    frame::foot(&mut canvas, app);
    let mut body = canvas.part(0, place::HEAD_ROWS, width, place::body_rows(height));
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
            Role::Faint,
        );
        return;
    }
    match app.view {
        View::Node => overview::draw(&mut body, app),
        View::Gpus => gpus::draw(&mut body, app),
        View::Disks => disks::draw(&mut body, app),
        View::Network => network::draw(&mut body, app),
        View::Pressure => pressure::draw(&mut body, app),
        View::Programs | View::Metrics => list::draw(&mut body, app, height),
    }
}

/// How many rows the tables of a view have, to know how far they can be scrolled.
pub fn row_count(app: &App) -> usize {
    match app.view {
        View::Gpus => model::gpus(&app.model).len(),
        View::Disks => disks::row_count(app),
        View::Network => model::interfaces(&app.model).len(),
        View::Node | View::Pressure | View::Programs | View::Metrics => 0,
    }
}

/// The series whose history a view draws.
pub fn histories(app: &App) -> Vec<String> {
    match app.view {
        View::Node => vec![overview::BUSY.to_owned(), overview::USED.to_owned()],
        View::Gpus => model::gpus(&app.model)
            .into_iter()
            .map(|gpu| gpu.busy_series)
            .collect(),
        View::Pressure => model::pressure(&app.model)
            .into_iter()
            .flat_map(|one| [one.some_series, one.full_series])
            .collect(),
        _ => Vec::new(),
    }
    .into_iter()
    .filter(|text| app.model.track(text).and_then(Track::last).is_some())
    .collect()
}

/// A sentence in an empty view, over several rows if need be.
fn sentence(canvas: &mut Canvas<'_>, y: u16, text: &str) {
    let room = usize::from(canvas.width().saturating_sub(2)).max(1);
    let mut line = String::new();
    let mut row = y;
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            canvas.text(1, row, u16::MAX, &line, Role::Faint);
            line.clear();
            row += 1;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    canvas.text(1, row, u16::MAX, &line, Role::Faint);
}

#[cfg(test)]
mod tests;
