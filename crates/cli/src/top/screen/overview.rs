//! Draws the overview of the node: CPUs, memory, load, pressure, GPUs, disks and networks.

use super::canvas::{Canvas, text_width};
use super::theme::{StyleRole, TerminalTheme};
use super::{cores, disks, network};
use crate::top::app::TopApp;
use crate::top::model::{self, CpuMode, CpuShares, CpuUsage, GpuUsage, MemoryUsage};
use crate::top::units;

/// The series whose histories are drawn beside the bars.
pub const CPU_SERIES: &str = "cpu_percent";
pub const MEMORY_SERIES: &str = "used_RAM";

const LABEL: u16 = 8;
/// In order of importance; on narrow screens the last ones are left out.
const LEGEND: [CpuMode; 6] = [
    CpuMode::User,
    CpuMode::System,
    CpuMode::IoWait,
    CpuMode::Irq,
    CpuMode::Steal,
    CpuMode::Idle,
];
/// Maximum number of disks and of interfaces; their own views show all.
const DEVICES_MAX: usize = 8;
/// Width of a percentage.
const FIGURE: u16 = 8;

pub fn mode_parts(shares: &CpuShares) -> Vec<(f64, StyleRole)> {
    CpuMode::BUSY
        .into_iter()
        .map(|mode| (shares.share(mode), StyleRole::Cpu(mode)))
        .collect()
}

pub fn draw(canvas: &mut Canvas<'_>, app: &TopApp) {
    let model = &app.model;
    let (width, height) = (canvas.width(), canvas.height());
    let gpus = model::gpus(model);
    let cpu = CpuUsage::from_model(model);
    let below = memory_and_load_rows(app, !gpus.is_empty());
    let devices = device_rows(app, width);
    // The device tables shrink to three rows, or are left out, to make room for the cores.
    let free = height.saturating_sub(2 + below);
    let kept = if free > 6 { devices.min(4) } else { 0 };
    let cores_max = free - kept;
    let mut y = 0;
    match &cpu {
        Some(cpu) => {
            cpu_rows(canvas, app, cpu);
            let plan = cores::CoreLayout::choose(cpu.cores.len(), width, cores_max);
            cores::draw(
                &mut canvas.region(0, 2, width, cores_max),
                &cpu.cores,
                &plan,
            );
            y += 2 + plan.rows();
        }
        None => {
            label(canvas, 0, "cpu");
            canvas.text(LABEL, 0, width, &no_cpu_reason(app), StyleRole::Faint);
            y += 1;
        }
    }
    let spare = height.saturating_sub(y + below + devices);
    y += spare.min(1);
    y += memory_rows(canvas, y, app);
    load_row(canvas, y, app);
    pressure_row(canvas, y + 1, app);
    y += 2;
    if !gpus.is_empty() {
        gpu_row(canvas, y, &gpus);
        y += 1;
    }
    y += u16::from(spare > 1);
    device_tables(
        &mut canvas.region(0, y, width, height.saturating_sub(y)),
        app,
    );
    if let Some(rows) = spare.checked_sub(3).filter(|rows| *rows >= 3) {
        let rows = rows.min(16);
        cpu_history(&mut canvas.region(0, height - rows, width, rows), app);
    }
}

/// Draws the CPU usage of the last minutes in the remaining rows.
fn cpu_history(canvas: &mut Canvas<'_>, app: &TopApp) {
    let (width, height) = (canvas.width(), canvas.height());
    let Some(history) = app.model.history(CPU_SERIES) else {
        return;
    };
    let room = width - LABEL - 1;
    let values = history.columns(app.model.second(), room.into());
    label(canvas, height - 1, "history");
    canvas.text(1, 0, LABEL - 1, "100 %", StyleRole::Faint);
    canvas.column_chart((LABEL, 0), height, &values, (0.0, 100.0), StyleRole::Good);
}

fn label(canvas: &mut Canvas<'_>, y: u16, text: &str) {
    canvas.text(1, y, LABEL - 1, text, StyleRole::Title);
}

fn no_cpu_reason(app: &TopApp) -> String {
    if app
        .model
        .tracks_named("node_cpu_seconds_total")
        .next()
        .is_some()
    {
        return "waiting for a second sample".to_owned();
    }
    app.model.agent.empty_reason("CPUs", 2, &["cpu"])
}

