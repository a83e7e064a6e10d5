//! Draws memory in the overview: used, shared, cache and free as one bar; swap if there is any.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::layout::{fitting_line, take_rows};
use super::rows::{draw_row, draw_usage, label_and_rest};
use super::theme::{StyleRole, TerminalTheme};
use crate::top::app::TopApp;
use crate::top::model::MemoryUsage;
use crate::top::units;

/// The share of memory that is not available, in percent.
pub(super) const MEMORY_SERIES: &str = "used_RAM";

/// Width of ` 1.25 GiB of 1.50 TiB used` at the right of a bar.
const FIGURES: u16 = 28;

/// Returns the rows that the memory needs.
pub(super) fn rows(memory: Option<&MemoryUsage>, has_legend: bool) -> u16 {
    let has_swap = memory.is_some_and(|memory| memory.swap_total > 0.0);
    1 + u16::from(has_legend && memory.is_some()) + u16::from(has_swap)
}

pub(super) fn draw(
    app: &TopApp,
    memory: Option<&MemoryUsage>,
    has_legend: bool,
    rest: &mut Rect,
    buffer: &mut Buffer,
) {
    let theme = app.theme;
    let Some(memory) = memory else {
        let agent = &app.model.agent;
        let reason = agent.empty_reason("memory metrics", 2, &["memory"]);
        let reason = vec![theme.span(reason, StyleRole::Faint)];
        draw_row(app, "memory", vec![reason], take_rows(rest, 1), buffer);
        return;
    };
    let share = |bytes: f64| bytes / memory.total;
    let shared = memory.shared.min(memory.used);
    let parts = [
        (share(memory.used - shared), StyleRole::Good),
        (share(shared), StyleRole::Shared),
        // The kernel keeps a part of its cache for itself and counts it as used.
        (
            share(memory.cache.min(memory.total - memory.used)),
            StyleRole::Cache,
        ),
    ];
    let used = (memory.used, memory.total);
    draw_bar(theme, "memory", &parts, used, take_rows(rest, 1), buffer);
    if has_legend {
        let [_, legend] = label_and_rest(take_rows(rest, 1));
        fitting_line(legend_groups(theme, memory), 2, legend.width).render(legend, buffer);
    }
    if memory.swap_total > 0.0 {
        let used = (memory.swap_used, memory.swap_total);
        let share = used.0 / used.1;
        let parts = [(share, TerminalTheme::usage_role(share))];
        draw_bar(theme, "swap", &parts, used, take_rows(rest, 1), buffer);
    }
}

fn draw_bar(
    theme: TerminalTheme,
    label: &str,
    parts: &[(f64, StyleRole)],
    (used, total): (f64, f64),
    row: Rect,
    buffer: &mut Buffer,
) {
    let right = if row.width >= 60 { FIGURES } else { 1 };
    let right = draw_usage(theme, label, parts, used / total, right, row, buffer);
    let figures = format!(" {} of {} used", units::bytes(used), units::bytes(total));
    theme.span(figures, StyleRole::Plain).render(right, buffer);
}

fn legend_groups(
    theme: TerminalTheme,
    memory: &MemoryUsage,
) -> Vec<Vec<ratatui::text::Span<'static>>> {
    [
        (StyleRole::Good, "used", memory.used),
        (StyleRole::Shared, "of it shared", memory.shared),
        (StyleRole::Cache, "cache", memory.cache),
        (StyleRole::Faint, "free", memory.free),
    ]
    .into_iter()
    .map(|(role, label, bytes)| {
        vec![
            theme.span(theme.cell(role), role),
            theme.span(format!(" {label} "), StyleRole::Faint),
            theme.span(format!("{:>8}", units::bytes(bytes)), StyleRole::Plain),
        ]
    })
    .collect()
}
