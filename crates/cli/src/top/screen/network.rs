//! Draws network interfaces and InfiniBand ports.

use super::canvas::Canvas;
use super::disks::share_cell;
use super::table::{self, TableCell, TableColumn, number, text};
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

pub fn draw_summary(canvas: &mut Canvas<'_>, app: &TopApp) {
    table::header_row(canvas, 0, &SUMMARY_COLUMNS);
    let rows = usize::from(canvas.height().saturating_sub(1));
    let interfaces = model::interfaces(&app.model);
    if interfaces.is_empty() {
        let reason = app.model.agent.empty_reason("interfaces", 2, &["network"]);
        canvas.text(0, 1, u16::MAX, &reason, StyleRole::Faint);
    }
    for (y, interface) in interfaces.iter().take(rows).enumerate() {
        let cells = [
            TableCell::plain(&interface.name),
            TableCell::number(interface.received_bytes, units::bytes_per_second),
            TableCell::number(interface.sent_bytes, units::bytes_per_second),
        ];
        table::row(canvas, y as u16 + 1, &SUMMARY_COLUMNS, &cells);
    }
}

pub fn draw(canvas: &mut Canvas<'_>, app: &TopApp) {
    let interfaces = model::interfaces(&app.model);
    let (width, height) = (canvas.width(), canvas.height());
    let mut page = canvas.region(1, 0, width - 2, height);
    if interfaces.is_empty() {
        let reason = app.model.agent.empty_reason("interfaces", 2, &["network"]);
        super::draw_paragraph(&mut page, 1, &reason);
        return;
    }
    table::header_row(&mut page, 0, &INTERFACES);
    let rows = usize::from(height.saturating_sub(1));
    for (y, interface) in interfaces.iter().skip(app.offset).take(rows).enumerate() {
        table::row(&mut page, y as u16 + 1, &INTERFACES, &cells(interface));
    }
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
        share_cell(in_use),
        TableCell::number(interface.received_packets, count),
        TableCell::number(interface.sent_packets, count),
        errors,
        state,
    ]
}