fn cpu_rows(canvas: &mut Canvas<'_>, app: &TopApp, cpu: &CpuUsage) {
    let width = canvas.width();
    label(canvas, 0, "cpu");
    let bar = history_row(canvas, 0, app, CPU_SERIES, 100.0);
    canvas.stacked_bar(LABEL, 0, bar, &mode_parts(&cpu.all));
    let busy = cpu.all.busy();
    canvas.text_right(
        LABEL + bar,
        0,
        FIGURE,
        &units::percent(busy),
        TerminalTheme::usage_role(busy),
    );
    let mut x = LABEL;
    for mode in LEGEND {
        let figure = units::percent(cpu.all.share(mode)).replace(' ', "");
        let word = mode.label();
        let needed = 2 + text_width(word) + 6;
        if x + needed > width {
            break;
        }
        canvas.fill(
            x,
            1,
            1,
            canvas.theme.cell(StyleRole::Cpu(mode)),
            StyleRole::Cpu(mode),
        );
        canvas.text(x + 2, 1, 8, word, StyleRole::Faint);
        canvas.text_right(x + 2 + text_width(word), 1, 6, &figure, StyleRole::Plain);
        x += needed + 2;
    }
}

/// Draws the history at the right end if it fits; returns the length left for the bar.
fn history_row(canvas: &mut Canvas<'_>, y: u16, app: &TopApp, series: &str, high: f64) -> u16 {
    let width = canvas.width();
    let history = if width >= 70 { width / 4 } else { 0 };
    let samples = app.model.history(series);
    if let Some(samples) = samples.filter(|_| history > 0) {
        let values = samples.columns(app.model.second(), history.into());
        let x = width - history - 1;
        canvas.column_chart((x, y), 1, &values, (0.0, high), StyleRole::Good);
    }
    width - LABEL - FIGURE - history - if history > 0 { 3 } else { 1 }
}

fn memory_and_load_rows(app: &TopApp, has_gpus: bool) -> u16 {
    let has_swap =
        MemoryUsage::from_model(&app.model).is_some_and(|memory| memory.swap_total > 0.0);
    1 + u16::from(has_swap) + 2 + u16::from(has_gpus)
}

/// Draws memory and swap. Returns the number of rows.
fn memory_rows(canvas: &mut Canvas<'_>, y: u16, app: &TopApp) -> u16 {
    let width = canvas.width();
    label(canvas, y, "memory");
    let Some(memory) = MemoryUsage::from_model(&app.model) else {
        let reason = app
            .model
            .agent
            .empty_reason("memory metrics", 2, &["memory"]);
        canvas.text(LABEL, y, width, &reason, StyleRole::Faint);
        return 1;
    };
    let figures = format!(
        "{} of {} used, {} cache",
        units::bytes(memory.used),
        units::bytes(memory.total),
        units::bytes(memory.cache)
    );
    let parts = [
        (
            memory.used / memory.total,
            TerminalTheme::usage_role(memory.used / memory.total),
        ),
        (memory.cache / memory.total, StyleRole::Cpu(CpuMode::IoWait)),
    ];
    figure_row(canvas, y, &parts, memory.used / memory.total, &figures);
    if memory.swap_total <= 0.0 {
        return 1;
    }
    label(canvas, y + 1, "swap");
    let share = memory.swap_used / memory.swap_total;
    let figures = format!(
        "{} of {} used",
        units::bytes(memory.swap_used),
        units::bytes(memory.swap_total)
    );
    figure_row(
        canvas,
        y + 1,
        &[(share, TerminalTheme::usage_role(share))],
        share,
        &figures,
    );
    2
}

/// Draws a bar as long as that of the CPUs, and figures in the columns of their history.
fn figure_row(
    canvas: &mut Canvas<'_>,
    y: u16,
    parts: &[(f64, StyleRole)],
    share: f64,
    figures: &str,
) {
    let width = canvas.width();
    let room = if width >= 70 { 42 } else { 0 };
    let bar = width.saturating_sub(LABEL + FIGURE + room + 1);
    canvas.stacked_bar(LABEL, y, bar, parts);
    let percent = units::percent(share);
    canvas.text_right(
        LABEL + bar,
        y,
        FIGURE,
        &percent,
        TerminalTheme::usage_role(share),
    );
    if room > 0 {
        canvas.text(width - room, y, room, figures, StyleRole::Plain);
    }
}

