//! Draws network interfaces and InfiniBand ports.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::bars::throughput;
use super::table::{TableCell, TopTableColumn, number, table, text};
use super::theme::StyleRole;
use super::{charts, device_charts, layout};
use crate::top::app::TopApp;
use crate::top::model::{self, InterfaceUsage};
use crate::top::units;

const SUMMARY_COLUMNS: [TopTableColumn; 5] = [
    text("network", 9),
    number("received", 10),
    number("sent", 10),
    number("in use", 6),
    text("last seconds", 12).flexible(),
];

const INTERFACES: [TopTableColumn; 9] = [
    text("interface", 14),
    number("received", 10),
    number("sent", 10),
    number("in use", 6),
    number("packets in", 10),
    number("out", 7),
    number("errors/s", 8),
    text("state", 5),
    text("received and sent, last seconds", 12).flexible(),
];

/// Returns the interfaces of the overview: all but those that are down.
pub(super) fn shown_in_summary(app: &TopApp) -> Vec<InterfaceUsage> {
    let mut interfaces = model::interfaces(&app.model);
    interfaces.retain(|interface| interface.is_up != Some(false));
    interfaces
}

pub(crate) fn draw_summary(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let interfaces = shown_in_summary(app);
    if interfaces.is_empty() {
        let reason = app.theme.span(empty_reason(app), StyleRole::Faint);
        reason.render(layout::below(area, 1), buffer);
    }
    let rows = interfaces.iter().map(|interface| {
        let [name, received, sent, in_use, .., history] = cells(app, interface);
        [name, received, sent, in_use, history]
    });
    table(app.theme, &SUMMARY_COLUMNS, area.width, rows).render(area, buffer);
}

pub(crate) fn draw(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let interfaces = model::interfaces(&app.model);
    let rows = interfaces.iter().map(|one| cells(app, one)).collect();
    let rest = super::draw_table_page(app, &INTERFACES, rows, &empty_reason(app), area, buffer);
    let mut pairs = device_charts::of_networks(app);
    // Loopback is the last one; its bytes do not leave the node.
    if pairs.len() > 1 && interfaces.last().is_some_and(|last| last.name == "lo") {
        pairs.pop();
    }
    charts::draw(app, &pairs, rest, buffer);
}

fn empty_reason(app: &TopApp) -> String {
    app.model.agent.empty_reason("interfaces", 2, &["network"])
}

fn cells(app: &TopApp, interface: &InterfaceUsage) -> [TableCell; 9] {
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
        throughput(app, &interface.series),
    ]
}
