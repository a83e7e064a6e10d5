//! Draws the system calls and MPI calls of wrapped programs.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::bars::recent_values;
use super::detail;
use super::list_page::{self, ListContent};
use super::series_list::value_range;
use super::table::{TableCell, TopTableColumn, number, text};
use crate::format::number::human_readable;
use crate::top::app::TopApp;
use crate::top::model::{self, CallSort, CallUsage};
use crate::top::units;

/// Index of the column with the history.
const HISTORY: usize = 10;

pub(crate) fn draw(app: &TopApp, area: Rect, buffer: &mut Buffer) {
    let calls = model::calls(&app.model, app.call_sort);
    list_page::draw(app, &CallPage { app, calls }, area, buffer);
}

struct CallPage<'a> {
    app: &'a TopApp,
    calls: Vec<CallUsage<'a>>,
}

impl ListContent for CallPage<'_> {
    fn summary(&self) -> String {
        let (list, count) = (&self.app.list, |count: usize| human_readable(count as f64));
        let mut text = format!("{} calls of programs", count(list.all));
        if list.count < list.all {
            text = format!("{} of {text}", count(list.count));
        }
        text.push_str(&format!(", by {}", self.app.call_sort.label()));
        if !self.app.filter.is_empty() {
            text.push_str(&format!(", with \"{}\"", self.app.filter));
        }
        text.push_str("; b lists all series of programs");
        text
    }

    fn empty_reason(&self) -> String {
        format!(
            "No call contains \"{}\"; esc clears the filter.",
            self.app.filter
        )
    }

    fn columns(&self, width: u16) -> Vec<TopTableColumn> {
        let sort = self.app.call_sort;
        vec![
            text("call", if width >= 110 { 20 } else { 16 }),
            number("time", 9).sorted(sort == CallSort::Time),
            number("share", 7),
            text("", if width >= 110 { 12 } else { 6 }),
            number("calls", 9).sorted(sort == CallSort::Calls),
            number("per call", 8),
            number("bytes", 10).sorted(sort == CallSort::Bytes),
            number("errors", 8).sorted(sort == CallSort::Errors),
            number("total time", 12),
            number("total calls", 11),
            text("last seconds", 12).flexible(),
        ]
    }

    fn cells(&self, key: &str, widths: &[u16]) -> Option<Vec<TableCell>> {
        let call = self.calls.iter().find(|call| call.key == key)?;
        let per_second = |value: f64| format!("{}/s", units::decimal(value, ""));
        let mean = call.time.zip(call.calls.filter(|calls| *calls > 0.0));
        let width = widths.get(HISTORY).copied();
        let history = match width.and_then(|width| recent_values(self.app, key, width)) {
            Some(values) => {
                let range = value_range(&values);
                TableCell::Sparkline(values, range)
            }
            None => TableCell::plain(""),
        };
        Some(vec![
            TableCell::plain(&call.name),
            TableCell::number(call.time, units::seconds_per_second),
            TableCell::number(call.share, units::percent),
            TableCell::Bar(call.share),
            TableCell::number(call.calls, per_second),
            TableCell::number(mean.map(|(time, calls)| time / calls), units::duration),
            TableCell::number(call.bytes, units::bytes_per_second),
            TableCell::number(call.errors, per_second),
            TableCell::number(call.total_time, units::duration),
            TableCell::number(call.total_calls, |value| units::decimal(value, "")),
            history,
        ])
    }

    fn draw_detail(&self, key: &str, area: Rect, buffer: &mut Buffer) {
        if let Some(track) = self.app.model.track(key) {
            detail::draw(self.app, track, area, buffer);
        }
    }
}
