//! Draws the overview of the node: CPUs, memory, load, pressure, GPUs, disks and networks.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::bars::{draw_history, recent_values, stacked_bar};
use super::layout::{below, fitting_line, take_rows};
use super::theme::{StyleRole, TerminalTheme};
use super::{cores, disks, network};
use crate::top::app::TopApp;
use crate::top::model::{self, CpuMode, CpuShares, CpuUsage, GpuUsage, MemoryUsage};
use crate::top::units;

/// The series whose histories are drawn beside the bars.
pub(super) const CPU_SERIES: &str = "cpu_percent";
pub(super) const MEMORY_SERIES: &str = "used_RAM";

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

pub(super) fn mode_parts(shares: &CpuShares) -> Vec<(f64, StyleRole)> {
    CpuMode::BUSY
        .into_iter()
        .map(|mode| (shares.share(mode), StyleRole::Cpu(mode)))
        .collect()
}

pub(crate) fn draw(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let model = &app.model;
    let gpus = model::gpus(model);
    let memory = MemoryUsage::from_model(model);
    let has_swap = memory.is_some_and(|memory| memory.swap_total > 0.0);
    let middle = 3 + u16::from(has_swap) + u16::from(!gpus.is_empty());
    let devices = device_rows(app, area.width);
    // The device tables shrink to three rows, or are left out, to make room for the cores.
    let free = area.height.saturating_sub(2 + middle);
    let kept = if free > 6 { devices.min(4) } else { 0 };
    let mut rest = area;
    draw_cpus(app, free - kept, &mut rest, buffer);
    let spare = rest.height.saturating_sub(middle + devices);
    take_rows(&mut rest, spare.min(1));
    draw_memory(app, memory, &mut rest, buffer);
    draw_row(app, "load", load(app), take_rows(&mut rest, 1), buffer);
    draw_row(app, "waits", waits(app), take_rows(&mut rest, 1), buffer);
    if !gpus.is_empty() {
        let words = gpu_summary(app.theme, &gpus);
        draw_row(app, "GPUs", words, take_rows(&mut rest, 1), buffer);
    }
    take_rows(&mut rest, u16::from(spare > 1));
    draw_devices(app, take_rows(&mut rest, devices), buffer);
    if rest.height > 3 {
        let rows = (rest.height - 1).min(16);
        draw_cpu_history(app, below(rest, rest.height - rows), buffer);
    }
}

/// Draws the usage of all CPUs and of each core.
fn draw_cpus(app: &TopApp, cores_max: u16, rest: &mut Rect, buffer: &mut Buffer) {
    let theme = app.theme;
    let Some(cpu) = CpuUsage::from_model(&app.model) else {
        let reason = vec![theme.span(no_cpu_reason(app), StyleRole::Faint)];
        draw_row(app, "cpu", vec![reason], take_rows(rest, 1), buffer);
        return;
    };
    let row = take_rows(rest, 1);
    let history = if row.width >= 70 { row.width / 4 } else { 0 };
    let right = if history > 0 { history + 3 } else { 1 };
    let busy = cpu.all.busy();
    let right = draw_usage(
        theme,
        "cpu",
        &mode_parts(&cpu.all),
        busy,
        right,
        row,
        buffer,
    );
    let [_, chart, _] = Layout::horizontal([
        Constraint::Length(2),
        Constraint::Length(history),
        Constraint::Length(1),
    ])
    .areas(right);
    if let Some(values) = recent_values(app, CPU_SERIES, chart.width) {
        draw_history(theme, &values, (0.0, 100.0), StyleRole::Good, chart, buffer);
    }
    let legend = LEGEND.into_iter().map(|mode| {
        let figure = units::percent(cpu.all.share(mode)).replace(' ', "");
        let role = StyleRole::Cpu(mode);
        vec![
            theme.span(theme.cell(role), role),
            theme.span(format!(" {}", mode.label()), StyleRole::Faint),
            theme.span(format!("{figure:>6}"), StyleRole::Plain),
        ]
    });
    let [_, legend_area] = label_and_rest(take_rows(rest, 1));
    fitting_line(legend, 2, legend_area.width).render(legend_area, buffer);
    let plan = cores::CoreLayout::choose(cpu.cores.len(), row.width, cores_max);
    let area = take_rows(rest, plan.rows());
    cores::draw(theme, &cpu.cores, &plan, area, buffer);
}

/// Draws the CPU usage of the last minutes in the remaining rows.
fn draw_cpu_history(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let [label, chart] = label_and_rest(area);
    let chart = Rect {
        width: chart.width - 1,
        ..chart
    };
    let Some(values) = recent_values(app, CPU_SERIES, chart.width) else {
        return;
    };
    let theme = app.theme;
    theme.span(" 100 %", StyleRole::Faint).render(label, buffer);
    let bottom = Rect {
        y: label.bottom() - 1,
        height: 1,
        ..label
    };
    theme
        .span(" history", StyleRole::Title)
        .render(bottom, buffer);
    draw_history(theme, &values, (0.0, 100.0), StyleRole::Good, chart, buffer);
}

fn label_and_rest(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Length(LABEL), Constraint::Fill(1)]).areas(area)
}

/// Draws a label, and as many groups of texts as fit.
fn draw_row(
    app: &TopApp,
    label: &str,
    groups: Vec<Vec<Span<'static>>>,
    area: Rect,
    buffer: &mut Buffer,
) {
    let [label_area, rest] = label_and_rest(area);
    let label = app.theme.span(format!(" {label}"), StyleRole::Title);
    label.render(label_area, buffer);
    fitting_line(groups, 3, rest.width).render(rest, buffer);
}

