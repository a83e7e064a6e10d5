//! What the person at the terminal has chosen, and what follows from it.

use pegel_metric::Selector;

use super::model::{Model, Track, is_of_program};
use super::screen::look::Look;
use super::screen::place;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    Node,
    Gpus,
    Disks,
    Network,
    Pressure,
    Programs,
    Metrics,
}

impl View {
    pub const ALL: [View; 7] = [
        View::Node,
        View::Gpus,
        View::Disks,
        View::Network,
        View::Pressure,
        View::Programs,
        View::Metrics,
    ];

    pub fn word(self) -> &'static str {
        match self {
            View::Node => "node",
            View::Gpus => "GPUs",
            View::Disks => "disks",
            View::Network => "network",
            View::Pressure => "pressure",
            View::Programs => "programs",
            View::Metrics => "metrics",
        }
    }

    /// Whether it lists series.
    pub fn is_list(self) -> bool {
        matches!(self, View::Programs | View::Metrics)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Name,
    Value,
    Rate,
}

impl Sort {
    pub fn word(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Value => "value",
            Sort::Rate => "rate",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Connection {
    Live,
    /// Since when, in seconds, and what was the matter.
    Gone(f64, String),
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Quit,
    Suspend,
    Redraw,
    Show(View),
    Turn(isize),
    /// By rows, or by pages.
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

/// What an action means beyond this state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Stay,
    Quit,
    Suspend,
    Redraw,
    /// What was missed while paused is to be fetched.
    Resume,
}

#[derive(Debug)]
pub struct App {
    pub model: Model,
    pub look: Look,
    pub view: View,
    pub hz: f64,
    pub connection: Connection,
    pub pattern: Option<(String, Selector)>,
    pub filter: String,
    pub is_typing: bool,
    pub sort: Sort,
    pub is_paused: bool,
    pub has_help: bool,
    pub has_detail: bool,
    /// The chosen series; none is the first one.
    pub chosen: Option<Box<str>>,
    /// The first row that is shown.
    pub offset: usize,
    pub list: List,
}

/// The rows of a list that are on the screen.
#[derive(Debug, Default)]
pub struct List {
    pub rows: Vec<Box<str>>,
    /// Rows that pass the filter, and where the chosen one is among them.
    pub count: usize,
    pub position: usize,
    /// All series of this view.
    pub all: usize,
}

impl App {
    pub fn new(look: Look, hz: f64, pattern: Option<(String, Selector)>) -> App {
        App {
            model: Model::new(1.0 / hz),
            look,
            view: if pattern.is_some() {
                View::Metrics
            } else {
                View::Node
            },
            hz,
            connection: Connection::Live,
            pattern,
            filter: String::new(),
            is_typing: false,
            sort: Sort::Name,
            is_paused: false,
            has_help: false,
            has_detail: false,
            chosen: None,
            offset: 0,
            list: List::default(),
        }
    }

    pub fn act(&mut self, action: Action, height: u16) -> Outcome {
        let page = place::list_rows(height, self.has_detail).max(1) as isize;
        match action {
            Action::Quit => return Outcome::Quit,
            Action::Suspend => return Outcome::Suspend,
            Action::Redraw => return Outcome::Redraw,
            Action::Show(view) => self.show(view),
            Action::Turn(by) => {
                let count = View::ALL.len() as isize;
                let index = (self.view as isize + by).rem_euclid(count);
                self.show(View::ALL[index as usize]);
            }
            Action::Move(by) => self.move_by(by),
            Action::Page(by) => self.move_by(by * page),
            Action::First => (self.chosen, self.offset, self.list.position) = (None, 0, 0),
            Action::Last => self.move_by(1 << 30),
            Action::Sort => {
                self.sort = match self.sort {
                    Sort::Name => Sort::Value,
                    Sort::Value => Sort::Rate,
                    Sort::Rate => Sort::Name,
                };
                self.offset = 0;
            }
            Action::Pause => {
                self.is_paused = !self.is_paused;
                if !self.is_paused {
                    return Outcome::Resume;
                }
            }
            Action::Help => self.has_help = !self.has_help,
            Action::Detail => self.has_detail = !self.has_detail && self.view.is_list(),
            Action::Filter => self.start_filter(),
            Action::Type(character) => self.refilter(|filter| filter.push(character)),
            Action::Erase => self.refilter(|filter| {
                filter.pop();
            }),
            Action::Accept => self.is_typing = false,
            Action::Escape => self.escape(),
        }
        Outcome::Stay
    }

    fn show(&mut self, view: View) {
        if view != self.view {
            (self.view, self.offset, self.chosen) = (view, 0, None);
            self.has_detail = false;
        }
        (self.has_help, self.is_typing) = (false, false);
    }

    fn start_filter(&mut self) {
        if !self.view.is_list() {
            self.show(View::Metrics);
        }
        (self.is_typing, self.has_help) = (true, false);
    }

    fn refilter(&mut self, change: impl FnOnce(&mut String)) {
        change(&mut self.filter);
        (self.chosen, self.offset) = (None, 0);
    }

    /// Takes back what covers the most.
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
        self.chosen = rows.get(position).map(|track| track.series.text().into());
    }

    /// Fits everything to the size of the screen. Returns the series whose history will be seen.
    pub fn arrange(&mut self, height: u16) -> Vec<String> {
        if !self.view.is_list() {
            let count = super::screen::row_count(self);
            let shown = usize::from(place::body_rows(height).saturating_sub(1));
            self.offset = self.offset.min(count.saturating_sub(shown));
            return super::screen::histories(self);
        }
        let page = place::list_rows(height, self.has_detail);
        let rows = self.sorted_rows();
        let count = rows.len();
        let position = self
            .chosen
            .as_ref()
            .and_then(|chosen| rows.iter().position(|row| row.series.text() == &**chosen))
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
        let all = self.candidates().count();
        self.offset = offset;
        self.list = List {
            rows: visible,
            count,
            position,
            all,
        };
        self.list.rows.iter().map(|row| row.to_string()).collect()
    }

    /// The series of this view, before the filter.
    fn candidates(&self) -> impl Iterator<Item = &Track> {
        let is_programs = self.view == View::Programs;
        self.model
            .tracks()
            .filter(|track| track.last().is_some())
            .filter(move |track| !is_programs || is_of_program(track.series.name()))
            .filter(|track| {
                let fits = |(_, selector): &(String, Selector)| selector.matches(&track.series);
                self.pattern.as_ref().is_none_or(fits)
            })
    }

    fn sorted_rows(&self) -> Vec<&Track> {
        let words: Vec<String> = self
            .filter
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        let mut rows: Vec<&Track> = self
            .candidates()
            .filter(|track| {
                let text = track.series.text().to_lowercase();
                words.iter().all(|word| text.contains(word.as_str()))
            })
            .collect();
        // They come by name; a stable sort keeps that order among equals.
        let descending = |key: &dyn Fn(&Track) -> f64, rows: &mut Vec<&Track>| {
            let mut keyed: Vec<(f64, &Track)> =
                rows.iter().map(|track| (key(track), *track)).collect();
            keyed.sort_by(|a, b| b.0.total_cmp(&a.0));
            *rows = keyed.into_iter().map(|(_, track)| track).collect();
        };
        let number = |value: Option<f64>| match value {
            Some(value) if !value.is_nan() => value,
            _ => f64::NEG_INFINITY,
        };
        match self.sort {
            Sort::Name => {}
            Sort::Value => descending(
                &|track| number(track.last().map(|last| last.value)),
                &mut rows,
            ),
            Sort::Rate => descending(
                &|track| {
                    let rate = track.is_counter().then(|| self.model.rate(track));
                    number(rate.flatten())
                },
                &mut rows,
            ),
        }
        rows
    }
}

#[cfg(test)]
#[path = "app_tests.rs"]
mod tests;
