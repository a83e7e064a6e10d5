//! Draws the frame of every view: title, tabs, keys, help.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table, Widget, Wrap};

use super::layout;
use super::text::text_width;
use super::theme::{StyleRole, TerminalTheme};
use crate::format::number;
use crate::top::app::{ConnectionState, TopApp};
use crate::top::input::KEYS;
use crate::top::units;
use crate::top::view::TopView;

pub(crate) fn too_small(area: Rect, buffer: &mut Buffer) {
    let text = format!(
        "Too small: {}x{}; requires {}x{}.",
        area.width,
        area.height,
        layout::WIDTH_MIN,
        layout::HEIGHT_MIN
    );
    let text = Paragraph::new(text).wrap(Wrap { trim: true });
    text.render(area, buffer);
}

/// Draws the node's name, the time, and warnings about the agent.
pub(crate) fn header(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let theme = app.theme;
    if let ConnectionState::Lost(since, reason) = &app.connection {
        let text = format!(" disconnected since {}, retrying", time(*since));
        let mut line = Line::from(theme.span(text, StyleRole::Critical));
        line.push_span("  ");
        line.push_span(theme.span(reason, StyleRole::Faint));
        line.render(area, buffer);
        return;
    }
    let states = agent_states(app, area.width);
    let states: Line<'_> = states
        .into_iter()
        .flat_map(|span| [span, "  ".into()])
        .collect();
    let right = Constraint::Length(states.width() as u16);
    let [left, right] = Layout::horizontal([Constraint::Fill(1), right]).areas(area);
    states.render(right, buffer);
    let mut title = Line::from(vec![
        theme.span(" pegel top  ", StyleRole::Title),
        theme.span(&app.model.agent.node, StyleRole::Key),
    ]);
    let parent = app.nodes.own.as_str();
    if !parent.is_empty() && parent != app.model.agent.node {
        title.push_span(theme.span(format!(" below {parent}"), StyleRole::Faint));
    }
    let boot = app.model.value("node_boot_time_seconds");
    if let Some((now, boot)) = app.model.now().zip(boot) {
        let up = theme.span(
            format!("  up {}", units::duration(now - boot)),
            StyleRole::Faint,
        );
        if title.width() + up.width() < usize::from(left.width) {
            title.push_span(up);
        }
    }
    title.render(left, buffer);
}

/// Returns the texts at the right end of the title.
fn agent_states(app: &TopApp, width: u16) -> Vec<Span<'static>> {
    let (theme, agent) = (app.theme, &app.model.agent);
    let mut states = Vec::new();
    if agent.is_degraded {
        states.push(theme.span("degraded", StyleRole::Critical));
    }
    if agent.dropped > 0 {
        let dropped = units::decimal(agent.dropped as f64, "");
        states.push(theme.span(format!("{dropped} dropped"), StyleRole::Warning));
    }
    let nodes = &app.nodes.nodes;
    if !nodes.is_empty() {
        let up = nodes.iter().filter(|node| node.is_up()).count();
        let role = match up == nodes.len() {
            true => StyleRole::Faint,
            false => StyleRole::Warning,
        };
        states.push(theme.span(format!("{up}/{} nodes up", nodes.len()), role));
    }
    if app.is_paused {
        states.push(theme.span("PAUSED", StyleRole::Selected));
    } else if width >= 60 {
        states.push(theme.span(format!("{} Hz", app.hz), StyleRole::Faint));
    }
    if let Some(now) = app.model.now() {
        states.push(theme.span(time(now), StyleRole::Plain));
    }
    states
}

fn time(seconds: f64) -> String {
    let text = number::time_of_day(seconds);
    format!("{}Z", text.split('.').next().unwrap_or_default())
}

