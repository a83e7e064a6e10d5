//! Draws the nodes below a parent.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::list_page::{self, ListContent};
use super::table::{TableCell, TopTableColumn, number, text};
use super::theme::StyleRole;
use crate::listed_node::{ListedNode, milliseconds};
use crate::nodes::state_counts;
use crate::top::app::TopApp;

pub(crate) fn draw(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    list_page::draw(app, &NodePage { app }, area, buffer);
}

struct NodePage<'a> {
    app: &'a TopApp,
}

impl NodePage<'_> {
    fn nodes(&self) -> &[ListedNode] {
        &self.app.nodes.nodes
    }
}

impl ListContent for NodePage<'_> {
    fn summary(&self) -> String {
        let nodes = self.nodes();
        let counts = state_counts(nodes.iter().map(|node| node.state.as_str()));
        let outliers = nodes
            .iter()
            .filter(|node| !node.outliers.is_empty())
            .count();
        let mut summary = format!("{} nodes: {counts}", nodes.len());
        if outliers > 0 {
            summary.push_str(&format!("; {outliers} stand out"));
        }
        summary.push_str(", by busy");
        if !self.app.filter.is_empty() {
            summary.push_str(&format!(", with \"{}\"", self.app.filter));
        }
        summary
    }

    fn empty_reason(&self) -> String {
        format!(
            "No node contains \"{}\"; esc clears the filter.",
            self.app.filter
        )
    }

    fn columns(&self, width: u16) -> Vec<TopTableColumn> {
        let mut columns = vec![
            text("node", 16),
            text("state", 7),
            number("busy", 7).sorted(true),
            text("", if width >= 110 { 12 } else { 6 }),
            number("memory", 7),
        ];
        if self.nodes().iter().any(|node| node.gpu.is_some()) {
            columns.push(number("GPU", 7));
        }
        columns.push(number("load", 6));
        columns.push(text("stands out", 20).flexible());
        if width >= 110 {
            columns.extend([number("lag", 8), number("clock", 8), text("parent", 14)]);
        }
        columns
    }

    fn cells(&self, key: &str, _: &[u16]) -> Option<Vec<TableCell>> {
        let node = self.nodes().iter().find(|node| node.node == key)?;
        let share = |percent: Option<f64>| percent.map(|percent| percent / 100.0);
        let state_role = match node.state.as_str() {
            "up" => StyleRole::Plain,
            "late" => StyleRole::Warning,
            _ => StyleRole::Critical,
        };
        let mut cells = vec![
            TableCell::plain(&node.node),
            TableCell::Text(node.state.clone(), state_role),
            TableCell::share(share(node.busy)),
            TableCell::Bar(share(node.busy)),
            TableCell::share(share(node.memory)),
        ];
        if self.nodes().iter().any(|node| node.gpu.is_some()) {
            cells.push(TableCell::share(share(node.gpu)));
        }
        cells.push(TableCell::number(node.load, |load| format!("{load:.1}")));
        cells.push(TableCell::Text(node.note(), StyleRole::Warning));
        cells.extend([
            TableCell::number(node.lag_ms, milliseconds),
            TableCell::number(node.clock_offset_ms, milliseconds),
            TableCell::plain(&node.parent),
        ]);
        Some(cells)
    }

    fn draw_detail(&self, _: &str, _: Rect, _: &mut Buffer) {}
}
