//! A page with a list: counts, column titles, rows of which one is selected, and the details of the
//! selected row below.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::text::Line;
use ratatui::widgets::{
    Block, Borders, Clear, HighlightSpacing, Paragraph, StatefulWidget, TableState, Widget,
};

use super::layout;
use super::table::{TableCell, TopTableColumn, column_widths, table};
use super::theme::StyleRole;
use crate::top::app::TopApp;

/// Shows the selection on terminals without reverse video.
const MARK: &str = "> ";
/// Columns at the right edge: a blank and the scrollbar.
const RIGHT: u16 = 2;

/// The content of a list; rows are identified by their keys in [`TopApp::list`].
pub(super) trait ListContent {
    /// Returns the text above the list.
    fn summary(&self) -> String;

    /// Returns the text in place of an empty list.
    fn empty_reason(&self) -> String;

    /// Returns the columns for a list of this width.
    fn columns(&self, width: u16) -> Vec<TopTableColumn>;

    /// Returns the cells of a row, given the widths of the visible columns.
    fn cells(&self, key: &str, widths: &[u16]) -> Option<Vec<TableCell>>;

    /// Draws the details of a row.
    fn draw_detail(&self, key: &str, area: Rect, buffer: &mut Buffer);
}

pub(super) fn draw(app: &TopApp, content: &impl ListContent, mut area: Rect, buffer: &mut Buffer) {
    let theme = app.theme;
    let detail_rows = layout::detail_rows(area.height);
    let summary_area = layout::take_rows(&mut area, 1).inner(Margin::new(1, 0));
    let summary = theme.clipped(content.summary(), summary_area.width, StyleRole::Faint);
    summary.render(summary_area, buffer);
    if app.list.count == 0 {
        let reason = content.empty_reason();
        super::draw_paragraph(theme, &reason, layout::below(area, 1), buffer);
        return;
    }
    let selected = app.list.position - app.offset.min(app.list.position);
    if app.has_detail {
        let constraints = [Constraint::Fill(1), Constraint::Length(detail_rows)];
        let [list, detail_area] = Layout::vertical(constraints).areas(area);
        if let Some(key) = app.list.rows.get(selected) {
            content.draw_detail(key, detail_area, buffer);
        }
        area = list;
    }
    let rows_area = layout::below(area, 1);
    super::draw_scrollbar(theme, app.list.count, app.offset, rows_area, buffer);
    let sides = [Constraint::Fill(1), Constraint::Length(RIGHT)];
    let [area, _] = Layout::horizontal(sides).areas(area);
    let width = area.width.saturating_sub(MARK.len() as u16);
    let columns = content.columns(width);
    let widths = column_widths(&columns, width);
    let keys = app.list.rows.iter();
    let rows = keys.filter_map(|key| content.cells(key, &widths));
    let list = table(theme, &columns, width, rows)
        .highlight_symbol(MARK)
        .highlight_spacing(HighlightSpacing::Always)
        .row_highlight_style(theme.style(StyleRole::Selected));
    let mut state = TableState::new().with_selected(selected);
    StatefulWidget::render(list, area, buffer, &mut state);
}

/// Draws labels and texts under a title. Returns the area below them.
pub(super) fn draw_detail_lines(
    app: &TopApp,
    title: &str,
    lines: Vec<(&'static str, String)>,
    area: Rect,
    buffer: &mut Buffer,
) -> Rect {
    let theme = app.theme;
    let border = theme.border_set();
    let title = Line::from(vec![
        theme.span(border.horizontal_top, StyleRole::Faint),
        theme.clipped(
            format!(" {title} "),
            area.width.saturating_sub(2),
            StyleRole::Title,
        ),
    ]);
    let block = Block::new()
        .borders(Borders::TOP)
        .border_set(border)
        .border_style(theme.style(StyleRole::Faint))
        .title(title);
    let inner = block.inner(area);
    Clear.render(area, buffer);
    block.render(area, buffer);
    let lines = lines.into_iter().map(|(label, text)| {
        let label = theme.span(format!(" {label:<8}"), StyleRole::Faint);
        let width = area.width.saturating_sub(label.width() as u16 + 1);
        Line::from(vec![label, theme.clipped(text, width, StyleRole::Plain)])
    });
    let lines: Vec<Line<'_>> = lines.collect();
    let rows = lines.len() as u16;
    Paragraph::new(lines).render(inner, buffer);
    layout::below(inner, rows)
}
