//! GPUs, a row each.

use super::canvas::Canvas;
use super::disks::share;
use super::table::{self, Cell, Column, bar, number, text};
use crate::top::app::App;
use crate::top::model::{self, Gpu};
use crate::top::units;

/// The last minute, or what of it fits behind everything else.
fn columns(width: u16) -> [Column; 11] {
    const OTHERS: u16 = 100;
    [
        text("GPU", 6),
        number("busy", 6),
        bar("", 10),
        number("memory", 8),
        number("of", 8),
        number("power", 6),
        number("limit", 6),
        number("temp", 7),
        number("clock", 8),
        number("mem busy", 8),
        bar("last seconds", width.saturating_sub(OTHERS).clamp(12, 60)),
    ]
}

pub fn draw(canvas: &mut Canvas<'_>, app: &App) {
    let gpus = model::gpus(&app.model);
    let (width, height) = (canvas.width(), canvas.height());
    let mut page = canvas.part(1, 0, width - 2, height);
    if gpus.is_empty() {
        let why = app.model.agent.why_empty("GPUs", 3, &["nvidia", "gpu"]);
        super::sentence(&mut page, 1, &why);
        return;
    }
    let columns = columns(page.width());
    table::head(&mut page, 0, &columns);
    let rows = usize::from(height.saturating_sub(1));
    for (y, gpu) in gpus.iter().skip(app.offset).take(rows).enumerate() {
        table::row(&mut page, y as u16 + 1, &columns, &cells(app, gpu));
    }
}

fn cells(app: &App, gpu: &Gpu) -> [Cell; 11] {
    let watts = |value: f64| format!("{value:.0} W");
    let past = match app.model.history(&gpu.busy_series) {
        Some(history) => Cell::Columns(history.columns(app.model.second(), 60), (0.0, 1.0)),
        None => Cell::Nothing,
    };
    [
        Cell::plain(format!("{} {}", gpu.id, gpu.model)),
        share(gpu.busy),
        Cell::Bar(gpu.busy),
        Cell::number(gpu.memory_used, units::bytes),
        Cell::number(gpu.memory_total, units::bytes),
        Cell::number(gpu.power, watts),
        Cell::number(gpu.power_limit, watts),
        Cell::number(gpu.temperature, |value| units::decimal(value, "°C")),
        Cell::number(gpu.clock, |value| units::decimal(value, "Hz")),
        share(gpu.memory_busy),
        past,
    ]
}
