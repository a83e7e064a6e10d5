//! Divides the screen into areas.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

/// Below this size only a message is drawn.
pub(crate) const WIDTH_MIN: u16 = 40;
pub(crate) const HEIGHT_MIN: u16 = 10;
/// Rows of title and tabs above the body, and of keys below.
const HEAD_ROWS: u16 = 2;
const FOOT_ROWS: u16 = 1;
/// Rows above a list: the counts and the column titles.
const LIST_HEAD_ROWS: u16 = 2;

pub(crate) fn body_rows(height: u16) -> u16 {
    height.saturating_sub(HEAD_ROWS + FOOT_ROWS)
}

/// Returns the rows of the details.
pub(crate) fn detail_rows(body_rows: u16) -> u16 {
    (body_rows / 2).min(14)
}

/// Returns the number of series that a list shows at once.
pub(crate) fn list_rows(height: u16, has_detail: bool) -> usize {
    let body = body_rows(height);
    let detail = if has_detail { detail_rows(body) } else { 0 };
    body.saturating_sub(LIST_HEAD_ROWS + detail).into()
}

/// Splits rows off the top of an area.
pub(crate) fn take_rows(area: &mut Rect, rows: u16) -> Rect {
    let [top, rest] =
        Layout::vertical([Constraint::Length(rows), Constraint::Fill(1)]).areas(*area);
    *area = rest;
    top
}

/// Returns the area below these rows.
pub(crate) fn below(mut area: Rect, rows: u16) -> Rect {
    take_rows(&mut area, rows);
    area
}

/// Joins as many groups of texts as fit into the width, separated by `gap` blanks.
pub(crate) fn fitting_line(
    groups: impl IntoIterator<Item = Vec<Span<'static>>>,
    gap: usize,
    width: u16,
) -> Line<'static> {
    let mut line = Line::default();
    for group in groups {
        let gap = if line.spans.is_empty() { 0 } else { gap };
        let needed: usize = group.iter().map(Span::width).sum();
        if line.width() + gap + needed > usize::from(width) {
            continue;
        }
        line.push_span(Span::raw(" ".repeat(gap)));
        line.extend(group);
    }
    line
}
