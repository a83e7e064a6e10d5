//! Draws the details of one series: value, help, labels, type, history.

use super::canvas::Canvas;
use super::series_list::value_range;
use super::theme::StyleRole;
use crate::format::number::{exact, utc};
use crate::top::app::TopApp;
use crate::top::model::{HISTORY_SECONDS, SeriesTrack};
use crate::top::units;

const LABEL: u16 = 9;

pub fn draw(canvas: &mut Canvas<'_>, app: &TopApp, track: &SeriesTrack) {
    let (width, height) = (canvas.width(), canvas.height());
    let family = track.series.family();
    canvas.clear();
    canvas.fill(0, 0, width, canvas.theme.rule(), StyleRole::Faint);
    canvas.text_runs(
        1,
        0,
        &[
            (" ", StyleRole::Plain),
            (family.name.as_ref(), StyleRole::Title),
            (" ", StyleRole::Plain),
        ],
    );
    let mut lines: Vec<(&str, String)> = Vec::new();
    let mut value = String::new();
    if let Some(last) = track.last() {
        value = format!(
            "{}   {}",
            units::value(last.value, family),
            exact(last.value)
        );
        if let Some(rate) = app.model.rate(track).filter(|_| track.is_counter()) {
            value.push_str(&format!("   {}", units::rate(rate, family)));
        }
        value.push_str(&format!("   since {}", utc(last.ts)));
    }
    lines.push(("value", value));
    if !family.help.is_empty() {
        lines.push(("help", family.help.to_string()));
    }
    let labels: Vec<String> = track
        .series
        .labels()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if !labels.is_empty() {
        lines.push(("labels", labels.join("  ")));
    }
    let kind = match family.unit.as_ref() {
        "" => family.kind.as_str().to_owned(),
        unit => format!("{} in {unit}", family.kind.as_str()),
    };
    lines.push(("type", kind));
    let mut y = 1;
    for (label, text) in lines {
        canvas.text(1, y, LABEL - 1, label, StyleRole::Faint);
        canvas.text(
            LABEL,
            y,
            width.saturating_sub(LABEL + 1),
            &text,
            StyleRole::Plain,
        );
        y += 1;
    }
    if let Some(rows) = height.checked_sub(y).filter(|rows| *rows > 0) {
        chart(canvas, app, track, (y, rows));
    }
}

/// Draws the history over several rows, with its lowest and highest value.
fn chart(canvas: &mut Canvas<'_>, app: &TopApp, track: &SeriesTrack, (y, rows): (u16, u16)) {
    const SCALE: u16 = 12;
    let room = canvas
        .width()
        .saturating_sub(SCALE + 2)
        .min(HISTORY_SECONDS as u16);
    let Some(history) = app.model.history(track.series.text()) else {
        return;
    };
    let values = history.columns(app.model.second(), room.into());
    let (low, high) = value_range(&values);
    let family = track.series.family();
    let write = |value: f64| {
        if track.is_counter() {
            units::rate(value, family)
        } else {
            units::value(value, family)
        }
    };
    canvas.text_right(0, y, SCALE, &write(high), StyleRole::Faint);
    if rows > 1 {
        canvas.text_right(0, y + rows - 1, SCALE, &write(low), StyleRole::Faint);
    }
    canvas.column_chart((SCALE + 1, y), rows, &values, (low, high), StyleRole::Good);
}
