use super::*;
use crate::top::model::fixture::{LARGE, SMALL};

const HEIGHT: u16 = 24;

fn app() -> App {
    let look = Look::choose(|_| None);
    let mut app = App::new(look, 2.0, None);
    app.model = LARGE.model();
    app.act(Action::Show(View::Metrics), HEIGHT);
    app.arrange(HEIGHT);
    app
}

fn press(app: &mut App, actions: &[Action]) {
    for action in actions {
        app.act(*action, HEIGHT);
        app.arrange(HEIGHT);
    }
}

fn chosen(app: &App) -> &str {
    let index = app.list.position - app.offset;
    &app.list.rows[index]
}

#[test]
fn the_chosen_row_is_always_on_the_screen() {
    let mut app = app();
    let page = app.list.rows.len();
    assert_eq!((page, app.list.position), (19, 0));
    press(&mut app, &[Action::Move(1), Action::Page(1)]);
    assert_eq!(app.list.position, 20);
    assert!(app.offset > 0 && app.list.position < app.offset + page);
    press(&mut app, &[Action::Last]);
    assert_eq!(app.list.position, app.list.count - 1);
    assert_eq!(app.offset + page, app.list.count);
    press(&mut app, &[Action::Detail]);
    assert!(app.list.position < app.offset + app.list.rows.len());
    press(&mut app, &[Action::First, Action::Move(-1)]);
    assert_eq!((app.list.position, app.offset), (0, 0));
}

#[test]
fn a_choice_stays_when_the_order_changes() {
    let mut app = app();
    press(&mut app, &[Action::Move(7)]);
    let before = chosen(&app).to_owned();
    press(&mut app, &[Action::Sort]);
    assert_eq!((app.sort, chosen(&app)), (Sort::Value, before.as_str()));
    press(&mut app, &[Action::Sort, Action::Sort]);
    assert_eq!((app.sort, chosen(&app)), (Sort::Name, before.as_str()));
}

#[test]
fn rates_sort_from_the_highest() {
    let mut app = app();
    press(&mut app, &[Action::Sort, Action::Sort]);
    assert_eq!(app.sort, Sort::Rate);
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
fn a_filter_wants_all_its_words() {
    let mut app = app();
    let all = app.list.count;
    press(&mut app, &[Action::Filter]);
    for letter in "CPU=\"7\" idle".chars() {
        press(&mut app, &[Action::Type(letter)]);
    }
    assert_eq!(app.list.rows.len(), 1, "{:?}", app.list.rows);
    assert_eq!(app.list.all, all);
    press(&mut app, &[Action::Erase, Action::Accept]);
    assert!(!app.is_typing && !app.filter.is_empty());
    press(&mut app, &[Action::Escape]);
    assert_eq!(app.list.count, all);
}

#[test]
fn views_turn_around_and_keep_their_own_lists() {
    let mut app = app();
    press(&mut app, &[Action::Turn(1)]);
    assert_eq!(app.view, View::Node);
    press(&mut app, &[Action::Turn(-2)]);
    assert_eq!(app.view, View::Programs);
    assert_eq!(app.list.all, 2 + 1 + 1 + 37);
    press(&mut app, &[Action::Show(View::Disks), Action::Last]);
    assert_eq!(
        app.offset,
        30 + 2 + 30 - 20,
        "the last row stands at the bottom"
    );
    press(&mut app, &[Action::Filter]);
    assert_eq!((app.view, app.is_typing), (View::Metrics, true));
}

#[test]
fn a_pattern_limits_the_lists() {
    let selector = Selector::parse("flux.*").expect("valid");
    let mut app = App::new(
        Look::choose(|_| None),
        2.0,
        Some(("flux.*".to_owned(), selector)),
    );
    app.model = LARGE.model();
    app.arrange(HEIGHT);
    assert_eq!((app.view, app.list.all), (View::Metrics, 37));
}

#[test]
fn a_series_that_goes_leaves_the_choice_at_the_top() {
    let mut app = app();
    press(&mut app, &[Action::Move(30)]);
    app.model = SMALL.model();
    app.chosen = Some("gone".into());
    app.arrange(HEIGHT);
    assert_eq!((app.list.position, app.offset), (0, 0));
}

#[test]
fn going_on_after_a_pause_fetches_what_was_missed() {
    let mut app = app();
    assert_eq!(app.act(Action::Pause, HEIGHT), Outcome::Stay);
    assert_eq!(app.act(Action::Pause, HEIGHT), Outcome::Resume);
    assert_eq!(app.act(Action::Quit, HEIGHT), Outcome::Quit);
}