/// Draws the tabs, each with its key: `2:processes`. The selected one is in brackets, visible
/// without colours too.
pub(crate) fn tabs(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let theme = app.theme;
    // All labels if they fit, else only that of the selected view. Brackets and blanks are shared
    // by neighbours.
    let views = app.views();
    let labels = views.iter().map(|view| text_width(view.label()) + 3);
    let has_labels = labels.sum::<u16>() < area.width;
    let mut line = Line::default();
    let mut was_selected = false;
    for (index, view) in views.iter().copied().enumerate() {
        let is_selected = view == app.view;
        let separator = match (was_selected, is_selected) {
            (true, _) => "]",
            (_, true) => "[",
            _ => " ",
        };
        let number = index + 1;
        line.push_span(theme.span(separator, StyleRole::Plain));
        if is_selected {
            let text = format!("{number}:{}", view.label());
            line.push_span(theme.span(text, StyleRole::Selected));
        } else if has_labels {
            line.push_span(theme.span(format!("{number}:"), StyleRole::Faint));
            line.push_span(theme.span(view.label(), StyleRole::Plain));
        } else {
            line.push_span(theme.span(number.to_string(), StyleRole::Plain));
        }
        was_selected = is_selected;
    }
    line.push_span(theme.span(if was_selected { "]" } else { "" }, StyleRole::Plain));
    line.render(area, buffer);
}

pub(crate) fn footer(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let theme = app.theme;
    if app.is_typing {
        let line = Line::from(vec![
            theme.span(" filter: ", StyleRole::Key),
            theme.span(&app.filter, StyleRole::Plain),
            theme.span("_", StyleRole::Selected),
            theme.span("   enter apply  esc clear", StyleRole::Faint),
        ]);
        line.render(area, buffer);
        return;
    }
    let sort = match app.view {
        TopView::Node | TopView::Processes => app.process_sort.label(),
        TopView::Programs if app.has_calls() => app.call_sort.label(),
        _ => app.sort.label(),
    };
    let sort = format!("sort: {sort}");
    let grouping = format!("by: {}", app.process_grouping.label());
    let pause = if app.is_paused { "resume" } else { "pause" };
    let mut keys = vec![
        ("q", "quit"),
        ("?", "help"),
        ("tab", "view"),
        ("space", pause),
    ];
    if app.view.is_list() {
        keys.extend([("/", "filter"), ("s", sort.as_str())]);
        match app.view {
            TopView::Processes => keys.push(("b", grouping.as_str())),
            TopView::Programs => keys.push(("b", "calls/series")),
            TopView::Nodes => keys.retain(|(key, _)| *key != "s"),
            _ => {}
        }
        let enter = match app.view {
            TopView::Nodes => "show the node",
            _ => "detail",
        };
        keys.push(("enter", enter));
    } else {
        keys.push(("/", "find a metric"));
        if app.view == TopView::Node {
            keys.push(("s", sort.as_str()));
        }
        if !matches!(app.view, TopView::Node | TopView::Pressure) {
            keys.push(("up/down", "scroll"));
        }
    }
    let keys = keys.into_iter().map(|(key, meaning)| {
        let meaning = format!(" {meaning}");
        vec![
            theme.span(key, StyleRole::Key),
            theme.span(meaning, StyleRole::Faint),
        ]
    });
    let area = indented(area);
    layout::fitting_line(keys, 2, area.width).render(area, buffer);
}

/// Returns the area without its first column.
fn indented(area: Rect) -> Rect {
    let [_, area] = Layout::horizontal([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    area
}

pub(crate) fn help(theme: TerminalTheme, area: Rect, buffer: &mut Buffer) {
    // At the smallest size the last rows are cut off; the most important keys come first.
    let has_margin = area.height > KEYS.len() as u16 + 1;
    let key_width = if area.width < 60 { 16 } else { 24 };
    let keys = KEYS.map(|(key, meaning)| {
        Row::new([
            theme.clipped(key, key_width, StyleRole::Key),
            theme.span(meaning, StyleRole::Plain),
        ])
    });
    let widths = [Constraint::Length(key_width), Constraint::Fill(1)];
    let page = layout::below(indented(area), has_margin.into());
    Table::new(keys, widths)
        .column_spacing(1)
        .render(page, buffer);
    let rates = "Rates are averages over three seconds of samples, or over one interval of slower series. \
         CPU of processes: 100 % is one core. Memory used is what is not available to programs.";
    let rest = layout::below(area, KEYS.len() as u16 + 2);
    super::draw_paragraph(theme, rates, rest, buffer);
}
