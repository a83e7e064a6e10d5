//! Network interfaces and InfiniBand ports.

use super::canvas::Canvas;
use super::disks::share;
use super::look::Role;
use super::table::{self, Cell, Column, number, text};
use crate::top::app::App;
use crate::top::model::{self, Interface};
use crate::top::units;

const BRIEF: [Column; 3] = [
    text("network", 10),
    number("received", 10),
    number("sent", 10),
];

const INTERFACES: [Column; 8] = [
    text("interface", 10),
    number("received", 10),
    number("sent", 10),
    number("in use", 6),
    number("packets in", 10),
    number("out", 7),
    number("faults/s", 8),
    text("state", 5),
];

pub fn brief(canvas: &mut Canvas<'_>, app: &App) {
    table::head(canvas, 0, &BRIEF);
    let rows = usize::from(canvas.height().saturating_sub(1));
    let interfaces = model::interfaces(&app.model);
    if interfaces.is_empty() {
        let why = app.model.agent.why_empty("interfaces", 2, &["network"]);
        canvas.text(0, 1, u16::MAX, &why, Role::Faint);
    }
    for (y, interface) in interfaces.iter().take(rows).enumerate() {
        let cells = [
            Cell::plain(&interface.name),
            Cell::number(interface.received_bytes, units::bytes_per_second),
            Cell::number(interface.sent_bytes, units::bytes_per_second),
        ];
        table::row(canvas, y as u16 + 1, &BRIEF, &cells);
    }
}

pub fn draw(canvas: &mut Canvas<'_>, app: &App) {
    let interfaces = model::interfaces(&app.model);
    let (width, height) = (canvas.width(), canvas.height());
    let mut page = canvas.part(1, 0, width - 2, height);
    if interfaces.is_empty() {
        let why = app.model.agent.why_empty("interfaces", 2, &["network"]);
        super::sentence(&mut page, 1, &why);
        return;
    }
    table::head(&mut page, 0, &INTERFACES);
    let rows = usize::from(height.saturating_sub(1));
    for (y, interface) in interfaces.iter().skip(app.offset).take(rows).enumerate() {
        table::row(&mut page, y as u16 + 1, &INTERFACES, &cells(interface));
    }
}

fn cells(interface: &Interface) -> [Cell; 8] {
    let count = |value| units::decimal(value, "");
    // Links carry as much in both directions: the busier one counts.
    let busier = [interface.received_bytes, interface.sent_bytes]
        .into_iter()
        .flatten()
        .reduce(f64::max);
    let in_use = busier
        .zip(interface.speed)
        .map(|(bytes, speed)| bytes / speed);
    let faults = match interface.faults {
        Some(faults) if faults > 0.0 => Cell::Text(count(faults), Role::Warm),
        faults => Cell::number(faults, count),
    };
    let state = match interface.is_up {
        Some(true) => Cell::plain("up"),
        Some(false) => Cell::Text("down".to_owned(), Role::Faint),
        None => Cell::Nothing,
    };
    [
        Cell::plain(&interface.name),
        Cell::number(interface.received_bytes, units::bytes_per_second),
        Cell::number(interface.sent_bytes, units::bytes_per_second),
        share(in_use),
        Cell::number(interface.received_packets, count),
        Cell::number(interface.sent_packets, count),
        faults,
        state,
    ]
}
