//! Draws the disks with their throughput, and the file systems with their usage.

use ratatui::buffer::Buffer;
use ratatui::layout::{Margin, Rect};
use ratatui::widgets::{Row, Table, Widget};

use super::bars::throughput;
use super::table::{self, TableCell, TopTableColumn, number, text};
use super::theme::StyleRole;
use super::{charts, device_charts, layout};
use crate::top::app::TopApp;
use crate::top::model::{self, DiskUsage, FilesystemUsage};
use crate::top::units;

const SUMMARY_COLUMNS: [TopTableColumn; 5] = [
    text("disk", 8),
    number("read", 10),
    number("written", 10),
    number("busy", 6),
    text("last seconds", 12).flexible(),
];

const DISKS: [TopTableColumn; 10] = [
    text("disk", 12),
    number("read", 10),
    number("written", 10),
    number("busy", 6),
    number("reads/s", 7),
    number("writes/s", 8),
    number("per read", 8),
    number("per write", 9),
    number("queue", 5),
    text("read and written, last seconds", 12).flexible(),
];

const FILESYSTEMS: [TopTableColumn; 6] = [
    text("mounted at", 14),
    number("used", 6),
    number("available", 9),
    number("size", 8),
    text("", 20),
    text("type", 8),
];

pub(crate) fn draw_summary(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let disks = model::disks(&app.model);
    if disks.is_empty() {
        let reason = app.theme.span(empty_reason(app), StyleRole::Faint);
        reason.render(layout::below(area, 1), buffer);
    }
    let rows = disks.iter().map(|disk| {
        let [name, read, written, busy, .., history] = disk_cells(app, disk);
        [name, read, written, busy, history]
    });
    table::table(app.theme, &SUMMARY_COLUMNS, area.width, rows).render(area, buffer);
}

fn empty_reason(app: &TopApp) -> String {
    app.model.agent.empty_reason("disks", 2, &["disk"])
}

pub(super) fn row_count(app: &TopApp) -> usize {
    let filesystems = model::filesystems(&app.model).len();
    let disks = model::disks(&app.model).len();
    disks + if filesystems > 0 { filesystems + 2 } else { 0 }
}

/// Draws both tables as one page that scrolls under the column titles of the first.
pub(crate) fn draw(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let disks = model::disks(&app.model);
    let filesystems = model::filesystems(&app.model);
    let (theme, page) = (app.theme, area.inner(Margin::new(1, 0)));
    if disks.is_empty() && filesystems.is_empty() {
        super::draw_paragraph(theme, &empty_reason(app), layout::below(page, 1), buffer);
        return;
    }
    super::draw_scrollbar(
        theme,
        row_count(app),
        app.offset,
        layout::below(area, 1),
        buffer,
    );
    let rows = disks
        .iter()
        .skip(app.offset)
        .map(|disk| disk_cells(app, disk));
    let shown = rows.len() as u16;
    table::table(theme, &DISKS, page.width, rows).render(page, buffer);
    let mut page = layout::below(page, 1 + shown);
    if app.offset == 0 {
        let rows = if filesystems.is_empty() {
            0
        } else {
            filesystems.len() as u16 + 2
        };
        let charts = layout::below(page, rows + 1);
        charts::draw(app, &device_charts::of_disks(app), charts, buffer);
        page.height = page.height.min(rows);
    }
    if filesystems.is_empty() {
        return;
    }
    let widths = table::column_widths(&FILESYSTEMS, page.width);
    let title = table::title_row(theme, &FILESYSTEMS, page.width);
    let rows = filesystems
        .iter()
        .map(|one| table::row(theme, &FILESYSTEMS, &widths, filesystem_cells(one)));
    let rows = [Row::new([""]), title].into_iter().chain(rows);
    let hidden = app.offset.saturating_sub(disks.len());
    Table::new(rows.skip(hidden), widths.iter().copied()).render(page, buffer);
}

fn disk_cells(app: &TopApp, disk: &DiskUsage) -> [TableCell; 10] {
    let count = |value| units::decimal(value, "");
    [
        TableCell::plain(&disk.name),
        TableCell::number(disk.read_bytes, units::bytes_per_second),
        TableCell::number(disk.written_bytes, units::bytes_per_second),
        TableCell::share(disk.busy),
        TableCell::number(disk.reads, count),
        TableCell::number(disk.writes, count),
        TableCell::number(disk.read_time, units::duration),
        TableCell::number(disk.write_time, units::duration),
        TableCell::number(disk.queue, |value| format!("{value:.0}")),
        throughput(app, &disk.series),
    ]
}

fn filesystem_cells(filesystem: &FilesystemUsage) -> [TableCell; 6] {
    let used = filesystem.used_share();
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
        TableCell::share(used),
        TableCell::plain(units::bytes(filesystem.available)),
        TableCell::plain(units::bytes(filesystem.size)),
        TableCell::Bar(used),
        TableCell::plain(&filesystem.fs_type),
    ]
}
