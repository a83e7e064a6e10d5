//! The state of the user interface: view, selection, filter, sort order. It changes by
//! [`KeyAction`]s only and does no I/O.

use std::time::{Duration, Instant};

use pegel_metric::Selector;

use super::list::VisibleList;
use super::model::{
    CallSort, NodeModel, PROCESSES_MAX, ProcessList, ProcessListState, ProcessQuery, ProcessSort,
    TopGrouping,
};
use super::screen::layout;
use super::screen::theme::TerminalTheme;
use super::view::{SortKey, TopView, cycle};
use crate::listed_node::NodeListing;

/// Interval between requests for the processes; the agent lists them every few seconds.
const PROCESS_REFRESH_SECONDS: f64 = 2.0;
/// Interval between requests for the nodes.
const NODE_REFRESH: Duration = Duration::from_secs(2);
/// Number of processes requested for the overview.
const OVERVIEW_PROCESSES: usize = 40;

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
    /// Select the next or the previous order.
    Sort(isize),
    /// Select the next grouping of rows.
    Group,
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
    /// Show the selected node.
    SwitchNode,
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
    /// The order of series, of calls and of processes.
    pub sort: SortKey,
    pub call_sort: CallSort,
    pub process_sort: ProcessSort,
    pub process_grouping: TopGrouping,
    /// Whether the programs' view lists all series even if there are calls.
    pub has_all_series: bool,
    pub is_paused: bool,
    pub has_help: bool,
    pub has_detail: bool,
    /// The key of the selected row; `None` selects the first one.
    pub selected: Option<Box<str>>,
    /// The first visible row.
    pub offset: usize,
    pub list: VisibleList,
    /// The nodes below the agent, sorted by how busy they are; empty if it has none.
    pub nodes: NodeListing,
    /// The time of the last request for the nodes.
    node_request: Option<Instant>,
    /// The last request for processes, and the node's time then.
    process_request: Option<(ProcessQuery, f64)>,
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
            call_sort: CallSort::default(),
            process_sort: ProcessSort::default(),
            process_grouping: TopGrouping::default(),
            has_all_series: false,
            is_paused: false,
            has_help: false,
            has_detail: false,
            selected: None,
            offset: 0,
            list: VisibleList::default(),
            nodes: NodeListing::default(),
            node_request: None,
            process_request: None,
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
                self.show(cycle(self.views(), self.view, by));
            }
            KeyAction::Move(by) => self.move_by(by),
            KeyAction::Page(by) => self.move_by(by * page),
            KeyAction::First => (self.selected, self.offset, self.list.position) = (None, 0, 0),
            KeyAction::Last => self.move_by(1 << 30),
            KeyAction::Sort(by) => self.sort_by(by),
            KeyAction::Group => self.regroup(),
            KeyAction::Pause => {
                self.is_paused = !self.is_paused;
                if !self.is_paused {
                    return AppEffect::Resume;
                }
            }
            KeyAction::Help => self.has_help = !self.has_help,
            KeyAction::Detail if self.view == TopView::Nodes => return AppEffect::SwitchNode,
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

    /// Returns the views that exist: the nodes are one only on a parent.
    pub(super) fn views(&self) -> &'static [TopView] {
        match self.nodes.nodes.is_empty() {
            true => &TopView::ALL,
            false => &TopView::OF_PARENT,
        }
    }

    fn show(&mut self, view: TopView) {
        if !self.views().contains(&view) {
            return;
        }
        if view != self.view {
            (self.view, self.offset, self.selected) = (view, 0, None);
            self.has_detail = false;
        }
        (self.has_help, self.is_typing) = (false, false);
    }

    fn sort_by(&mut self, by: isize) {
        match self.view {
            TopView::Nodes => return,
            // The overview shows processes too.
            TopView::Node | TopView::Processes => {
                self.process_sort = cycle(&ProcessSort::ALL, self.process_sort, by);
                // At once; the agent's list in the new order follows.
                if let ProcessListState::Listed(list) = &mut self.model.processes {
                    list.sort(self.process_sort);
                }
            }
            TopView::Programs if self.has_calls() => {
                self.call_sort = cycle(&CallSort::ALL, self.call_sort, by);
            }
            _ => self.sort = cycle(&SortKey::ALL, self.sort, by),
        }
        self.offset = 0;
    }

    fn regroup(&mut self) {
        match self.view {
            TopView::Processes => self.process_grouping = self.process_grouping.next(),
            TopView::Programs => self.has_all_series = !self.has_all_series,
            _ => return,
        }
        (self.selected, self.offset, self.has_detail) = (None, 0, false);
    }

    /// Returns the request for processes that is due now: the view needs another list, or the
    /// current one is old.
    pub(super) fn due_process_query(&mut self) -> Option<ProcessQuery> {
        let (grouping, limit) = match self.view {
            TopView::Node => (TopGrouping::Process, OVERVIEW_PROCESSES),
            TopView::Processes => (self.process_grouping, PROCESSES_MAX),
            _ => return None,
        };
        let query = ProcessQuery {
            grouping,
            sort: self.process_sort,
            limit,
        };
        let now = self.model.now()?;
        let is_fresh = |(last, at): &(ProcessQuery, f64)| {
            // The clock may be set back.
            *last == query && (now - at).abs() < PROCESS_REFRESH_SECONDS
        };
        if self.is_paused || self.process_request.as_ref().is_some_and(is_fresh) {
            return None;
        }
        self.process_request = Some((query, now));
        Some(query)
    }

    /// Returns whether to request the nodes now.
    pub(super) fn is_node_request_due(&mut self) -> bool {
        let is_fresh = |at: Instant| at.elapsed() < NODE_REFRESH;
        if self.view != TopView::Nodes || self.is_paused || self.node_request.is_some_and(is_fresh)
        {
            return false;
        }
        self.node_request = Some(Instant::now());
        true
    }

    /// Replaces the nodes, the busiest first. An agent that is no parent has none.
    pub(super) fn set_nodes(&mut self, mut listing: NodeListing) {
        if listing.is_single() {
            return;
        }
        listing.nodes.sort_by(|a, b| {
            let busy = |busy: Option<f64>| busy.unwrap_or(f64::NEG_INFINITY);
            let by_busy = busy(b.busy).total_cmp(&busy(a.busy));
            by_busy.then_with(|| a.problems_first(b))
        });
        self.nodes = listing;
    }

    /// Returns the name of the selected node.
    pub(super) fn selected_node(&self) -> Option<String> {
        let index = self.list.position.checked_sub(self.offset)?;
        Some(self.list.rows.get(index)?.to_string())
    }

    /// Forgets everything about the shown node: another one follows.
    pub(super) fn reset_node(&mut self) {
        self.model = NodeModel::new(1.0 / self.hz);
        (self.view, self.offset, self.selected) = (TopView::Node, 0, None);
        (self.has_detail, self.is_paused) = (false, false);
        self.filter.clear();
        self.connection = ConnectionState::Live;
        self.process_request = None;
    }

    /// Replaces the list of processes by the agent's answer: a list, or the reason why there is
    /// none.
    pub(super) fn set_processes(&mut self, answer: Result<ProcessList, String>) {
        self.model.processes = match answer {
            Ok(mut list) => {
                list.sort(self.process_sort);
                ProcessListState::Listed(list)
            }
            Err(reason) => ProcessListState::Unavailable(reason),
        };
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
}

#[cfg(test)]
#[path = "app_tests.rs"]
mod tests;
