//! Golden tests of every view at several sizes, for a small and a large node.

use pegel_testkit::assert_golden;
use ratatui::layout::Rect;
use ratatui::style::Color;

use super::*;
use crate::api_values::{SeriesInfo, SeriesValue};
use crate::top::app::{ConnectionState, KeyAction};
use crate::top::model::TopGrouping;
use crate::top::model::fixture::{ExampleNode, LARGE, NOW, PICTURE, SMALL};
use crate::top::model::node_fixture::nodes;
use crate::top::model::process_fixture::processes;
use theme::TerminalTheme;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/top");
const SIZES: [(u16, u16); 4] = [(40, 10), (80, 24), (120, 40), (200, 60)];
const BLOCKS: TerminalTheme = TerminalTheme {
    has_colours: true,
    has_blocks: true,
    has_attributes: true,
    has_palette: true,
};
const LETTERS: TerminalTheme = TerminalTheme {
    has_colours: false,
    has_blocks: false,
    has_attributes: false,
    has_palette: false,
};

fn app(machine: ExampleNode, theme: TerminalTheme, view: TopView) -> TopApp {
    let mut app = TopApp::new(theme, 2.0, None);
    app.model = machine.model();
    app.view = view;
    app.set_processes(Ok(processes(TopGrouping::Process)));
    app
}

/// Draws the screen, with the histories that the view requests.
fn drawn(app: &mut TopApp, (width, height): (u16, u16)) -> Buffer {
    let visible = app.update_layout(height);
    ExampleNode::add_past(&mut app.model, &visible);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw(&mut buffer, app);
    buffer
}

