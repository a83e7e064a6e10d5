//! Aligned columns. Those that do not fit are left out, the last ones first.

use super::canvas::Canvas;
use super::look::Role;

pub struct Column {
    pub title: &'static str,
    pub width: u16,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text from the left; the first column takes what the others leave.
    Text,
    Number,
    Bar,
}

pub enum Cell {
    Text(String, Role),
    /// A share of one.
    Bar(Option<f64>),
    Columns(Vec<Option<f64>>, (f64, f64)),
    Nothing,
}

impl Cell {
    pub fn plain(text: impl Into<String>) -> Cell {
        Cell::Text(text.into(), Role::Plain)
    }

    /// A number that may not be known yet.
    pub fn number(value: Option<f64>, write: impl Fn(f64) -> String) -> Cell {
        match value {
            Some(value) => Cell::plain(write(value)),
            None => Cell::Nothing,
        }
    }
}

pub const fn text(title: &'static str, width: u16) -> Column {
    Column {
        title,
        width,
        kind: Kind::Text,
    }
}

pub const fn number(title: &'static str, width: u16) -> Column {
    Column {
        title,
        width,
        kind: Kind::Number,
    }
}

pub const fn bar(title: &'static str, width: u16) -> Column {
    Column {
        title,
        width,
        kind: Kind::Bar,
    }
}

/// Where each column that fits begins, and how wide it is.
pub fn places(columns: &[Column], width: u16) -> Vec<(u16, u16)> {
    let Some((first, rest)) = columns.split_first() else {
        return Vec::new();
    };
    let mut taken = first.width;
    let mut fitting = 0;
    for column in rest {
        if taken + 1 + column.width > width {
            break;
        }
        taken += 1 + column.width;
        fitting += 1;
    }
    let spare = width.saturating_sub(taken);
    let first_width = first.width + spare;
    let mut places = vec![(0, first_width)];
    let mut x = first_width + 1;
    for column in &rest[..fitting] {
        places.push((x, column.width));
        x += column.width + 1;
    }
    places
}

pub fn head(canvas: &mut Canvas<'_>, y: u16, columns: &[Column]) {
    for ((x, width), column) in places(columns, canvas.width()).into_iter().zip(columns) {
        match column.kind {
            Kind::Number => canvas.right(x, y, width, column.title, Role::Title),
            _ => drop(canvas.text(x, y, width, column.title, Role::Title)),
        }
    }
}

pub fn row(canvas: &mut Canvas<'_>, y: u16, columns: &[Column], cells: &[Cell]) {
    let places = places(columns, canvas.width());
    for (((x, width), column), cell) in places.into_iter().zip(columns).zip(cells) {
        match (cell, column.kind) {
            (Cell::Text(text, role), Kind::Number) => canvas.right(x, y, width, text, *role),
            (Cell::Text(text, role), _) => drop(canvas.text(x, y, width, text, *role)),
            (Cell::Bar(Some(share)), _) => {
                canvas.bar(x, y, width, *share, super::look::Look::heat(*share));
            }
            (Cell::Columns(values, range), _) => {
                let shown = values.len().saturating_sub(width.into());
                canvas.columns((x, y), 1, &values[shown..], *range, Role::Good);
            }
            (Cell::Bar(None) | Cell::Nothing, Kind::Text) => {}
            (Cell::Bar(None) | Cell::Nothing, _) => {
                let dash = canvas.look.dash();
                canvas.right(x, y, width, dash, Role::Faint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_column_takes_what_is_left() {
        let columns = [text("name", 10), number("a", 8), number("b", 8)];
        assert_eq!(places(&columns, 40), [(0, 22), (23, 8), (32, 8)]);
        assert_eq!(places(&columns, 28), [(0, 10), (11, 8), (20, 8)]);
        assert_eq!(places(&columns, 27), [(0, 18), (19, 8)]);
        assert_eq!(places(&columns, 5), [(0, 10)]);
    }
}
