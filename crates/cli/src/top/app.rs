//! The state of the user interface: view, selection, filter, sort order. It changes by
//! [`KeyAction`]s only and does no I/O.

use pegel_metric::Selector;

use super::model::{NodeModel, SeriesTrack, is_program_series};
use super::screen::layout;
use super::screen::theme::TerminalTheme;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopView {
    Node,
    Gpus,
    Disks,
    Network,
    Pressure,
    Programs,
    Metrics,
}

impl TopView {
    pub(super) const ALL: [TopView; 7] = [
        TopView::Node,
        TopView::Gpus,
        TopView::Disks,
        TopView::Network,
        TopView::Pressure,
        TopView::Programs,
        TopView::Metrics,
    ];

    pub(super) fn label(self) -> &'static str {
        match self {
            TopView::Node => "node",
            TopView::Gpus => "GPUs",
            TopView::Disks => "disks",
            TopView::Network => "network",
            TopView::Pressure => "pressure",
            TopView::Programs => "programs",
            TopView::Metrics => "metrics",
        }
    }

    /// Returns whether the view lists series.
    pub(super) fn is_list(self) -> bool {
        matches!(self, TopView::Programs | TopView::Metrics)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SortKey {
    Name,
    Value,
    Rate,
}

impl SortKey {
    pub(super) fn label(self) -> &'static str {
        match self {
            SortKey::Name => "name",
            SortKey::Value => "value",
            SortKey::Rate => "rate",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ConnectionState {
    Live,
    /// Time of the loss in seconds since 1970, and the reason.
    Lost(f64, String),
}

/// The action of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyAction {
    Quit,
    Suspend,
    Redraw,
    Show(TopView),
    CycleView(isize),
    /// Move the selection by rows; [`KeyAction::Page`] moves by pages.
    Move(isize),
    Page(isize),
    First,
    Last,
    Sort,
    Pause,
    Help,
    Detail,
    Filter,
    Type(char),
    Erase,
    Accept,
    Escape,
}

/// The effect of an action outside of the application's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppEffect {
    Continue,
    Quit,
    Suspend,
    Redraw,
    /// Fetch the values missed while paused.
    Resume,
}

#[derive(Debug)]
pub(super) struct TopApp {
    pub model: NodeModel,
    pub theme: TerminalTheme,
    pub view: TopView,
    pub hz: f64,
    pub connection: ConnectionState,
    pub pattern: Option<(String, Selector)>,
    pub filter: String,
    pub is_typing: bool,
    pub sort: SortKey,
    pub is_paused: bool,
    pub has_help: bool,
    pub has_detail: bool,
    /// The selected series; `None` selects the first one.
    pub selected: Option<Box<str>>,
    /// The first visible row.
    pub offset: usize,
    pub list: VisibleList,
}

/// The visible rows of a list.
#[derive(Debug, Default)]
pub(super) struct VisibleList {
    pub rows: Vec<Box<str>>,
    /// Number of rows that pass the filter, and the position of the selected one among them.
    pub count: usize,
    pub position: usize,
    /// Number of all series of this view.
    pub all: usize,
}

impl TopApp {
    pub(super) fn new(
        theme: TerminalTheme,
        hz: f64,
        pattern: Option<(String, Selector)>,
    ) -> TopApp {
        TopApp {
            model: NodeModel::new(1.0 / hz),
            theme,
            view: if pattern.is_some() {
                TopView::Metrics
            } else {
                TopView::Node
            },
            hz,
            connection: ConnectionState::Live,
            pattern,
            filter: String::new(),
            is_typing: false,
            sort: SortKey::Name,
            is_paused: false,
            has_help: false,
            has_detail: false,
            selected: None,
            offset: 0,
            list: VisibleList::default(),
        }
    }

    pub(super) fn handle_action(&mut self, action: KeyAction, height: u16) -> AppEffect {
        let page = layout::list_rows(height, self.has_detail).max(1) as isize;
        match action {
            KeyAction::Quit => return AppEffect::Quit,
            KeyAction::Suspend => return AppEffect::Suspend,
            KeyAction::Redraw => return AppEffect::Redraw,
            KeyAction::Show(view) => self.show(view),
            KeyAction::CycleView(by) => {
                let count = TopView::ALL.len() as isize;
                let index = (self.view as isize + by).rem_euclid(count);
                self.show(TopView::ALL[index as usize]);
            }
            KeyAction::Move(by) => self.move_by(by),
            KeyAction::Page(by) => self.move_by(by * page),
            KeyAction::First => (self.selected, self.offset, self.list.position) = (None, 0, 0),
            KeyAction::Last => self.move_by(1 << 30),
            KeyAction::Sort => {
                self.sort = match self.sort {
                    SortKey::Name => SortKey::Value,
                    SortKey::Value => SortKey::Rate,
                    SortKey::Rate => SortKey::Name,
                };
                self.offset = 0;
            }
            KeyAction::Pause => {
                self.is_paused = !self.is_paused;
                if !self.is_paused {
                    return AppEffect::Resume;
                }
            }
            KeyAction::Help => self.has_help = !self.has_help,
            KeyAction::Detail => self.has_detail = !self.has_detail && self.view.is_list(),
            KeyAction::Filter => self.start_filter(),
            KeyAction::Type(character) => self.refilter(|filter| filter.push(character)),
            KeyAction::Erase => self.refilter(|filter| {
                filter.pop();
            }),
            KeyAction::Accept => self.is_typing = false,
            KeyAction::Escape => self.escape(),
        }
        AppEffect::Continue
    }

    fn show(&mut self, view: TopView) {
        if view != self.view {
            (self.view, self.offset, self.selected) = (view, 0, None);
            self.has_detail = false;
        }
        (self.has_help, self.is_typing) = (false, false);
    }

    fn start_filter(&mut self) {
        if !self.view.is_list() {
            self.show(TopView::Metrics);
        }
        (self.is_typing, self.has_help) = (true, false);
    }

    fn refilter(&mut self, change: impl FnOnce(&mut String)) {
        change(&mut self.filter);
        (self.selected, self.offset) = (None, 0);
    }

    /// Closes the topmost element: help, filter input, detail; else clears the filter.
    fn escape(&mut self) {
        if self.has_help {
            self.has_help = false;
        } else if self.is_typing {
            self.is_typing = false;
            self.refilter(String::clear);
        } else if self.has_detail {
            self.has_detail = false;
        } else {
            self.refilter(String::clear);
        }
    }

    fn move_by(&mut self, by: isize) {
        if !self.view.is_list() {
            self.offset = self.offset.saturating_add_signed(by);
            return;
        }
        let last = self.list.count.saturating_sub(1);
        let position = self.list.position.saturating_add_signed(by).min(last);
        let rows = self.sorted_rows();
        self.selected = rows.get(position).map(|track| track.series.text().into());
        // The next key may arrive before the screen is drawn.
        self.list.position = position;
    }

    /// Fits list and offset to the height of the screen. Returns the series whose history is
    /// visible.
    pub(super) fn update_layout(&mut self, height: u16) -> Vec<String> {
        if !self.view.is_list() {
            let count = super::screen::row_count(self);
            let shown = usize::from(layout::body_rows(height).saturating_sub(1));
            self.offset = self.offset.min(count.saturating_sub(shown));
            return super::screen::history_series(self);
        }
        let page = layout::list_rows(height, self.has_detail);
        let rows = self.sorted_rows();
        let count = rows.len();
        let position = self
            .selected
            .as_ref()
            .and_then(|selected| rows.iter().position(|row| row.series.text() == &**selected))
            .unwrap_or(0);
        let mut offset = self.offset.min(count.saturating_sub(page));
        if position < offset {
            offset = position;
        } else if position >= offset + page {
            offset = position + 1 - page.max(1);
        }
        let visible: Vec<Box<str>> = rows
            .iter()
            .skip(offset)
            .take(page)
            .map(|row| row.series.text().into())
            .collect();
        let all = self.view_series().count();
        self.offset = offset;
        self.list = VisibleList {
            rows: visible,
            count,
            position,
            all,
        };
        self.list.rows.iter().map(|row| row.to_string()).collect()
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

    fn sorted_rows(&self) -> Vec<&SeriesTrack> {
        let words: Vec<String> = self
            .filter
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
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
            .filter(|track| {
                let text = track.series.text().to_lowercase();
                words.iter().all(|word| text.contains(word.as_str()))
            })
            .map(|track| (key(track), track))
            .collect();
        // Rows are ordered by name; a stable sort keeps that order among equal keys.
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        rows.into_iter().map(|(_, track)| track).collect()
    }
}

#[cfg(test)]
#[path = "app_tests.rs"]
mod tests;
