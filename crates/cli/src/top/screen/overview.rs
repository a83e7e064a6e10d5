//! Draws the overview of the node: CPUs, memory, load, pressure, GPUs, disks, networks, processes
//! and charts. Each part takes the rows that it needs, in the order of importance; the charts fill
//! the rest.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Margin, Rect};

use super::layout::take_rows;
use super::rows::{draw_row, gpu_summary, load, waits};
use super::{charts, cpu, device_charts, disks, memory, network, processes};
use crate::top::app::TopApp;
use crate::top::model::{self, MemoryUsage};

/// Maximum number of disks and of interfaces; their own views show all.
const DEVICES_MAX: u16 = 8;
/// Rows of the processes with their column titles: the fewest that are worth their room, and those
/// that charts leave.
const PROCESS_ROWS_MIN: u16 = 4;
const PROCESS_ROWS: u16 = 7;
/// Rows of two charts, one above the other, and the time axis.
const CHART_ROWS_MIN: u16 = 9;
/// Rows of one chart and the time axis.
const CHART_ROWS: u16 = 5;

pub(crate) fn draw(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let model = &app.model;
    let gpus = model::gpus(model);
    let memory = MemoryUsage::from_model(model);
    let has_legend = area.height >= 16;
    let summary = memory::rows(memory.as_ref(), has_legend) + 2 + u16::from(!gpus.is_empty());
    let devices = device_rows(app, area);
    // The device tables shrink to three rows, or are left out, to make room for the cores.
    let free = area.height.saturating_sub(2 + summary);
    let kept = if free > 6 { devices.min(4) } else { 0 };
    let mut rest = area;
    cpu::draw(app, (free - kept).min(area.height / 3), &mut rest, buffer);
    let spare = rest.height.saturating_sub(summary + devices);
    take_rows(&mut rest, spare.min(1));
    memory::draw(app, memory.as_ref(), has_legend, &mut rest, buffer);
    draw_row(app, "load", load(app), take_rows(&mut rest, 1), buffer);
    draw_row(app, "waits", waits(app), take_rows(&mut rest, 1), buffer);
    if !gpus.is_empty() {
        let words = gpu_summary(app.theme, &gpus);
        draw_row(app, "GPUs", words, take_rows(&mut rest, 1), buffer);
    }
    take_rows(&mut rest, u16::from(spare > 1));
    draw_devices(app, take_rows(&mut rest, devices), buffer);
    let rest = rest.inner(Margin::new(1, 0));
    if rest.height > PROCESS_ROWS_MIN {
        draw_processes_and_charts(app, super::layout::below(rest, 1), buffer);
    }
}

/// Draws the processes above the charts, or one of both if there is no room for the other. With
/// room for one row of charts, it shows disks and networks: the CPUs have a history beside their
/// bar.
fn draw_processes_and_charts(app: &TopApp, mut rest: Rect, buffer: &mut Buffer) {
    let mut pairs = device_charts::of_node(app);
    let listed = processes::summary_rows(app);
    if listed == 0 {
        charts::draw(app, &pairs, rest, buffer);
        return;
    }
    // A blank row separates them.
    let rows = if rest.height > PROCESS_ROWS + CHART_ROWS_MIN {
        (rest.height * 2 / 5).max(PROCESS_ROWS)
    } else if rest.height > PROCESS_ROWS_MIN + CHART_ROWS {
        pairs = device_charts::of_devices(app);
        rest.height - CHART_ROWS - 1
    } else {
        rest.height
    };
    let area = take_rows(&mut rest, rows.min(listed));
    processes::draw_summary(app, area, buffer);
    charts::draw(app, &pairs, super::layout::below(rest, 1), buffer);
}

fn device_rows(app: &TopApp, area: Rect) -> u16 {
    // At most an eighth of the screen.
    let most = (area.height / 8).clamp(3, DEVICES_MAX);
    let disks = (model::disks(&app.model).len() as u16).min(most);
    let interfaces = (network::shown_in_summary(app).len() as u16).min(most);
    if is_wide(area.width) {
        1 + disks.max(interfaces)
    } else {
        2 + disks + interfaces
    }
}

fn is_wide(width: u16) -> bool {
    width >= 76
}

/// Draws disks and networks side by side, or stacked on narrow screens.
fn draw_devices(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    // Skip a table without room for a row.
    if area.height < 2 {
        return;
    }
    let has_halves = is_wide(area.width);
    let mut area = area.inner(Margin::new(1, 0));
    if has_halves {
        let halves = [Constraint::Fill(1), Constraint::Fill(1)];
        let [left, right] = Layout::horizontal(halves).spacing(3).areas(area);
        disks::draw_summary(app, left, buffer);
        network::draw_summary(app, right, buffer);
        return;
    }
    if area.height >= 4 {
        let disks = (model::disks(&app.model).len() as u16 + 1).min(area.height / 2);
        let disks = take_rows(&mut area, disks);
        disks::draw_summary(app, disks, buffer);
    }
    network::draw_summary(app, area, buffer);
}
