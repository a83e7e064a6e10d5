//! Draws the frame of every view: title, tabs, keys, help.

use super::canvas::{Canvas, text_width};
use super::layout;
use super::theme::StyleRole;
use crate::format::number;
use crate::top::app::{ConnectionState, TopApp, TopView};
use crate::top::input::KEYS;
use crate::top::units;

pub fn too_small(canvas: &mut Canvas<'_>) {
    let (width, height) = (canvas.width(), canvas.height());
    let needed = format!("{}x{}", layout::WIDTH_MIN, layout::HEIGHT_MIN);
    let text = format!("Too small: {width}x{height}; requires {needed}.");
    for (y, piece) in text
        .as_bytes()
        .chunks(usize::from(width).max(1))
        .enumerate()
    {
        let piece = String::from_utf8_lossy(piece);
        canvas.text(0, y as u16, width, &piece, StyleRole::Plain);
    }
}

/// Draws the node's name, the time, and warnings about the agent.
pub fn header(canvas: &mut Canvas<'_>, app: &TopApp) {
    let width = canvas.width();
    if let ConnectionState::Lost(since, reason) = &app.connection {
        let since = time(*since);
        let text = format!(" disconnected since {since}, retrying");
        let taken = canvas.text(0, 0, width, &text, StyleRole::Critical);
        canvas.text(taken + 2, 0, width, reason, StyleRole::Faint);
        return;
    }
    let agent = &app.model.agent;
    let mut right = Vec::new();
    if agent.is_degraded {
        right.push(("degraded".to_owned(), StyleRole::Critical));
    }
    if agent.dropped > 0 {
        let dropped = units::decimal(agent.dropped as f64, "");
        right.push((format!("{dropped} dropped"), StyleRole::Warning));
    }
    if app.is_paused {
        right.push(("PAUSED".to_owned(), StyleRole::Selected));
    } else if width >= 60 {
        right.push((format!("{} Hz", app.hz), StyleRole::Faint));
    }
    if let Some(now) = app.model.now() {
        right.push((time(now), StyleRole::Plain));
    }
    let mut x = width;
    for (text, role) in right.iter().rev() {
        x = x.saturating_sub(text_width(text) + 2);
        canvas.text(x, 0, text_width(text), text, *role);
    }
    let mut title = canvas.region(0, 0, x, 1);
    title.text_runs(
        1,
        0,
        &[
            ("pegel top  ", StyleRole::Title),
            (&agent.node, StyleRole::Key),
        ],
    );
    let boot = app.model.value("node_boot_time_seconds");
    if let Some((now, boot)) = app.model.now().zip(boot) {
        let taken = 12 + text_width(&agent.node);
        let up = format!("  up {}", units::duration(now - boot));
        if taken + text_width(&up) < x {
            title.text(taken, 0, x, &up, StyleRole::Faint);
        }
    }
}

fn time(seconds: f64) -> String {
    let text = number::time_of_day(seconds);
    format!("{}Z", text.split('.').next().unwrap_or_default())
}

/// Draws the tabs. The selected one is in brackets, visible without colours too.
pub fn tabs(canvas: &mut Canvas<'_>, app: &TopApp) {
    // All labels if they fit, else only that of the selected view.
    let whole: u16 = TopView::ALL
        .iter()
        .map(|view| text_width(view.label()) + 4)
        .sum();
    let has_labels = whole <= canvas.width();
    let mut x = 0;
    for (index, view) in TopView::ALL.into_iter().enumerate() {
        let is_selected = view == app.view;
        let label = if has_labels || is_selected {
            format!("{} {}", index + 1, view.label())
        } else {
            (index + 1).to_string()
        };
        let (text, role) = if is_selected {
            (format!("[{label}]"), StyleRole::Selected)
        } else {
            (format!(" {label} "), StyleRole::Plain)
        };
        x += canvas.text(x, 1, u16::MAX, &text, role);
    }
}

pub fn footer(canvas: &mut Canvas<'_>, app: &TopApp) {
    let y = canvas.height() - 1;
    if app.is_typing {
        let words = [
            (" filter: ", StyleRole::Key),
            (app.filter.as_str(), StyleRole::Plain),
            ("_", StyleRole::Selected),
            ("   enter apply  esc clear", StyleRole::Faint),
        ];
        canvas.text_runs(0, y, &words);
        return;
    }
    let sort = format!("sort: {}", app.sort.label());
    let pause = if app.is_paused { "resume" } else { "pause" };
    let mut keys = vec![
        ("q", "quit"),
        ("?", "help"),
        ("tab", "view"),
        ("space", pause),
    ];
    if app.view.is_list() {
        keys.extend([("/", "filter"), ("s", sort.as_str()), ("enter", "detail")]);
    } else {
        keys.extend([("/", "find a metric")]);
        if !matches!(app.view, TopView::Node | TopView::Pressure) {
            keys.push(("up/down", "scroll"));
        }
    }
    let mut x = 1;
    for (key, meaning) in keys {
        let needed = text_width(key) + 1 + text_width(meaning);
        if x + needed > canvas.width() {
            break;
        }
        let words = [
            (key, StyleRole::Key),
            (" ", StyleRole::Plain),
            (meaning, StyleRole::Faint),
        ];
        x += canvas.text_runs(x, y, &words) + 2;
    }
}

pub fn help(canvas: &mut Canvas<'_>) {
    let width = canvas.width();
    // At the smallest size the last rows are cut off; the most important keys come first.
    let key_width = if width < 60 { 17 } else { 25 };
    for (y, (key, meaning)) in KEYS.iter().enumerate() {
        let y = y as u16 + u16::from(canvas.height() > KEYS.len() as u16 + 1);
        canvas.text(1, y, key_width - 1, key, StyleRole::Key);
        canvas.text(
            1 + key_width,
            y,
            width - key_width - 1,
            meaning,
            StyleRole::Plain,
        );
    }
    let rates =
        "Rates are averages over two seconds of samples, or over one interval of slower series.";
    super::draw_paragraph(canvas, KEYS.len() as u16 + 2, rates);
}
