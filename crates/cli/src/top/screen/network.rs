//! Draws network interfaces and InfiniBand ports.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::layout;
use super::table::{TableCell, TableColumn, number, table, text};
use super::theme::StyleRole;
use crate::top::app::TopApp;
use crate::top::model::{self, InterfaceUsage};
use crate::top::units;

const SUMMARY_COLUMNS: [TableColumn; 3] = [
    text("network", 10),
    number("received", 10),
    number("sent", 10),
];

const INTERFACES: [TableColumn; 8] = [
    text("interface", 10),
    number("received", 10),
    number("sent", 10),
    number("in use", 6),
    number("packets in", 10),
    number("out", 7),
    number("errors/s", 8),
    text("state", 5),
];

pub(crate) fn draw_summary(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let interfaces = model::interfaces(&app.model);
    if interfaces.is_empty() {
        let reason = app.theme.span(empty_reason(app), StyleRole::Faint);
        reason.render(layout::below(area, 1), buffer);
    }
    let rows = interfaces.iter().map(|interface| {
        let [name, received, sent, ..] = cells(interface);
        [name, received, sent]
    });
    table(app.theme, &SUMMARY_COLUMNS, area.width, rows).render(area, buffer);
}

pub(crate) fn draw(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let interfaces = model::interfaces(&app.model);
    let rows = interfaces.iter().map(cells).collect();
    super::draw_table_page(app, &INTERFACES, rows, &empty_reason(app), area, buffer);
}

fn empty_reason(app: &TopApp) -> String {
    app.model.agent.empty_reason("interfaces", 2, &["network"])
}

fn cells(interface: &InterfaceUsage) -> [TableCell; 8] {
    let count = |value| units::decimal(value, "");
    // Links are full duplex: the usage is that of the busier direction.
    let busier = [interface.received_bytes, interface.sent_bytes]
        .into_iter()
        .flatten()
        .reduce(f64::max);
    let in_use = busier
        .zip(interface.speed)
        .map(|(bytes, speed)| bytes / speed);
    let errors = match interface.errors {
        Some(errors) if errors > 0.0 => TableCell::Text(count(errors), StyleRole::Warning),
        errors => TableCell::number(errors, count),
    };
    let state = match interface.is_up {
        Some(true) => TableCell::plain("up"),
        Some(false) => TableCell::Text("down".to_owned(), StyleRole::Faint),
        None => TableCell::Missing,
    };
    [
        TableCell::plain(&interface.name),
        TableCell::number(interface.received_bytes, units::bytes_per_second),
        TableCell::number(interface.sent_bytes, units::bytes_per_second),
        TableCell::share(in_use),
        TableCell::number(interface.received_packets, count),
        TableCell::number(interface.sent_packets, count),
        errors,
        state,
    ]
}