/// Returns the screen as text, without trailing blanks.
fn screen(app: &mut TopApp, (width, height): (u16, u16)) -> String {
    let buffer = drawn(app, (width, height));
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
fn the_nodes_of_a_parent() {
    for (name, count) in [("parent-nodes", 3), ("parent-2000-nodes", 2000)] {
        let mut app = app(SMALL, BLOCKS, TopView::Node);
        app.set_nodes(nodes(count));
        app.handle_action(KeyAction::Show(TopView::Nodes), 24);
        golden(name, &mut app);
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
    let all: Vec<u16> = (0..50).chain([76, 80, 120]).collect();
    let some = vec![0, 1, 2, 40, 41, 75, 76, 77, 78, 80, 120, 131, 200, 500];
    let large = ExampleNode { cores: 70, ..LARGE };
    for (machine, widths) in [(SMALL, all), (large, some)] {
        for view in TopView::ALL {
            let mut app = app(machine, BLOCKS, view);
            for has_detail in [false, true] {
                app.has_detail = has_detail && view.is_list();
                for width in &widths {
                    for height in (0..14).chain([16, 18, 24, 40, 60, 200]) {
                        screen(&mut app, (*width, height));
                    }
                }
            }
        }
    }
}

/// Returns the rows of a screen that are not empty.
fn used_rows(screen: &str) -> usize {
    screen.lines().filter(|line| !line.is_empty()).count()
}

#[test]
fn the_overview_fills_the_screen() {
    for (machine, sizes) in [
        (SMALL, &[(80, 24), (120, 40), (200, 60)][..]),
        (LARGE, &[(120, 40), (200, 60)][..]),
    ] {
        for size in sizes {
            let shown = screen(&mut app(machine, BLOCKS, TopView::Node), *size);
            assert!(used_rows(&shown) + 6 >= size.1.into(), "{size:?}\n{shown}");
            assert!(shown.contains("lmp -in"), "processes at {size:?}\n{shown}");
            if size.0 >= 120 {
                for part in ["disks read", "network sent", "1 min", " now"] {
                    assert!(shown.contains(part), "{part} at {size:?}\n{shown}");
                }
            }
        }
    }
}

#[test]
fn every_core_of_a_large_node_has_a_cell() {
    for (size, cells) in [((120, 40), 32), ((200, 60), 64)] {
        let mut app = app(LARGE, BLOCKS, TopView::Node);
        let buffer = drawn(&mut app, size);
        let heat = |y: u16| {
            let row = (0..size.0).map(|x| &buffer[(x, y)]);
            row.filter(|cell| matches!(cell.bg, Color::Indexed(_)))
                .count()
        };
        let rows: Vec<usize> = (0..size.1).map(heat).filter(|count| *count > 0).collect();
        assert_eq!(rows, vec![cells * 3; 256 / cells], "{size:?}");
        let shown = screen(&mut app, size);
        assert!(shown.contains("86 86 86 87 87\n"), "{shown}");
    }
}

#[test]
fn processes_are_sorted_grouped_and_filtered() {
    let mut app = app(SMALL, BLOCKS, TopView::Processes);
    let first = |app: &mut TopApp| {
        let shown = screen(app, (120, 24));
        let row = shown.lines().nth(4).unwrap_or_default().to_owned();
        (row, shown)
    };
    assert!(first(&mut app).0.contains("1200 ada"));
    app.handle_action(KeyAction::Sort(2), 24);
    let (row, shown) = first(&mut app);
    assert!(
        row.contains("dataloader") && shown.contains("by read"),
        "{shown}"
    );
    assert!(shown.contains("read▾"), "{shown}");
    app.handle_action(KeyAction::Sort(-2), 24);
    app.handle_action(KeyAction::Filter, 24);
    "grace".chars().for_each(|letter| {
        app.handle_action(KeyAction::Type(letter), 24);
    });
    app.handle_action(KeyAction::Accept, 24);
    let (row, shown) = first(&mut app);
    assert!(row.contains("python3 train"), "{shown}");
    assert!(
        shown.contains("3 of 412 processes, by CPU, with \"grace\""),
        "{shown}"
    );
    app.handle_action(KeyAction::Detail, 24);
    let (_, shown) = first(&mut app);
    assert!(
        shown.contains("command python3 train.py --epochs 90"),
        "{shown}"
    );
    app.handle_action(KeyAction::Escape, 24);
    app.handle_action(KeyAction::Escape, 24);
    for (grouping, name) in [
        (TopGrouping::User, "ada"),
        (TopGrouping::Cgroup, "job_481516"),
        (TopGrouping::Job, "481516"),
    ] {
        app.handle_action(KeyAction::Group, 24);
        let shown = screen(&mut app, (80, 24));
        assert!(shown.contains("Waiting for the agent's list."), "{shown}");
        app.set_processes(Ok(processes(grouping)));
        let (row, shown) = first(&mut app);
        assert!(
            row.contains(name) && shown.contains(grouping.label()),
            "{shown}"
        );
    }
    app.set_processes(Err("the collector top_processes is disabled".to_owned()));
    let shown = screen(&mut app, (80, 24));
    assert!(
        shown.contains("the collector top_processes is disabled"),
        "{shown}"
    );
}

#[test]
fn the_overview_requests_the_history_of_processes() {
    let mut app = app(SMALL, BLOCKS, TopView::Node);
    let series = "node_process_cpu_seconds_total{comm=\"python3\",pid=\"1202\",user=\"grace\"}";
    let listed = SeriesInfo {
        name: series.to_owned(),
        doc: String::new(),
        kind: "counter".to_owned(),
        unit: "seconds".to_owned(),
    };
    app.model.set_series_list(vec![listed]);
    app.model.apply_step(&[SeriesValue {
        name: series.to_owned(),
        ts: NOW,
        value: 1.0,
    }]);
    assert!(app.update_layout(60).contains(&series.to_owned()));
}

#[test]
fn the_column_that_orders_processes_is_visible_at_every_width() {
    let mut app = app(SMALL, BLOCKS, TopView::Processes);
    for _ in 0..6 {
        app.handle_action(KeyAction::Sort(1), 24);
        for width in [60, 80, 120, 200] {
            let shown = screen(&mut app, (width, 24));
            assert!(shown.contains('▾'), "{:?} {shown}", app.process_sort);
        }
    }
}

#[test]
fn the_picture_of_the_documentation_shows_the_overview() {
    let mut app = app(PICTURE, BLOCKS, TopView::Node);
    let buffer = drawn(&mut app, (120, 40));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/images/top.svg");
    assert_golden(path, &picture::svg(&buffer));
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
    app.handle_action(KeyAction::Group, 24);
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
    let mut app = app(none, BLOCKS, TopView::Programs);
    let shown = screen(&mut app, (80, 24));
    assert!(shown.contains("No program has sent metrics yet"), "{shown}");
    app.model.agent.lane_faults = vec!["/dev/shm/x: another agent reads it".to_owned()];
    let shown = screen(&mut app, (100, 30));
    assert!(shown.contains("another agent reads it"), "{shown}");
}
