//! Draws the processes, users, cgroups or jobs that use most of the node.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;

use super::bars::recent_values;
use super::detail;
use super::list_page::{self, ListContent};
use super::table::{TableCell, TopTableColumn, column_widths, number, table, text};
use crate::format::number::{human_readable, utc};
use crate::top::app::TopApp;
use crate::top::model::{
    ListedProcess, NodeModel, ProcessList, ProcessListState, ProcessSort, TopGrouping,
};
use crate::top::units;

/// The series whose history is drawn.
const CPU_SERIES: &str = "node_process_cpu_seconds_total";
/// Tables from this width on have a column with the history of the CPU.
const HISTORY_WIDTH_MIN: u16 = 130;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessColumn {
    Name,
    Pid,
    Processes,
    User,
    Cpu,
    Memory,
    Read,
    Write,
    Gpu,
    Threads,
    State,
    Job,
    History,
}

impl ProcessColumn {
    fn sort(self) -> Option<ProcessSort> {
        Some(match self {
            ProcessColumn::Cpu => ProcessSort::Cpu,
            ProcessColumn::Memory => ProcessSort::Memory,
            ProcessColumn::Read => ProcessSort::Read,
            ProcessColumn::Write => ProcessSort::Write,
            ProcessColumn::Gpu => ProcessSort::Gpu,
            ProcessColumn::Threads => ProcessSort::Threads,
            _ => return None,
        })
    }

    fn table_column(self, grouping: TopGrouping, sort: ProcessSort) -> TopTableColumn {
        let column = match self {
            ProcessColumn::Name => text(grouping.label(), 16).flexible(),
            ProcessColumn::Pid => number("pid", 7),
            ProcessColumn::Processes => number("processes", 9),
            ProcessColumn::User => text("user", 8),
            ProcessColumn::Cpu => number("cpu", 8),
            ProcessColumn::Memory => number("memory", 8),
            ProcessColumn::Read => number("read", 10),
            ProcessColumn::Write => number("written", 10),
            ProcessColumn::Gpu => number("GPU mem", 8),
            ProcessColumn::Threads => number("threads", 8),
            ProcessColumn::State => text("state", 5),
            ProcessColumn::Job => text("job", 10),
            ProcessColumn::History => text("cpu, last minutes", 24),
        };
        column.sorted(self.sort() == Some(sort))
    }

    fn cell(self, app: &TopApp, row: &ListedProcess) -> TableCell {
        let words = |text: &str| match text {
            "" => TableCell::Missing,
            text => TableCell::plain(text),
        };
        match self {
            ProcessColumn::Name => TableCell::plain(row.title()),
            ProcessColumn::Pid => match row.pid {
                Some(pid) => TableCell::plain(pid.to_string()),
                None => TableCell::Missing,
            },
            ProcessColumn::Processes => TableCell::number(row.processes, units::count),
            ProcessColumn::User => words(&row.user),
            ProcessColumn::Cpu => TableCell::number(row.cpu, units::percent),
            ProcessColumn::Memory => TableCell::number(row.memory, units::bytes),
            ProcessColumn::Read => TableCell::number(row.read, units::bytes_per_second),
            ProcessColumn::Write => TableCell::number(row.write, units::bytes_per_second),
            ProcessColumn::Gpu => TableCell::number(row.gpu_memory, units::bytes),
            ProcessColumn::Threads => TableCell::number(row.threads, units::count),
            ProcessColumn::State => words(&row.state),
            ProcessColumn::Job => words(&row.job),
            ProcessColumn::History => history(app, row),
        }
    }
}

fn history(app: &TopApp, row: &ListedProcess) -> TableCell {
    let series = cpu_series(&app.model, row);
    let values = series.and_then(|series| recent_values(app, &series, 24));
    match values {
        Some(values) => {
            let highest = values.iter().flatten().copied().fold(1.0, f64::max);
            TableCell::Sparkline(values, (0.0, highest))
        }
        None => TableCell::plain(""),
    }
}

/// Returns the series with the CPU time of a process; the agent stores those of a few processes.
fn cpu_series(model: &NodeModel, row: &ListedProcess) -> Option<String> {
    let pid = row.pid?.to_string();
    let track = model.tracks_named(CPU_SERIES).find(|track| {
        let label = |key| track.series.label(key);
        label("pid").as_deref() == Some(&pid) && label("comm").as_deref() == Some(&row.name)
    });
    track.map(|track| track.series.text().to_owned())
}

/// Returns the columns that fit into a table of this width, the name last: it may be a long command
/// line. The column that orders the rows is always among them.
fn columns(app: &TopApp, list: &ProcessList, width: u16) -> Vec<ProcessColumn> {
    let has = |present: fn(&ListedProcess) -> bool| list.rows.iter().any(present);
    let mut columns = vec![ProcessColumn::Name];
    columns.extend(match list.grouping {
        TopGrouping::Process => vec![ProcessColumn::Pid, ProcessColumn::User],
        _ => vec![ProcessColumn::Processes],
    });
    let first = columns.len();
    columns.extend([
        ProcessColumn::Cpu,
        ProcessColumn::Memory,
        ProcessColumn::Read,
        ProcessColumn::Write,
    ]);
    if has(|row| row.gpu_memory.is_some()) || app.process_sort == ProcessSort::Gpu {
        columns.push(ProcessColumn::Gpu);
    }
    columns.push(ProcessColumn::Threads);
    if list.grouping == TopGrouping::Process {
        columns.push(ProcessColumn::State);
        if has(|row| !row.job.is_empty()) {
            columns.push(ProcessColumn::Job);
        }
        let mut histories = app.model.tracks_named(CPU_SERIES);
        if width >= HISTORY_WIDTH_MIN && histories.next().is_some() {
            columns.push(ProcessColumn::History);
        }
    }
    let fitting =
        |columns: &[ProcessColumn]| column_widths(&table_columns(app, list, columns), width).len();
    let sorted = columns
        .iter()
        .position(|column| column.sort() == Some(app.process_sort));
    if let Some(sorted) = sorted.filter(|sorted| *sorted >= fitting(&columns)) {
        let column = columns.remove(sorted);
        columns.insert(first, column);
    }
    columns.truncate(fitting(&columns));
    columns.rotate_left(1);
    columns
}

