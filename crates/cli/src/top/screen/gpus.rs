//! Draws the GPUs, one row each.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::bars::recent_values;
use super::table::{TableCell, TopTableColumn, number, text};
use super::{charts, device_charts};
use crate::top::app::TopApp;
use crate::top::model::{self, GpuUsage, HISTORY_SECONDS};
use crate::top::units;

const GPUS: [TopTableColumn; 11] = [
    text("GPU", 10),
    number("busy", 6),
    text("", 10),
    number("memory", 8),
    number("of", 8),
    number("power", 6),
    number("limit", 6),
    number("temp", 7),
    number("clock", 8),
    number("mem busy", 8),
    text("busy, last seconds", 12).flexible(),
];

pub(crate) fn draw(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let gpus = model::gpus(&app.model);
    let reason = app.model.agent.empty_reason("GPUs", 3, &["nvidia", "gpu"]);
    let rows = gpus.iter().map(|gpu| cells(app, gpu)).collect();
    let rest = super::draw_table_page(app, &GPUS, rows, &reason, area, buffer);
    charts::draw(app, &device_charts::of_gpus(app), rest, buffer);
}

fn cells(app: &TopApp, gpu: &GpuUsage) -> [TableCell; 11] {
    let watts = |value: f64| format!("{value:.0} W");
    let history = match recent_values(app, &gpu.busy_series, HISTORY_SECONDS as u16) {
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
