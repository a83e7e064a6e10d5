//! Tests of selection, filter, sort order and views.

use super::*;
use crate::top::model::fixture::{LARGE, SMALL};

const HEIGHT: u16 = 24;

fn app() -> TopApp {
    let theme = TerminalTheme::detect(|_| None);
    let mut app = TopApp::new(theme, 2.0, None);
    app.model = LARGE.model();
    app.handle_action(KeyAction::Show(TopView::Metrics), HEIGHT);
    app.update_layout(HEIGHT);
    app
}

fn press(app: &mut TopApp, actions: &[KeyAction]) {
    for action in actions {
        app.handle_action(*action, HEIGHT);
        app.update_layout(HEIGHT);
    }
}

fn selected(app: &TopApp) -> &str {
    let index = app.list.position - app.offset;
    &app.list.rows[index]
}

#[test]
fn the_selected_row_is_always_visible() {
    let mut app = app();
    let page = app.list.rows.len();
    assert_eq!((page, app.list.position), (19, 0));
    press(&mut app, &[KeyAction::Move(1), KeyAction::Page(1)]);
    assert_eq!(app.list.position, 20);
    assert!(app.offset > 0 && app.list.position < app.offset + page);
    press(&mut app, &[KeyAction::Last]);
    assert_eq!(app.list.position, app.list.count - 1);
    assert_eq!(app.offset + page, app.list.count);
    press(&mut app, &[KeyAction::Detail]);
    assert!(app.list.position < app.offset + app.list.rows.len());
    press(&mut app, &[KeyAction::First, KeyAction::Move(-1)]);
    assert_eq!((app.list.position, app.offset), (0, 0));
}

#[test]
fn keys_in_quick_succession_all_count() {
    let mut app = app();
    for _ in 0..3 {
        app.handle_action(KeyAction::Move(1), HEIGHT);
    }
    app.update_layout(HEIGHT);
    assert_eq!(app.list.position, 3);
}

#[test]
fn the_selection_survives_a_change_of_order() {
    let mut app = app();
    press(&mut app, &[KeyAction::Move(7)]);
    let before = selected(&app).to_owned();
    press(&mut app, &[KeyAction::Sort(1)]);
    assert_eq!(
        (app.sort, selected(&app)),
        (SortKey::Value, before.as_str())
    );
    press(&mut app, &[KeyAction::Sort(1), KeyAction::Sort(1)]);
    assert_eq!((app.sort, selected(&app)), (SortKey::Name, before.as_str()));
}

#[test]
fn rates_sort_in_descending_order() {
    let mut app = app();
    press(&mut app, &[KeyAction::Sort(1), KeyAction::Sort(1)]);
    assert_eq!(app.sort, SortKey::Rate);
    assert_eq!(
        &*app.list.rows[0],
        "node_network_receive_bytes_total{device=\"hsn4\"}"
    );
    let rates: Vec<f64> = app
        .list
        .rows
        .iter()
        .map(|row| {
            app.model
                .rate(app.model.track(row).expect("listed"))
                .expect("two samples")
        })
        .collect();
    assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
}

#[test]
fn a_filter_requires_all_its_words() {
    let mut app = app();
    let all = app.list.count;
    press(&mut app, &[KeyAction::Filter]);
    for letter in "CPU=\"7\" idle".chars() {
        press(&mut app, &[KeyAction::Type(letter)]);
    }
    assert_eq!(app.list.rows.len(), 1, "{:?}", app.list.rows);
    assert_eq!(app.list.all, all);
    press(&mut app, &[KeyAction::Erase, KeyAction::Accept]);
    assert!(!app.is_typing && !app.filter.is_empty());
    press(&mut app, &[KeyAction::Escape]);
    assert_eq!(app.list.count, all);
}

