//! Draws the disks with their throughput, and the file systems with their usage.

use super::canvas::Canvas;
use super::table::{self, TableCell, TableColumn, bar, number, text};
use super::theme::{StyleRole, TerminalTheme};
use crate::top::app::TopApp;
use crate::top::model::{self, DiskUsage, FilesystemUsage};
use crate::top::units;

const SUMMARY_COLUMNS: [TableColumn; 4] = [
    text("disk", 7),
    number("read", 10),
    number("written", 10),
    number("busy", 6),
];

const DISKS: [TableColumn; 9] = [
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

const FILESYSTEMS: [TableColumn; 6] = [
    text("mounted at", 14),
    number("used", 6),
    number("available", 9),
    number("size", 8),
    bar("", 20),
    text("type", 8),
];

pub fn draw_summary(canvas: &mut Canvas<'_>, app: &TopApp) {
    table::header_row(canvas, 0, &SUMMARY_COLUMNS);
    let rows = usize::from(canvas.height().saturating_sub(1));
    let disks = model::disks(&app.model);
    if disks.is_empty() {
        let reason = app.model.agent.empty_reason("disks", 2, &["disk"]);
        canvas.text(0, 1, u16::MAX, &reason, StyleRole::Faint);
    }
    for (y, disk) in disks.iter().take(rows).enumerate() {
        let cells = [
            TableCell::plain(&disk.name),
            TableCell::number(disk.read_bytes, units::bytes_per_second),
            TableCell::number(disk.written_bytes, units::bytes_per_second),
            share_cell(disk.busy),
        ];
        table::row(canvas, y as u16 + 1, &SUMMARY_COLUMNS, &cells);
    }
}

/// Formats a share, coloured if it is high.
pub fn share_cell(value: Option<f64>) -> TableCell {
    match value {
        // The counter is read slightly after the clock, so that the share may exceed one.
        Some(share) => {
            let share = share.min(1.0);
            let role = match TerminalTheme::usage_role(share) {
                StyleRole::Good => StyleRole::Plain,
                role => role,
            };
            TableCell::Text(units::percent(share), role)
        }
        None => TableCell::Missing,
    }
}

pub fn row_count(app: &TopApp) -> usize {
    let filesystems = model::filesystems(&app.model).len();
    let disks = model::disks(&app.model).len();
    disks + if filesystems > 0 { filesystems + 2 } else { 0 }
}

pub fn draw(canvas: &mut Canvas<'_>, app: &TopApp) {
    let disks = model::disks(&app.model);
    let filesystems = model::filesystems(&app.model);
    let (width, height) = (canvas.width(), canvas.height());
    let mut page = canvas.region(1, 0, width - 2, height);
    if disks.is_empty() && filesystems.is_empty() {
        let reason = app.model.agent.empty_reason("disks", 2, &["disk"]);
        super::draw_paragraph(&mut page, 1, &reason);
        return;
    }
    // Both tables scroll as one page under the column titles of the first.
    table::header_row(&mut page, 0, &DISKS);
    for (y, index) in (1..height).zip(app.offset..row_count(app)) {
        match index.checked_sub(disks.len()) {
            None => table::row(&mut page, y, &DISKS, &disk_cells(&disks[index])),
            Some(0) => {}
            Some(1) => table::header_row(&mut page, y, &FILESYSTEMS),
            Some(after) => {
                let cells = filesystem_cells(&filesystems[after - 2]);
                table::row(&mut page, y, &FILESYSTEMS, &cells);
            }
        }
    }
}

fn disk_cells(disk: &DiskUsage) -> [TableCell; 9] {
    let count = |value| units::decimal(value, "");
    [
        TableCell::plain(&disk.name),
        TableCell::number(disk.read_bytes, units::bytes_per_second),
        TableCell::number(disk.written_bytes, units::bytes_per_second),
        share_cell(disk.busy),
        TableCell::number(disk.reads, count),
        TableCell::number(disk.writes, count),
        TableCell::number(disk.read_time, units::duration),
        TableCell::number(disk.write_time, units::duration),
        TableCell::number(disk.queue, |value| format!("{value:.0}")),
    ]
}

fn filesystem_cells(filesystem: &FilesystemUsage) -> [TableCell; 6] {
    // Like df: blocks reserved for root count neither as used nor as available.
    let usable = filesystem.used + filesystem.available;
    let used = (usable > 0.0).then(|| filesystem.used / usable);
    if filesystem.has_error {
        return [
            TableCell::plain(&filesystem.mountpoint),
            TableCell::Missing,
            TableCell::Missing,
            TableCell::Missing,
            TableCell::Text("not responding".to_owned(), StyleRole::Critical),
            TableCell::plain(&filesystem.fs_type),
        ];
    }
    [
        TableCell::plain(&filesystem.mountpoint),
        share_cell(used),
        TableCell::plain(units::bytes(filesystem.available)),
        TableCell::plain(units::bytes(filesystem.size)),
        TableCell::Bar(used),
        TableCell::plain(&filesystem.fs_type),
    ]
}
