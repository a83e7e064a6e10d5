//! The rows of a list: series, calls of programs, processes, or nodes. Filters and sorts them, and
//! keeps the selected one visible.

use super::app::TopApp;
use super::model::{self, SeriesTrack, is_program_series};
use super::screen::{self, layout};
use super::view::{SortKey, TopView};
use pegel_metric::Selector;

/// The visible rows of a list.
#[derive(Debug, Default)]
pub(super) struct VisibleList {
    /// Keys of the rows: the texts of series, or the keys of processes.
    pub rows: Vec<Box<str>>,
    /// Number of rows that pass the filter, and the position of the selected one among them.
    pub count: usize,
    pub position: usize,
    /// Number of all rows of this view.
    pub all: usize,
}

impl TopApp {
    /// Returns whether the view lists the calls of programs rather than series.
    pub(super) fn has_calls(&self) -> bool {
        self.view == TopView::Programs && !self.has_all_series && model::has_calls(&self.model)
    }

    pub(super) fn move_by(&mut self, by: isize) {
        if !self.view.is_list() {
            self.offset = self.offset.saturating_add_signed(by);
            return;
        }
        let last = self.list.count.saturating_sub(1);
        let position = self.list.position.saturating_add_signed(by).min(last);
        self.selected = self.row_keys().get(position).map(|key| (*key).into());
        // The next key may arrive before the screen is drawn.
        self.list.position = position;
    }

    /// Fits list and offset to the height of the screen. Returns the series whose history is
    /// visible.
    pub(super) fn update_layout(&mut self, height: u16) -> Vec<String> {
        if !self.view.is_list() {
            let count = screen::row_count(self);
            let shown = usize::from(layout::body_rows(height).saturating_sub(1));
            self.offset = self.offset.min(count.saturating_sub(shown));
            return screen::history_series(self);
        }
        let page = layout::list_rows(height, self.has_detail);
        let keys = self.row_keys();
        let count = keys.len();
        let position = self
            .selected
            .as_ref()
            .and_then(|selected| keys.iter().position(|key| *key == &**selected))
            .unwrap_or(0);
        let mut offset = self.offset.min(count.saturating_sub(page));
        if position < offset {
            offset = position;
        } else if position >= offset + page {
            offset = position + 1 - page.max(1);
        }
        let visible = keys.iter().skip(offset).take(page);
        let rows: Vec<Box<str>> = visible.map(|key| (*key).into()).collect();
        let all = self.row_count_unfiltered();
        self.offset = offset;
        self.list = VisibleList {
            rows,
            count,
            position,
            all,
        };
        screen::history_series(self)
    }

    fn row_count_unfiltered(&self) -> usize {
        match self.view {
            TopView::Processes => {
                let list = self.model.processes.list(self.process_grouping);
                list.map_or(0, |list| list.rows.len())
            }
            TopView::Programs if self.has_calls() => {
                model::calls(&self.model, self.call_sort).len()
            }
            TopView::Nodes => self.nodes.nodes.len(),
            _ => self.view_series().count(),
        }
    }

    /// Returns the keys of all rows that pass the filter, in order.
    fn row_keys(&self) -> Vec<&str> {
        let words = self.filter.split_whitespace().map(str::to_lowercase);
        let words: Vec<String> = words.collect();
        match self.view {
            TopView::Processes => {
                let list = self.model.processes.list(self.process_grouping);
                let rows = list.map_or(&[][..], |list| &list.rows);
                rows.iter()
                    .filter(|row| words.iter().all(|word| row.contains(word)))
                    .map(|row| &*row.key)
                    .collect()
            }
            TopView::Programs if self.has_calls() => model::calls(&self.model, self.call_sort)
                .into_iter()
                .filter(|call| contains_all(&call.name, &words))
                .map(|call| call.key)
                .collect(),
            TopView::Nodes => { self.nodes.nodes.iter() }
                .filter(|node| contains_all(&node.node, &words))
                .map(|node| node.node.as_str())
                .collect(),
            _ => self.sorted_series(&words),
        }
    }

    /// Returns the series of this view, before the filter.
    fn view_series(&self) -> impl Iterator<Item = &SeriesTrack> {
        let is_programs = self.view == TopView::Programs;
        self.model
            .tracks()
            .filter(|track| track.last().is_some())
            .filter(move |track| !is_programs || is_program_series(track.series.name()))
            .filter(|track| {
                let matches = |(_, selector): &(String, Selector)| selector.matches(&track.series);
                self.pattern.as_ref().is_none_or(matches)
            })
    }

    fn sorted_series(&self, words: &[String]) -> Vec<&str> {
        let key = |track: &SeriesTrack| {
            let key = match self.sort {
                SortKey::Name => None,
                SortKey::Value => track.last().map(|last| last.value),
                SortKey::Rate => self.model.rate(track).filter(|_| track.is_counter()),
            };
            key.filter(|key| !key.is_nan()).unwrap_or(f64::NEG_INFINITY)
        };
        let mut rows: Vec<(f64, &SeriesTrack)> = self
            .view_series()
            .filter(|track| contains_all(track.series.text(), words))
            .map(|track| (key(track), track))
            .collect();
        // Rows are ordered by name; a stable sort keeps that order among equal keys.
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        rows.into_iter()
            .map(|(_, track)| track.series.text())
            .collect()
    }
}

fn contains_all(text: &str, words: &[String]) -> bool {
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(word.as_str()))
}
