//! Rows of the overview: a label followed by texts, or by a bar with a percentage.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::bars::stacked_bar;
use super::layout::fitting_line;
use super::theme::{StyleRole, TerminalTheme};
use crate::top::app::TopApp;
use crate::top::model::{self, GpuUsage};
use crate::top::units;

const LABEL: u16 = 8;
/// Width of a percentage.
const FIGURE: u16 = 8;

pub(super) fn label_and_rest(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Length(LABEL), Constraint::Fill(1)]).areas(area)
}

/// Draws a label, and as many groups of texts as fit.
pub(super) fn draw_row(
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
pub(super) fn draw_usage(
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

/// Returns the load averages and the numbers of tasks.
pub(super) fn load(app: &TopApp) -> Vec<Vec<Span<'static>>> {
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
    let periods = theme.span("1, 5, 15 min", StyleRole::Faint);
    [loads.to_vec(), vec![periods]]
        .into_iter()
        .chain(tasks)
        .collect()
}

/// Returns the share of time in which tasks waited, by resource.
pub(super) fn waits(app: &TopApp) -> Vec<Vec<Span<'static>>> {
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
pub(super) fn gpu_summary(theme: TerminalTheme, gpus: &[GpuUsage]) -> Vec<Vec<Span<'static>>> {
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
