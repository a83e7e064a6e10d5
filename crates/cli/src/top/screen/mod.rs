//! Draws the application's state. A pure function: the same state gives the same screen.

mod bars;
mod calls;
mod charts;
mod cores;
mod cpu;
mod detail;
mod device_charts;
mod disks;
mod frame;
mod gpus;
pub(super) mod layout;
mod list_page;
mod memory;
mod network;
mod nodes;
mod overview;
#[cfg(test)]
mod picture;
mod pressure;
mod processes;
mod rows;
mod series_list;
mod table;
mod text;
pub(super) mod theme;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::widgets::{
    Paragraph, Scrollbar, ScrollbarOrientation, ScrollbarState, StatefulWidget, Widget, Wrap,
};

use super::app::TopApp;
use super::model::{self, SeriesTrack};
use super::view::TopView;
use charts::Chart;
use table::{TableCell, TopTableColumn};
use theme::{StyleRole, TerminalTheme};

pub(super) fn draw(buffer: &mut Buffer, app: &TopApp) {
    let area = buffer.area;
    if area.width < layout::WIDTH_MIN || area.height < layout::HEIGHT_MIN {
        frame::too_small(area, buffer);
        return;
    }
    let row = Constraint::Length(1);
    let [header, tabs, body, footer] =
        Layout::vertical([row, row, Constraint::Fill(1), row]).areas(area);
    frame::header(app, header, buffer);
    frame::tabs(app, tabs, buffer);
    frame::footer(app, footer, buffer);
    if app.has_help {
        frame::help(app.theme, body, buffer);
        return;
    }
    // A list of nodes needs no values of the shown node, which may be unreachable.
    if app.model.is_empty() && app.view != TopView::Nodes {
        let text = "Waiting for the agent's first values.";
        draw_paragraph(app.theme, text, layout::below(body, 1), buffer);
        return;
    }
    match app.view {
        TopView::Node => overview::draw(app, body, buffer),
        TopView::Processes => processes::draw(app, body, buffer),
        TopView::Gpus => gpus::draw(app, body, buffer),
        TopView::Disks => disks::draw(app, body, buffer),
        TopView::Network => network::draw(app, body, buffer),
        TopView::Pressure => pressure::draw(app, body, buffer),
        TopView::Programs if app.has_calls() => calls::draw(app, body, buffer),
        TopView::Programs | TopView::Metrics => series_list::draw(app, body, buffer),
        TopView::Nodes => nodes::draw(app, body, buffer),
    }
}

/// Returns the number of rows in the tables of a view, which limits scrolling.
pub(super) fn row_count(app: &TopApp) -> usize {
    match app.view {
        TopView::Gpus => model::gpus(&app.model).len(),
        TopView::Disks => disks::row_count(app),
        TopView::Network => model::interfaces(&app.model).len(),
        TopView::Node
        | TopView::Processes
        | TopView::Pressure
        | TopView::Programs
        | TopView::Metrics
        | TopView::Nodes => 0,
    }
}

/// Returns the series whose history a view draws.
pub(super) fn history_series(app: &TopApp) -> Vec<String> {
    let of_charts = |pairs: Vec<[Chart; 2]>| -> Vec<String> {
        let charts = pairs.into_iter().flatten();
        charts.flat_map(|chart| chart.series).collect()
    };
    match app.view {
        TopView::Node => {
            let mut series = of_charts(device_charts::of_node(app));
            // The tables show devices that no chart counts.
            series.extend(of_charts(device_charts::of_disks(app)));
            series.extend(of_charts(device_charts::of_networks(app)));
            series.extend(processes::summary_history_series(app));
            series.sort_unstable();
            series.dedup();
            series
        }
        TopView::Processes => processes::history_series(app, &app.list.rows),
        TopView::Gpus => of_charts(device_charts::of_gpus(app)),
        TopView::Disks => of_charts(device_charts::of_disks(app)),
        TopView::Network => of_charts(device_charts::of_networks(app)),
        TopView::Pressure => model::pressure(&app.model)
            .into_iter()
            .flat_map(|one| [one.some_series, one.full_series])
            .collect(),
        TopView::Nodes => Vec::new(),
        TopView::Programs | TopView::Metrics => {
            app.list.rows.iter().map(|row| row.to_string()).collect()
        }
    }
    .into_iter()
    .filter(|text| app.model.track(text).and_then(SeriesTrack::last).is_some())
    .collect()
}

/// Draws a view that consists of one table, or the reason why it is empty. Returns the area below,
/// which is empty while the table is scrolled.
fn draw_table_page<const N: usize>(
    app: &TopApp,
    columns: &[TopTableColumn; N],
    rows: Vec<[TableCell; N]>,
    empty_reason: &str,
    area: Rect,
    buffer: &mut Buffer,
) -> Rect {
    let page = area.inner(Margin::new(1, 0));
    if rows.is_empty() {
        draw_paragraph(app.theme, empty_reason, layout::below(page, 1), buffer);
        return Rect::ZERO;
    }
    let used = if app.offset == 0 {
        u16::try_from(rows.len() + 2).unwrap_or(u16::MAX)
    } else {
        u16::MAX
    };
    draw_scrollbar(
        app.theme,
        rows.len(),
        app.offset,
        layout::below(area, 1),
        buffer,
    );
    let rows = rows.into_iter().skip(app.offset);
    let table = table::table(app.theme, columns, page.width, rows);
    Widget::render(table, page, buffer);
    layout::below(page, used)
}

/// Draws a scrollbar at the right edge of rows that do not all fit.
fn draw_scrollbar(
    theme: TerminalTheme,
    count: usize,
    offset: usize,
    area: Rect,
    buffer: &mut Buffer,
) {
    let Some(hidden) = count
        .checked_sub(area.height.into())
        .filter(|rows| *rows > 0)
    else {
        return;
    };
    let (thumb, track) = if theme.has_blocks {
        ("┃", "│")
    } else {
        ("#", "|")
    };
    let mut state = ScrollbarState::new(hidden + 1)
        .position(offset)
        .viewport_content_length(area.height.into());
    Scrollbar::new(ScrollbarOrientation::VerticalRight)
        .begin_symbol(None)
        .end_symbol(None)
        .thumb_symbol(thumb)
        .track_symbol(Some(track))
        .style(theme.style(StyleRole::Faint))
        .render(area, buffer, &mut state);
}

/// Draws a sentence, wrapped over several rows.
fn draw_paragraph(theme: TerminalTheme, text: &str, area: Rect, buffer: &mut Buffer) {
    Paragraph::new(theme.span(text, StyleRole::Faint))
        .wrap(Wrap { trim: true })
        .render(area.inner(Margin::new(1, 0)), buffer);
}

#[cfg(test)]
mod tests;
