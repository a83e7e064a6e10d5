//! Renders a screen as an SVG image for the documentation. Block characters become shapes and texts
//! have fixed lengths, so that the image does not depend on the viewer's fonts.

use std::collections::BTreeMap;
use std::fmt::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::text::text_width;

/// Size of a cell in pixels, and the distance of the baseline from its top.
const WIDTH: u32 = 8;
const HEIGHT: u32 = 16;
const BASELINE: u32 = 12;
/// Space around the screen.
const MARGIN: u32 = 10;
const BACKGROUND: &str = "#161b22";
const FOREGROUND: &str = "#d0d7de";

/// Shapes and texts by their style, in the order in which they are written.
#[derive(Default)]
struct Layers {
    backgrounds: BTreeMap<String, String>,
    shapes: BTreeMap<(String, &'static str), String>,
    texts: BTreeMap<(String, bool), String>,
}

/// Returns the screen as an SVG document.
pub(super) fn svg(buffer: &Buffer) -> String {
    let area = buffer.area;
    let mut layers = Layers::default();
    for y in 0..area.height {
        let row: Vec<&Cell> = (0..area.width).map(|x| &buffer[(x, y)]).collect();
        layers.add_row(&row, MARGIN + u32::from(y) * HEIGHT);
    }
    let width = u32::from(area.width) * WIDTH + 2 * MARGIN;
    let height = u32::from(area.height) * HEIGHT + 2 * MARGIN;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace,Menlo,Consolas,monospace\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n"
    );
    for (colour, path) in &layers.backgrounds {
        let _ = writeln!(text, "<path fill=\"{colour}\" d=\"{path}\"/>");
    }
    for ((colour, opacity), path) in &layers.shapes {
        let _ = writeln!(
            text,
            "<path fill=\"{colour}\" fill-opacity=\"{opacity}\" d=\"{path}\"/>"
        );
    }
    for ((colour, is_bold), elements) in &layers.texts {
        let weight = if *is_bold {
            " font-weight=\"bold\""
        } else {
            ""
        };
        let _ = writeln!(text, "<g fill=\"{colour}\"{weight}>\n{elements}</g>");
    }
    text.push_str("</svg>\n");
    text
}

impl Layers {
    /// Adds a row of cells whose top is at `top`; runs of equal cells become one element.
    fn add_row(&mut self, row: &[&Cell], top: u32) {
        let mut at = 0;
        while at < row.len() {
            let (foreground, background, is_bold) = style(row[at]);
            let same = row[at..]
                .iter()
                .take_while(|cell| style(cell) == style(row[at]));
            let same = same.count();
            if background != BACKGROUND {
                let path = self.backgrounds.entry(background).or_default();
                push_rectangle(path, [at as u32 * 8, 0, same as u32 * 8, 8], top);
            }
            for run in runs(&row[at..at + same]) {
                let first = at + run.start;
                let symbol = row[first].symbol();
                if let Some((shape, opacity)) = shape(symbol) {
                    let key = (foreground.clone(), opacity);
                    let path = self.shapes.entry(key).or_default();
                    let length = run.len() as u32;
                    let [x, y, width, height] = shape;
                    let width = if width == 8 { 8 * length } else { width };
                    push_rectangle(path, [first as u32 * 8 + x, y, width, height], top);
                } else {
                    let text: String = row[first..at + run.end]
                        .iter()
                        .map(|cell| cell.symbol())
                        .collect();
                    let key = (foreground.clone(), is_bold);
                    push_text(self.texts.entry(key).or_default(), &text, first, top);
                }
            }
            at += same;
        }
    }
}

/// Splits cells of one style into runs: equal shapes that touch each other, and texts without two
/// blanks in succession.
fn runs(cells: &[&Cell]) -> Vec<std::ops::Range<usize>> {
    let is_text = |index: usize| shape(cells[index].symbol()).is_none();
    let is_blank = |index: usize| cells.get(index).is_none_or(|cell| cell.symbol() == " ");
    let mut runs = Vec::new();
    let mut start = 0;
    while start < cells.len() {
        let mut end = start + 1;
        if is_text(start) {
            while end < cells.len() && is_text(end) && !(is_blank(end) && is_blank(end + 1)) {
                end += 1;
            }
            if !(start..end).all(is_blank) {
                runs.push(start..end);
            }
        } else {
            let symbol = cells[start].symbol();
            let can_join = shape(symbol).is_some_and(|([_, _, width, _], _)| width == 8);
            while can_join && end < cells.len() && cells[end].symbol() == symbol {
                end += 1;
            }
            runs.push(start..end);
        }
        start = end;
    }
    runs
}

/// Returns a block character as a rectangle in eighths of a cell, and its opacity.
fn shape(symbol: &str) -> Option<([u32; 4], &'static str)> {
    let character = symbol.chars().next()?;
    let code = u32::from(character);
    Some(match character {
        '▁'..='█' => {
            let height = code - 0x2580;
            ([0, 8 - height, 8, height], "1")
        }
        '▉'..='▏' => ([0, 0, 0x2590 - code, 8], "1"),
        '░' => ([0, 0, 8, 8], ".3"),
        '▒' => ([0, 0, 8, 8], ".55"),
        '▓' => ([0, 0, 8, 8], ".75"),
        _ => return None,
    })
}

/// Appends a rectangle; horizontal figures and heights are in eighths of a cell.
fn push_rectangle(path: &mut String, [x, y, width, height]: [u32; 4], top: u32) {
    let x = MARGIN + x * WIDTH / 8;
    let (y, width, height) = (top + y * HEIGHT / 8, width * WIDTH / 8, height * HEIGHT / 8);
    let _ = write!(path, "M{x} {y}h{width}v{height}h-{width}z");
}

fn push_text(elements: &mut String, text: &str, column: usize, top: u32) {
    let text = text.trim_end();
    let blanks = text.len() - text.trim_start().len();
    let text = text.trim_start();
    let x = MARGIN + (column + blanks) as u32 * WIDTH;
    let (y, length) = (top + BASELINE, u32::from(text_width(text)) * WIDTH);
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        elements,
        "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\">{text}</text>"
    );
}

/// Returns foreground, background and whether the text is bold.
fn style(cell: &Cell) -> (String, String, bool) {
    let foreground = colour(cell.fg).unwrap_or_else(|| FOREGROUND.to_owned());
    let background = colour(cell.bg).unwrap_or_else(|| BACKGROUND.to_owned());
    let is_bold = cell.modifier.contains(Modifier::BOLD);
    if cell.modifier.contains(Modifier::REVERSED) {
        return (background, foreground, is_bold);
    }
    (foreground, background, is_bold)
}

fn colour(colour: Color) -> Option<String> {
    let named = match colour {
        Color::Red => "#f0625d",
        Color::Green => "#57ab5a",
        Color::Yellow => "#d4a72c",
        Color::Blue => "#539bf5",
        Color::Magenta => "#b083f0",
        Color::Cyan => "#39c5cf",
        Color::DarkGray => "#768390",
        Color::Indexed(index @ 16..=231) => {
            let level = |value: u8| if value == 0 { 0 } else { 55 + 40 * value };
            let index = index - 16;
            let [r, g, b] = [index / 36, index / 6 % 6, index % 6].map(level);
            return Some(format!("#{r:02x}{g:02x}{b:02x}"));
        }
        Color::Indexed(index @ 232..) => {
            let grey = 8 + 10 * (index - 232);
            return Some(format!("#{grey:02x}{grey:02x}{grey:02x}"));
        }
        _ => return None,
    };
    Some(named.to_owned())
}
