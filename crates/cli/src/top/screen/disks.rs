//! Disks by what they move, and how full the file systems are.

use super::canvas::Canvas;
use super::look::{Look, Role};
use super::table::{self, Cell, Column, bar, number, text};
use crate::top::app::App;
use crate::top::model::{self, Disk, Filesystem};
use crate::top::units;

const BRIEF: [Column; 4] = [
    text("disk", 7),
    number("read", 10),
    number("written", 10),
    number("busy", 6),
];

const DISKS: [Column; 9] = [
    text("disk", 8),
    number("read", 10),
    number("written", 10),
    number("busy", 6),
    number("reads/s", 7),
    number("writes/s", 8),
    number("per read", 8),
    number("per write", 9),
    number("queue", 5),
];

const FILESYSTEMS: [Column; 6] = [
    text("mounted at", 14),
    number("used", 6),
    number("available", 9),
    number("size", 8),
    bar("", 20),
    text("type", 8),
];

pub fn brief(canvas: &mut Canvas<'_>, app: &App) {
    table::head(canvas, 0, &BRIEF);
    let rows = usize::from(canvas.height().saturating_sub(1));
    let disks = model::disks(&app.model);
    if disks.is_empty() {
        let why = app.model.agent.why_empty("disks", 2, &["disk"]);
        canvas.text(0, 1, u16::MAX, &why, Role::Faint);
    }
    for (y, disk) in disks.iter().take(rows).enumerate() {
        let cells = [
            Cell::plain(&disk.name),
            Cell::number(disk.read_bytes, units::bytes_per_second),
            Cell::number(disk.written_bytes, units::bytes_per_second),
            share(disk.busy),
        ];
        table::row(canvas, y as u16 + 1, &BRIEF, &cells);
    }
}

/// A share that is coloured when it is high.
pub fn share(value: Option<f64>) -> Cell {
    match value {
        // Time is measured a little after the clock: more than all of it means all of it.
        Some(share) => {
            let share = share.min(1.0);
            let role = match Look::heat(share) {
                Role::Good => Role::Plain,
                role => role,
            };
            Cell::Text(units::percent(share), role)
        }
        None => Cell::Nothing,
    }
}

pub fn row_count(app: &App) -> usize {
    let filesystems = model::filesystems(&app.model).len();
    let disks = model::disks(&app.model).len();
    disks + if filesystems > 0 { filesystems + 2 } else { 0 }
}

pub fn draw(canvas: &mut Canvas<'_>, app: &App) {
    let disks = model::disks(&app.model);
    let filesystems = model::filesystems(&app.model);
    let (width, height) = (canvas.width(), canvas.height());
    let mut page = canvas.part(1, 0, width - 2, height);
    if disks.is_empty() && filesystems.is_empty() {
        let why = app.model.agent.why_empty("disks", 2, &["disk"]);
        super::sentence(&mut page, 1, &why);
        return;
    }
    // The two tables are one page that scrolls under the title of the first.
    table::head(&mut page, 0, &DISKS);
    for (y, index) in (1..height).zip(app.offset..row_count(app)) {
        match index.checked_sub(disks.len()) {
            None => table::row(&mut page, y, &DISKS, &disk_cells(&disks[index])),
            Some(0) => {}
            Some(1) => table::head(&mut page, y, &FILESYSTEMS),
            Some(after) => {
                let cells = filesystem_cells(&filesystems[after - 2]);
                table::row(&mut page, y, &FILESYSTEMS, &cells);
            }
        }
    }
}

fn disk_cells(disk: &Disk) -> [Cell; 9] {
    let count = |value| units::decimal(value, "");
    [
        Cell::plain(&disk.name),
        Cell::number(disk.read_bytes, units::bytes_per_second),
        Cell::number(disk.written_bytes, units::bytes_per_second),
        share(disk.busy),
        Cell::number(disk.reads, count),
        Cell::number(disk.writes, count),
        Cell::number(disk.read_time, units::duration),
        Cell::number(disk.write_time, units::duration),
        Cell::number(disk.queue, |value| format!("{value:.0}")),
    ]
}

fn filesystem_cells(filesystem: &Filesystem) -> [Cell; 6] {
    // As df does: what is kept for root counts neither as used nor as available.
    let usable = filesystem.used + filesystem.available;
    let used = (usable > 0.0).then(|| filesystem.used / usable);
    if filesystem.has_error {
        let said = Cell::Text("does not answer".to_owned(), Role::Hot);
        let nothing = || Cell::Nothing;
        let kind = Cell::plain(&filesystem.kind);
        let place = Cell::plain(&filesystem.mountpoint);
        return [place, nothing(), nothing(), nothing(), said, kind];
    }
    [
        Cell::plain(&filesystem.mountpoint),
        share(used),
        Cell::plain(units::bytes(filesystem.available)),
        Cell::plain(units::bytes(filesystem.size)),
        Cell::Bar(used),
        Cell::plain(&filesystem.kind),
    ]
}