fn load_row(canvas: &mut Canvas<'_>, y: u16, app: &TopApp) {
    let value = |name: &str| app.model.value(name);
    label(canvas, y, "load");
    let loads = ["node_load1", "node_load5", "node_load15"].map(value);
    let mut text = String::new();
    for load in loads {
        match load {
            Some(load) => text.push_str(&format!("{load:>6.2} ")),
            None => text.push_str(&format!("{:>6} ", canvas.theme.dash())),
        }
    }
    let mut x = LABEL + canvas.text(LABEL, y, 22, &text, StyleRole::Plain) + 2;
    for (word, name) in [
        ("running", "node_procs_running"),
        ("blocked", "node_procs_blocked"),
        ("threads", "node_processes_threads"),
    ] {
        let Some(value) = value(name) else { continue };
        let figure = format!("{value:>5.0}");
        if x + text_width(word) + text_width(&figure) <= canvas.width() {
            x += canvas.text_runs(
                x,
                y,
                &[(word, StyleRole::Faint), (&figure, StyleRole::Plain)],
            ) + 2;
        }
    }
}

fn pressure_row(canvas: &mut Canvas<'_>, y: u16, app: &TopApp) {
    label(canvas, y, "waits");
    let all = model::pressure(&app.model);
    if all.is_empty() {
        let reason = app
            .model
            .agent
            .empty_reason("pressure metrics", 2, &["pressure"]);
        canvas.text(LABEL, y, u16::MAX, &reason, StyleRole::Faint);
        return;
    }
    let mut x = LABEL;
    for one in all {
        let Some(share) = one.some.or(one.full) else {
            continue;
        };
        let figure = format!(" {:>5.1} %", share * 100.0);
        if x + text_width(one.resource) + text_width(&figure) > canvas.width() {
            break;
        }
        let role = if share >= 0.1 {
            TerminalTheme::usage_role(share + 0.5)
        } else {
            StyleRole::Plain
        };
        let words = [(one.resource, StyleRole::Faint), (figure.as_str(), role)];
        x += canvas.text_runs(x, y, &words) + 3;
    }
}

/// Draws all GPUs in one row; their own view has a row each.
fn gpu_row(canvas: &mut Canvas<'_>, y: u16, gpus: &[GpuUsage]) {
    let sum =
        |value: fn(&GpuUsage) -> Option<f64>| gpus.iter().filter_map(value).reduce(|a, b| a + b);
    let busy: Vec<f64> = gpus.iter().filter_map(|gpu| gpu.busy).collect();
    let mut words = vec![format!("{} x {}", gpus.len(), gpus[0].model)];
    if !busy.is_empty() {
        let mean = busy.iter().sum::<f64>() / busy.len() as f64;
        words.push(format!("busy {}", units::percent(mean)));
    }
    let memory = sum(|gpu| gpu.memory_used).zip(sum(|gpu| gpu.memory_total));
    if let Some((used, total)) = memory {
        words.push(format!("{} of {}", units::bytes(used), units::bytes(total)));
    }
    if let Some(power) = sum(|gpu| gpu.power) {
        words.push(units::decimal(power, "W"));
    }
    label(canvas, y, "GPUs");
    let mut x = LABEL;
    for word in words {
        if x + text_width(&word) <= canvas.width() {
            x += canvas.text(x, y, u16::MAX, &word, StyleRole::Plain) + 3;
        }
    }
}

fn device_rows(app: &TopApp, width: u16) -> u16 {
    let disks = model::disks(&app.model).len().min(DEVICES_MAX) as u16;
    let interfaces = model::interfaces(&app.model).len().min(DEVICES_MAX) as u16;
    if is_wide(width) {
        1 + disks.max(interfaces)
    } else {
        2 + disks + interfaces
    }
}

fn is_wide(width: u16) -> bool {
    width >= 76
}

/// Draws disks and networks side by side, or stacked on narrow screens.
fn device_tables(canvas: &mut Canvas<'_>, app: &TopApp) {
    let (width, height) = (canvas.width(), canvas.height());
    let height = height.min(device_rows(app, width));
    // Skip a table without room for a row.
    if height < 2 {
        return;
    }
    if is_wide(width) {
        let half = (width - 3) / 2;
        disks::draw_summary(&mut canvas.region(1, 0, half - 1, height), app);
        network::draw_summary(
            &mut canvas.region(half + 3, 0, width - half - 3, height),
            app,
        );
        return;
    }
    let disks = (model::disks(&app.model).len() as u16 + 1).min(height / 2);
    let disks = if height < 4 { 0 } else { disks };
    disks::draw_summary(&mut canvas.region(1, 0, width - 1, disks), app);
    network::draw_summary(&mut canvas.region(1, disks, width - 1, height - disks), app);
}
