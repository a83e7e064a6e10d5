//! Draws the CPUs in the overview: a bar of all modes, its legend, and every core.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Span;
use ratatui::widgets::Widget;

use super::bars::{draw_history, recent_values};
use super::cores::{self, CoreLayout};
use super::layout::{fitting_line, take_rows};
use super::rows::{draw_row, draw_usage, label_and_rest};
use super::theme::{StyleRole, TerminalTheme};
use crate::top::app::TopApp;
use crate::top::model::{CpuMode, CpuShares, CpuUsage};
use crate::top::units;

/// The series whose history is drawn beside the bar.
pub(super) const CPU_SERIES: &str = "cpu_percent";

/// In order of importance; on narrow screens the last ones are left out.
const LEGEND: [CpuMode; 6] = [
    CpuMode::User,
    CpuMode::System,
    CpuMode::IoWait,
    CpuMode::Irq,
    CpuMode::Steal,
    CpuMode::Idle,
];

pub(super) fn mode_parts(shares: &CpuShares) -> Vec<(f64, StyleRole)> {
    CpuMode::BUSY
        .into_iter()
        .map(|mode| (shares.share(mode), StyleRole::Cpu(mode)))
        .collect()
}

/// Draws the usage of all CPUs, and of each core in at most `cores_max` rows.
pub(super) fn draw(app: &TopApp, cores_max: u16, rest: &mut Rect, buffer: &mut Buffer) {
    let theme = app.theme;
    let Some(cpu) = CpuUsage::from_model(&app.model) else {
        let reason = vec![theme.span(no_cpu_reason(app), StyleRole::Faint)];
        draw_row(app, "cpu", vec![reason], take_rows(rest, 1), buffer);
        return;
    };
    let row = take_rows(rest, 1);
    let history = if row.width >= 70 { row.width / 4 } else { 0 };
    let right = if history > 0 { history + 3 } else { 1 };
    let parts = mode_parts(&cpu.all);
    let right = draw_usage(theme, "cpu", &parts, cpu.all.busy(), right, row, buffer);
    let [_, chart, _] = Layout::horizontal([
        Constraint::Length(2),
        Constraint::Length(history),
        Constraint::Length(1),
    ])
    .areas(right);
    if let Some(values) = recent_values(app, CPU_SERIES, chart.width) {
        draw_history(theme, &values, (0.0, 100.0), StyleRole::Good, chart, buffer);
    }
    let [_, legend_area] = label_and_rest(take_rows(rest, 1));
    fitting_line(legend(theme, &cpu), 2, legend_area.width).render(legend_area, buffer);
    let plan = CoreLayout::choose(cpu.cores.len(), row.width, cores_max, theme.has_palette);
    let area = take_rows(rest, plan.rows());
    cores::draw(theme, &cpu.cores, &plan, area, buffer);
}

fn legend(theme: TerminalTheme, cpu: &CpuUsage) -> Vec<Vec<Span<'static>>> {
    let mut groups: Vec<Vec<Span<'static>>> = LEGEND
        .into_iter()
        .map(|mode| {
            let figure = units::percent(cpu.all.share(mode)).replace(' ', "");
            let role = StyleRole::Cpu(mode);
            vec![
                theme.span(theme.cell(role), role),
                theme.span(format!(" {}", mode.label()), StyleRole::Faint),
                theme.span(format!("{figure:>6}"), StyleRole::Plain),
            ]
        })
        .collect();
    let busiest = cpu
        .cores
        .iter()
        .max_by(|a, b| a.1.busy().total_cmp(&b.1.busy()));
    if let Some((number, shares)) = busiest.filter(|_| cpu.cores.len() > 1) {
        groups.push(vec![
            theme.span(format!("busiest {number}:"), StyleRole::Faint),
            theme.span(format!(" {:.0}%", shares.busy() * 100.0), StyleRole::Plain),
        ]);
    }
    groups
}

fn no_cpu_reason(app: &TopApp) -> String {
    let mut known = app.model.tracks_named("node_cpu_seconds_total");
    if known.next().is_some() {
        return "waiting for a second sample".to_owned();
    }
    app.model.agent.empty_reason("CPUs", 2, &["cpu"])
}
