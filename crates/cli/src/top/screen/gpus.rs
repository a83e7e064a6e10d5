//! Draws the GPUs, one row each.

use super::canvas::Canvas;
use super::disks::share_cell;
use super::table::{self, TableCell, TableColumn, bar, number, text};
use crate::top::app::TopApp;
use crate::top::model::{self, GpuUsage};
use crate::top::units;

/// Returns the columns; the history takes the remaining width, up to a minute.
fn columns(width: u16) -> [TableColumn; 11] {
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

pub fn draw(canvas: &mut Canvas<'_>, app: &TopApp) {
    let gpus = model::gpus(&app.model);
    let (width, height) = (canvas.width(), canvas.height());
    let mut page = canvas.region(1, 0, width - 2, height);
    if gpus.is_empty() {
        let reason = app.model.agent.empty_reason("GPUs", 3, &["nvidia", "gpu"]);
        super::draw_paragraph(&mut page, 1, &reason);
        return;
    }
    let columns = columns(page.width());
    table::header_row(&mut page, 0, &columns);
    let rows = usize::from(height.saturating_sub(1));
    for (y, gpu) in gpus.iter().skip(app.offset).take(rows).enumerate() {
        table::row(&mut page, y as u16 + 1, &columns, &cells(app, gpu));
    }
}

fn cells(app: &TopApp, gpu: &GpuUsage) -> [TableCell; 11] {
    let watts = |value: f64| format!("{value:.0} W");
    let history = match app.model.history(&gpu.busy_series) {
        Some(history) => TableCell::Sparkline(history.columns(app.model.second(), 60), (0.0, 1.0)),
        None => TableCell::Missing,
    };
    [
        TableCell::plain(format!("{} {}", gpu.id, gpu.model)),
        share_cell(gpu.busy),
        TableCell::Bar(gpu.busy),
        TableCell::number(gpu.memory_used, units::bytes),
        TableCell::number(gpu.memory_total, units::bytes),
        TableCell::number(gpu.power, watts),
        TableCell::number(gpu.power_limit, watts),
        TableCell::number(gpu.temperature, |value| units::decimal(value, "°C")),
        TableCell::number(gpu.clock, |value| units::decimal(value, "Hz")),
        share_cell(gpu.memory_busy),
        history,
    ]
}
