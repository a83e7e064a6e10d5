//! Draws the GPUs, one row each.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::bars::recent_values;
use super::table::{TableCell, TableColumn, number, text};
use crate::top::app::TopApp;
use crate::top::model::{self, GpuUsage};
use crate::top::units;

/// Returns the columns; the history takes the remaining width, up to a minute.
fn columns(width: u16) -> [TableColumn; 11] {
    const OTHERS: u16 = 100;
    [
        text("GPU", 6),
        number("busy", 6),
        text("", 10),
        number("memory", 8),
        number("of", 8),
        number("power", 6),
        number("limit", 6),
        number("temp", 7),
        number("clock", 8),
        number("mem busy", 8),
        text("last seconds", width.saturating_sub(OTHERS).clamp(12, 60)),
    ]
}

pub(crate) fn draw(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let gpus = model::gpus(&app.model);
    let reason = app.model.agent.empty_reason("GPUs", 3, &["nvidia", "gpu"]);
    let columns = columns(area.width - 2);
    let rows = gpus.iter().map(|gpu| cells(app, gpu)).collect();
    super::draw_table_page(app, &columns, rows, &reason, area, buffer);
}

fn cells(app: &TopApp, gpu: &GpuUsage) -> [TableCell; 11] {
    let watts = |value: f64| format!("{value:.0} W");
    let history = match recent_values(app, &gpu.busy_series, 60) {
        Some(values) => TableCell::Sparkline(values, (0.0, 1.0)),
        None => TableCell::Missing,
    };
    [
        TableCell::plain(format!("{} {}", gpu.id, gpu.model)),
        TableCell::share(gpu.busy),
        TableCell::Bar(gpu.busy),
        TableCell::number(gpu.memory_used, units::bytes),
        TableCell::number(gpu.memory_total, units::bytes),
        TableCell::number(gpu.power, watts),
        TableCell::number(gpu.power_limit, watts),
        TableCell::number(gpu.temperature, |value| units::decimal(value, "°C")),
        TableCell::number(gpu.clock, |value| units::decimal(value, "Hz")),
        TableCell::share(gpu.memory_busy),
        history,
    ]
}