fn table_columns(
    app: &TopApp,
    list: &ProcessList,
    columns: &[ProcessColumn],
) -> Vec<TopTableColumn> {
    let columns = columns.iter();
    columns
        .map(|column| column.table_column(list.grouping, app.process_sort))
        .collect()
}

/// Returns the rows of the table in the overview with its titles; 0 without a list.
pub(super) fn summary_rows(app: &TopApp) -> u16 {
    let list = app.model.processes.list(TopGrouping::Process);
    list.filter(|list| !list.rows.is_empty())
        .map_or(0, |list| list.rows.len() as u16 + 1)
}

/// Draws the first processes in the overview.
pub(super) fn draw_summary(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let Some(list) = app.model.processes.list(TopGrouping::Process) else {
        return;
    };
    let columns = columns(app, list, area.width);
    let rows = list.rows.iter().take(area.height.into());
    let rows = rows.map(|row| columns.iter().map(|column| column.cell(app, row)));
    let titles = table_columns(app, list, &columns);
    table(app.theme, &titles, area.width, rows).render(area, buffer);
}

/// Returns the series whose histories the table in the overview shows.
pub(super) fn summary_history_series(app: &TopApp) -> Vec<String> {
    let list = app.model.processes.list(TopGrouping::Process);
    let rows = list.map_or(&[][..], |list| &list.rows);
    let series = rows.iter().filter_map(|row| cpu_series(&app.model, row));
    series.collect()
}

/// Returns the series whose histories the visible rows show.
pub(super) fn history_series(app: &TopApp, keys: &[Box<str>]) -> Vec<String> {
    let Some(list) = app.model.processes.list(app.process_grouping) else {
        return Vec::new();
    };
    let rows = keys.iter().filter_map(|key| list.row(key));
    rows.filter_map(|row| cpu_series(&app.model, row)).collect()
}

pub(crate) fn draw(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let list = app.model.processes.list(app.process_grouping);
    list_page::draw(app, &ProcessPage { app, list }, area, buffer);
}

struct ProcessPage<'a> {
    app: &'a TopApp,
    list: Option<&'a ProcessList>,
}

impl ListContent for ProcessPage<'_> {
    fn summary(&self) -> String {
        let Some(list) = self.list else {
            return self.app.process_grouping.plural().to_owned();
        };
        let count = |count: usize| human_readable(count as f64);
        let shown = self.app.list.count;
        let noun = match list.total {
            1 => list.grouping.label(),
            _ => list.grouping.plural(),
        };
        let mut text = format!("{} {noun}", count(list.total));
        if shown < list.total {
            text = format!("{} of {text}", count(shown));
        }
        text.push_str(&format!(", by {}", self.app.process_sort.label()));
        if !self.app.filter.is_empty() {
            text.push_str(&format!(", with \"{}\"", self.app.filter));
        }
        text
    }

    fn empty_reason(&self) -> String {
        match (&self.app.model.processes, self.list) {
            (ProcessListState::Unavailable(reason), _) => reason.clone(),
            (_, Some(list)) if !list.rows.is_empty() => format!(
                "No {} contains \"{}\"; esc clears the filter.",
                list.grouping.label(),
                self.app.filter
            ),
            (_, Some(list)) => format!("No {} on this node.", list.grouping.plural()),
            _ => "Waiting for the agent's list.".to_owned(),
        }
    }

    fn columns(&self, width: u16) -> Vec<TopTableColumn> {
        let Some(list) = self.list else {
            return Vec::new();
        };
        table_columns(self.app, list, &columns(self.app, list, width))
    }

    fn cells(&self, key: &str, widths: &[u16]) -> Option<Vec<TableCell>> {
        let list = self.list?;
        let row = list.row(key)?;
        // The columns depend on the width of the whole table.
        let width = widths.iter().sum::<u16>() + (widths.len() as u16).saturating_sub(1);
        let columns = columns(self.app, list, width);
        Some(
            columns
                .iter()
                .map(|column| column.cell(self.app, row))
                .collect(),
        )
    }

    fn draw_detail(&self, key: &str, area: Rect, buffer: &mut Buffer) {
        let Some(row) = self.list.and_then(|list| list.row(key)) else {
            return;
        };
        let rest = list_page::draw_detail_lines(self.app, &row.name, lines(row), area, buffer);
        let series = cpu_series(&self.app.model, row);
        if let Some(track) = series.and_then(|series| self.app.model.track(&series)) {
            detail::draw_chart(self.app, track, rest, buffer);
        }
    }
}

/// Returns labels and texts of the details.
fn lines(row: &ListedProcess) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(pid) = row.pid {
        let command = row.command.clone().unwrap_or_else(|| {
            "not shown: only root, the owner and operators may see it".to_owned()
        });
        let started = row.started.map(utc).unwrap_or_default();
        lines.extend([
            ("command", command),
            (
                "process",
                format!("{pid}   user {}   since {started}", row.user),
            ),
        ]);
    }
    lines.extend([("cgroup", row.cgroup.clone()), ("job", row.job.clone())]);
    lines.retain(|(_, text)| !text.is_empty());
    lines
}