/// Draws a label, a bar and a percentage. Returns the area of `right` columns after them.
fn draw_usage(
    theme: TerminalTheme,
    label: &str,
    parts: &[(f64, StyleRole)],
    share: f64,
    right: u16,
    area: Rect,
    buffer: &mut Buffer,
) -> Rect {
    let [label_area, bar, figure, right] = Layout::horizontal([
        Constraint::Length(LABEL),
        Constraint::Fill(1),
        Constraint::Length(FIGURE),
        Constraint::Length(right),
    ])
    .areas(area);
    let label = theme.span(format!(" {label}"), StyleRole::Title);
    label.render(label_area, buffer);
    stacked_bar(theme, bar.width, parts).render(bar, buffer);
    let percent = theme.span(units::percent(share), TerminalTheme::usage_role(share));
    Line::from(percent).right_aligned().render(figure, buffer);
    right
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

/// Draws memory, and swap if there is any.
fn draw_memory(app: &TopApp, memory: Option<MemoryUsage>, rest: &mut Rect, buffer: &mut Buffer) {
    let theme = app.theme;
    let Some(memory) = memory else {
        let agent = &app.model.agent;
        let reason = agent.empty_reason("memory metrics", 2, &["memory"]);
        let reason = vec![theme.span(reason, StyleRole::Faint)];
        draw_row(app, "memory", vec![reason], take_rows(rest, 1), buffer);
        return;
    };
    let mut draw = |label, share: f64, cache: f64, figures: String| {
        let parts = [
            (share, TerminalTheme::usage_role(share)),
            (cache, StyleRole::Cpu(CpuMode::IoWait)),
        ];
        let row = take_rows(rest, 1);
        let right = if row.width >= 70 { 43 } else { 1 };
        let right = draw_usage(theme, label, &parts, share, right, row, buffer);
        theme.span(figures, StyleRole::Plain).render(right, buffer);
    };
    let [used, total, cache, swap_used, swap_total] = [
        memory.used,
        memory.total,
        memory.cache,
        memory.swap_used,
        memory.swap_total,
    ]
    .map(units::bytes);
    let figures = format!(" {used} of {total} used, {cache} cache");
    let share = memory.used / memory.total;
    draw("memory", share, memory.cache / memory.total, figures);
    if memory.swap_total > 0.0 {
        let share = memory.swap_used / memory.swap_total;
        draw(
            "swap",
            share,
            0.0,
            format!(" {swap_used} of {swap_total} used"),
        );
    }
}

fn load(app: &TopApp) -> Vec<Vec<Span<'static>>> {
    let theme = app.theme;
    let value = |name: &str| app.model.value(name);
    let loads = ["node_load1", "node_load5", "node_load15"].map(|name| match value(name) {
        Some(load) => theme.span(format!("{load:>6.2} "), StyleRole::Plain),
        None => theme.span(format!("{:>6} ", theme.dash()), StyleRole::Plain),
    });
    let tasks = [
        ("running", "node_procs_running"),
        ("blocked", "node_procs_blocked"),
        ("threads", "node_processes_threads"),
    ];
    let tasks = tasks.into_iter().filter_map(|(word, name)| {
        let figure = format!("{:>5.0}", value(name)?);
        Some(vec![
            theme.span(word, StyleRole::Faint),
            theme.span(figure, StyleRole::Plain),
        ])
    });
    std::iter::once(loads.to_vec()).chain(tasks).collect()
}

fn waits(app: &TopApp) -> Vec<Vec<Span<'static>>> {
    let theme = app.theme;
    let all = model::pressure(&app.model);
    if all.is_empty() {
        let agent = &app.model.agent;
        let reason = agent.empty_reason("pressure metrics", 2, &["pressure"]);
        return vec![vec![theme.span(reason, StyleRole::Faint)]];
    }
    let wait = |one: model::PressureStall| {
        let share = one.some.or(one.full)?;
        let role = if share >= 0.1 {
            TerminalTheme::usage_role(share + 0.5)
        } else {
            StyleRole::Plain
        };
        Some(vec![
            theme.span(one.resource, StyleRole::Faint),
            theme.span(format!(" {:>5.1} %", share * 100.0), role),
        ])
    };
    all.into_iter().filter_map(wait).collect()
}

/// Returns the sums of all GPUs; their own view has a row each.
fn gpu_summary(theme: TerminalTheme, gpus: &[GpuUsage]) -> Vec<Vec<Span<'static>>> {
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
    words
        .into_iter()
        .map(|word| vec![theme.span(word, StyleRole::Plain)])
        .collect()
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
fn draw_devices(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    // Skip a table without room for a row.
    if area.height < 2 {
        return;
    }
    let margin = Constraint::Length(1);
    if is_wide(area.width) {
        let half = Constraint::Length((area.width - 3) / 2 - 1);
        let [_, left, _, right] =
            Layout::horizontal([margin, half, Constraint::Length(3), Constraint::Fill(1)])
                .areas(area);
        disks::draw_summary(app, left, buffer);
        network::draw_summary(app, right, buffer);
        return;
    }
    let [_, mut area] = Layout::horizontal([margin, Constraint::Fill(1)]).areas(area);
    if area.height >= 4 {
        let disks = (model::disks(&app.model).len() as u16 + 1).min(area.height / 2);
        let disks = take_rows(&mut area, disks);
        disks::draw_summary(app, disks, buffer);
    }
    network::draw_summary(app, area, buffer);
}
