//! Golden tests of every view at several sizes, for a small and a large node.

use pegel_testkit::assert_golden;
use ratatui::layout::Rect;

use super::*;
use crate::top::app::{ConnectionState, KeyAction};
use crate::top::model::fixture::{ExampleNode, LARGE, NOW, SMALL};
use theme::TerminalTheme;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/top");
const SIZES: [(u16, u16); 4] = [(40, 10), (80, 24), (120, 40), (200, 60)];
const BLOCKS: TerminalTheme = TerminalTheme {
    has_colours: true,
    has_blocks: true,
    has_attributes: true,
};
const LETTERS: TerminalTheme = TerminalTheme {
    has_colours: false,
    has_blocks: false,
    has_attributes: false,
};

fn app(machine: ExampleNode, theme: TerminalTheme, view: TopView) -> TopApp {
    let mut app = TopApp::new(theme, 2.0, None);
    app.model = machine.model();
    app.view = view;
    app
}

/// Returns the screen as text, without trailing blanks.
fn screen(app: &mut TopApp, (width, height): (u16, u16)) -> String {
    app.update_layout(height);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw(&mut buffer, app);
    let mut text = String::new();
    for y in 0..height {
        let mut x = 0;
        let mut row = String::new();
        while x < width {
            let symbol = buffer[(x, y)].symbol();
            row.push_str(symbol);
            // A wide character occupies the next cell too.
            x += text::text_width(symbol).max(1);
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

fn golden(name: &str, app: &mut TopApp) {
    for (width, height) in SIZES {
        let shown = screen(app, (width, height));
        assert_golden(format!("{GOLDEN}/{name}-{width}x{height}.txt"), &shown);
    }
}

#[test]
fn every_view_of_a_small_node() {
    for view in TopView::ALL {
        let name = format!("small-{}", view.label().to_lowercase());
        golden(&name, &mut app(SMALL, BLOCKS, view));
    }
}

#[test]
fn every_view_of_a_large_node() {
    for view in TopView::ALL {
        let name = format!("large-{}", view.label().to_lowercase());
        golden(&name, &mut app(LARGE, BLOCKS, view));
    }
}

#[test]
fn a_plain_terminal_gets_ascii_only() {
    for view in TopView::ALL {
        let mut app = app(LARGE, LETTERS, view);
        let shown = screen(&mut app, (80, 24));
        assert!(shown.is_ascii(), "{view:?}\n{shown}");
        let name = format!("{GOLDEN}/plain-{}-80x24.txt", view.label().to_lowercase());
        assert_golden(name, &shown);
    }
}

#[test]
fn no_size_panics() {
    for machine in [SMALL, LARGE] {
        for view in TopView::ALL {
            let mut app = app(machine, BLOCKS, view);
            app.handle_action(KeyAction::Detail, 24);
            for width in (0..50).chain([79, 80, 81, 250]) {
                for height in (0..16).chain([24, 100]) {
                    screen(&mut app, (width, height));
                }
            }
        }
    }
}

#[test]
fn a_small_screen_shows_the_required_size() {
    let mut app = app(SMALL, BLOCKS, TopView::Node);
    let shown = screen(&mut app, (39, 10));
    assert_eq!(shown.trim_end(), "Too small: 39x10; requires 40x10.");
    let shown = screen(&mut app, (12, 4));
    assert_eq!(shown, "Too small:\n12x4;\nrequires\n40x10.\n");
}

#[test]
fn the_details_of_a_series_match_the_golden_files() {
    let mut app = app(LARGE, BLOCKS, TopView::Programs);
    app.update_layout(24);
    app.handle_action(KeyAction::Filter, 24);
    for letter in "mpi_".chars() {
        app.handle_action(KeyAction::Type(letter), 24);
    }
    app.handle_action(KeyAction::Accept, 24);
    app.handle_action(KeyAction::Detail, 24);
    golden("detail", &mut app);
}

#[test]
fn help_pause_and_a_lost_agent_are_shown() {
    let mut app = app(SMALL, BLOCKS, TopView::Node);
    app.handle_action(KeyAction::Help, 24);
    app.handle_action(KeyAction::Pause, 24);
    golden("help", &mut app);
    app.handle_action(KeyAction::Escape, 24);
    app.connection = ConnectionState::Lost(NOW + 3.0, "no agent is listening".to_owned());
    let shown = screen(&mut app, (80, 24));
    assert!(
        shown.starts_with(" disconnected since 12:00:03Z, retrying  no agent is listening\n"),
        "{shown}"
    );
    assert!(shown.contains(" memory"), "the last values stay\n{shown}");
}

#[test]
fn control_characters_in_names_do_not_reach_the_screen() {
    let mut app = app(SMALL, BLOCKS, TopView::Programs);
    app.update_layout(24);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    app.handle_action(KeyAction::Detail, 24);
    draw(&mut buffer, &app);
    for cell in &buffer.content {
        assert!(
            !cell.symbol().chars().any(char::is_control),
            "{:?}",
            cell.symbol()
        );
    }
    assert!(screen(&mut app, (80, 24)).contains("evil{what=\"�[2J�日本�\"}"));
}

#[test]
fn an_empty_view_shows_the_reason() {
    let low = ExampleNode { level: 2, ..SMALL };
    let shown = screen(&mut app(low, BLOCKS, TopView::Gpus), (80, 24));
    assert!(
        shown.contains("The agent's level is 2; GPUs require level 3"),
        "{shown}"
    );
    let mut nothing = TopApp::new(BLOCKS, 2.0, None);
    assert!(screen(&mut nothing, (80, 24)).contains("Waiting for the agent's first values."));
    let none = ExampleNode {
        programs: 0,
        ..SMALL
    };
    let shown = screen(&mut app(none, BLOCKS, TopView::Programs), (80, 24));
    assert!(shown.contains("No program has sent metrics yet"), "{shown}");
}