#[test]
fn views_cycle_and_have_their_own_lists() {
    let mut app = app();
    press(&mut app, &[KeyAction::CycleView(1)]);
    assert_eq!(app.view, TopView::Node);
    press(&mut app, &[KeyAction::CycleView(-2)]);
    assert_eq!(app.view, TopView::Programs);
    assert_eq!(app.list.all, 7, "the calls");
    press(&mut app, &[KeyAction::Group]);
    assert_eq!(app.list.all, 19 + 1 + 1 + 37, "all series of programs");
    press(
        &mut app,
        &[KeyAction::Show(TopView::Disks), KeyAction::Last],
    );
    assert_eq!(
        app.offset,
        30 + 2 + 30 - 20,
        "the last row is at the bottom"
    );
    press(&mut app, &[KeyAction::Filter]);
    assert_eq!((app.view, app.is_typing), (TopView::Metrics, true));
}

#[test]
fn a_pattern_limits_the_lists() {
    let selector = Selector::parse("flux.*").expect("valid");
    let mut app = TopApp::new(
        TerminalTheme::detect(|_| None),
        2.0,
        Some(("flux.*".to_owned(), selector)),
    );
    app.model = LARGE.model();
    app.update_layout(HEIGHT);
    assert_eq!((app.view, app.list.all), (TopView::Metrics, 37));
}

#[test]
fn the_first_row_is_selected_when_the_selected_series_disappears() {
    let mut app = app();
    press(&mut app, &[KeyAction::Move(30)]);
    app.model = SMALL.model();
    app.selected = Some("missing".into());
    app.update_layout(HEIGHT);
    assert_eq!((app.list.position, app.offset), (0, 0));
}

#[test]
fn resuming_after_a_pause_fetches_missed_values() {
    let mut app = app();
    assert_eq!(
        app.handle_action(KeyAction::Pause, HEIGHT),
        AppEffect::Continue
    );
    assert_eq!(
        app.handle_action(KeyAction::Pause, HEIGHT),
        AppEffect::Resume
    );
    assert_eq!(app.handle_action(KeyAction::Quit, HEIGHT), AppEffect::Quit);
}

#[test]
fn processes_are_requested_when_a_view_needs_them() {
    let mut app = app();
    assert_eq!(app.due_process_query(), None, "the metrics need none");
    press(&mut app, &[KeyAction::Show(TopView::Node)]);
    let query = app.due_process_query().expect("the overview shows some");
    assert_eq!(query.grouping, TopGrouping::Process);
    assert_eq!(app.due_process_query(), None, "requested already");
    press(
        &mut app,
        &[KeyAction::Show(TopView::Processes), KeyAction::Group],
    );
    let query = app.due_process_query().expect("another list");
    assert_eq!(
        (query.grouping, query.sort, query.limit),
        (TopGrouping::User, ProcessSort::Cpu, PROCESSES_MAX)
    );
    press(&mut app, &[KeyAction::Sort(-1)]);
    let query = app.due_process_query().expect("another order");
    assert_eq!(query.sort, ProcessSort::Threads);
    press(&mut app, &[KeyAction::Pause, KeyAction::Sort(1)]);
    assert_eq!(app.due_process_query(), None, "paused");
}

#[test]
fn enter_shows_the_selected_node_of_a_parent() {
    let mut app = app();
    press(&mut app, &[KeyAction::Show(TopView::Nodes)]);
    assert_eq!(app.view, TopView::Metrics, "no parent has no such view");
    app.set_nodes(crate::top::model::node_fixture::nodes(3));
    press(&mut app, &[KeyAction::Show(TopView::Nodes)]);
    assert!(app.is_node_request_due() && !app.is_node_request_due());
    assert_eq!(
        (app.list.count, selected(&app)),
        (4, "n0003"),
        "the busiest"
    );
    press(&mut app, &[KeyAction::Move(1)]);
    let effect = app.handle_action(KeyAction::Detail, HEIGHT);
    assert_eq!(effect, AppEffect::SwitchNode);
    assert_eq!(app.selected_node().as_deref(), Some("n0002"));
    app.reset_node();
    assert!(app.model.is_empty() && app.view == TopView::Node);
    press(&mut app, &[KeyAction::CycleView(-1)]);
    assert_eq!(app.view, TopView::Nodes, "the last view");
}
