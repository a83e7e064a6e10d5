//! A region of the screen to draw on. Output that does not fit is cut off; drawing cannot fail.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::theme::{StyleRole, TerminalTheme};

#[derive(Debug)]
pub struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    pub theme: TerminalTheme,
}

impl<'a> Canvas<'a> {
    pub fn new(buffer: &'a mut Buffer, theme: TerminalTheme) -> Canvas<'a> {
        let area = buffer.area;
        Canvas {
            buffer,
            area,
            theme,
        }
    }

    /// Returns a region of this canvas, with its own coordinates.
    pub fn region(&mut self, x: u16, y: u16, width: u16, height: u16) -> Canvas<'_> {
        let area = Rect {
            x: self.area.x.saturating_add(x),
            y: self.area.y.saturating_add(y),
            width,
            height,
        };
        Canvas {
            area: area.intersection(self.area),
            buffer: self.buffer,
            theme: self.theme,
        }
    }

    pub fn width(&self) -> u16 {
        self.area.width
    }

    pub fn height(&self) -> u16 {
        self.area.height
    }

    /// Writes text within `width` columns, shortened if necessary. Returns the number of columns used.
    pub fn text(&mut self, x: u16, y: u16, width: u16, text: &str, role: StyleRole) -> u16 {
        if x >= self.area.width || y >= self.area.height {
            return 0;
        }
        let room = width.min(self.area.width - x);
        let text = sanitize(text, self.theme.has_blocks);
        let text = shorten(&text, room, room / 3, self.theme.ellipsis());
        let (x, y) = (self.area.x + x, self.area.y + y);
        let style = self.theme.style(role);
        let (end, _) = self.buffer.set_stringn(x, y, text, room.into(), style);
        end - x
    }

    /// Like [`Canvas::text`], but right-aligned.
    pub fn text_right(&mut self, x: u16, y: u16, width: u16, text: &str, role: StyleRole) {
        let taken = text_width(&sanitize(text, self.theme.has_blocks)).min(width);
        self.text(x + width - taken, y, taken, text, role);
    }

    /// Writes several texts one after another.
    pub fn text_runs(&mut self, x: u16, y: u16, words: &[(&str, StyleRole)]) -> u16 {
        let mut at = x;
        for (word, role) in words {
            at += self.text(at, y, u16::MAX, word, *role);
        }
        at - x
    }

    /// Fills `width` columns with one character.
    pub fn fill(&mut self, x: u16, y: u16, width: u16, symbol: &str, role: StyleRole) {
        let style = self.theme.style(role);
        for column in x..x.saturating_add(width).min(self.area.width) {
            self.set_cell(column, y, symbol, style);
        }
    }

    /// Draws a bar of several fractions of one; the rest is empty.
    pub fn stacked_bar(&mut self, x: u16, y: u16, width: u16, parts: &[(f64, StyleRole)]) {
        self.fill(
            x,
            y,
            width,
            self.theme.cell(StyleRole::Faint),
            StyleRole::Faint,
        );
        let mut before = 0.0;
        for (share, role) in parts {
            // Round the ends, not the lengths: the whole bar is never a cell too long.
            let end = before
                + if share.is_finite() {
                    share.max(0.0)
                } else {
                    0.0
                };
            let cells = |share: f64| (share.min(1.0) * f64::from(width)).round() as u16;
            let (from, to) = (cells(before), cells(end));
            self.fill(x + from, y, to - from, self.theme.cell(*role), *role);
            before = end;
        }
    }

    /// Draws a bar of one fraction, in eighths of a cell.
    pub fn bar(&mut self, x: u16, y: u16, width: u16, share: f64, role: StyleRole) {
        self.fill(x, y, width, self.theme.eighth(0), StyleRole::Faint);
        if !share.is_finite() {
            return;
        }
        let eighths = (share.clamp(0.0, 1.0) * f64::from(width) * 8.0).round() as usize;
        let style = self.theme.style(role);
        for column in 0..eighths.div_ceil(8) {
            let symbol = self.theme.eighth(eighths - column * 8);
            self.set_cell(x + column as u16, y, symbol, style);
        }
    }

    /// Draws one column per value, from `low` at the bottom to `high` at the top, over `height` rows.
    pub fn column_chart(
        &mut self,
        (x, y): (u16, u16),
        height: u16,
        values: &[Option<f64>],
        (low, high): (f64, f64),
        role: StyleRole,
    ) {
        let style = self.theme.style(role);
        let span = if high > low { high - low } else { 1.0 };
        for (index, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let filled = ((value - low) / span).clamp(0.0, 1.0) * f64::from(height);
            for row in 0..height {
                let share = filled - f64::from(row);
                // The lowest row shows that a value exists.
                if share > 0.0 || row == 0 {
                    let symbol = self.theme.column(share);
                    self.set_cell(x + index as u16, y + height - 1 - row, symbol, style);
                }
            }
        }
    }

    /// Highlights a whole row as selected.
    pub fn highlight_row(&mut self, y: u16) {
        if y < self.area.height {
            let row = Rect {
                y: self.area.y + y,
                height: 1,
                ..self.area
            };
            self.buffer
                .set_style(row, self.theme.style(StyleRole::Selected));
        }
    }

    pub fn clear(&mut self) {
        let blank = " ".repeat(self.area.width.into());
        for y in self.area.top()..self.area.bottom() {
            let style = ratatui::style::Style::reset();
            self.buffer.set_string(self.area.x, y, &blank, style);
        }
    }

    fn set_cell(&mut self, x: u16, y: u16, symbol: &str, style: ratatui::style::Style) {
        if x < self.area.width && y < self.area.height {
            let cell = &mut self.buffer[(self.area.x + x, self.area.y + y)];
            cell.set_symbol(symbol).set_style(style);
        }
    }
}

/// Returns the number of columns that a text occupies.
pub fn text_width(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// Replaces control and invisible characters. Names, labels and help texts come from untrusted programs: control
/// characters could inject terminal commands, and others reverse the direction of text.
pub fn sanitize(text: &str, is_unicode: bool) -> String {
    text.chars()
        .filter(|character| is_unicode || *character != '°')
        .map(|character| match character {
            '\u{20}'..='\u{7e}' => character,
            _ if !is_unicode && character == 'µ' => 'u',
            _ if !is_unicode => '?',
            _ if character.is_control() || is_invisible(character) => '\u{fffd}',
            _ => character,
        })
        .collect()
}

/// Returns whether it is a formatting character: direction mark, joiner, tag, byte order mark.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Shortens a text in the middle, keeping `tail` columns at the end.
fn shorten(text: &str, room: u16, tail: u16, ellipsis: &str) -> String {
    if text_width(text) <= room {
        return text.to_owned();
    }
    if room < 12 {
        let mut kept = take_columns(text.chars(), room.saturating_sub(1));
        kept.push_str(if room > 0 { ellipsis } else { "" });
        return kept;
    }
    let tail: String = take_columns(text.chars().rev(), tail)
        .chars()
        .rev()
        .collect();
    let head = take_columns(text.chars(), room - 1 - text_width(&tail));
    format!("{head}{ellipsis}{tail}")
}

/// Shortens a series to `room` columns: keeps the end of the name, which is most specific, and a part of the labels.
pub fn shorten_series(text: &str, room: u16, theme: TerminalTheme) -> String {
    let text = sanitize(text, theme.has_blocks);
    let all = text_width(&text);
    if all <= room || room < 20 {
        return text;
    }
    let (name, labels) = text.split_at(text.find('{').unwrap_or(text.len()));
    let labels_room = room
        .saturating_sub(text_width(name))
        .max(room / 3)
        .min(text_width(labels));
    let name_room = room - labels_room;
    // The end of a name is most specific, and the end of a label is its value.
    let labels = shorten(labels, labels_room, labels_room * 3 / 4, theme.ellipsis());
    let name = shorten(name, name_room, name_room * 3 / 4, theme.ellipsis());
    format!("{name}{labels}")
}

fn take_columns(characters: impl Iterator<Item = char>, room: u16) -> String {
    let mut kept = String::new();
    let mut taken = 0;
    for character in characters {
        taken += text_width(character.encode_utf8(&mut [0; 4]));
        if taken > room {
            break;
        }
        kept.push(character);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(width: u16, draw: impl FnOnce(&mut Canvas<'_>)) -> String {
        let theme = TerminalTheme {
            has_colours: false,
            has_blocks: true,
            has_attributes: true,
        };
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, 1));
        draw(&mut Canvas::new(&mut buffer, theme));
        (0..width).map(|x| buffer[(x, 0)].symbol()).collect()
    }

    #[test]
    fn control_characters_are_replaced() {
        let nasty = "a\u{1b}[2J\u{7}\r\n\u{9b}31m\u{202e}b\u{200b}";
        let text = sanitize(nasty, true);
        assert!(
            !text.chars().any(|c| c.is_control() || is_invisible(c)),
            "{text:?}"
        );
        assert_eq!(sanitize("µ ü\u{1b}", false), "u ??");
        let shown = drawn(24, |canvas| {
            canvas.text(0, 0, 24, nasty, StyleRole::Plain);
        });
        assert_eq!(shown.trim_end(), "a�[2J����31m�b�");
    }

    #[test]
    fn long_texts_keep_both_ends() {
        assert_eq!(
            shorten("node_cpu_seconds_total{cpu=\"0\"}", 16, 5, "…"),
            "node_cpu_s…=\"0\"}"
        );
        assert_eq!(shorten("abcdef", 4, 1, "…"), "abc…");
        assert_eq!(shorten("abcdef", 0, 0, "…"), "");
        assert_eq!(
            text_width(&shorten("日本語のとても長い名前の測定値", 13, 4, "…")),
            13
        );
    }

    #[test]
    fn long_series_keep_the_end_of_their_name() {
        let theme = TerminalTheme {
            has_colours: false,
            has_blocks: true,
            has_attributes: true,
        };
        let text = "node_cgroup_memory_active_file_bytes{cgroup=\"/a/b/c\"}";
        let short = |room| shorten_series(text, room, theme);
        assert_eq!(short(54), text);
        assert_eq!(short(45), "node_cg…mory_active_file_bytes{cg…p=\"/a/b/c\"}");
        assert!((20..60).all(|room| text_width(&short(room)) <= room));
        assert_eq!(
            shorten_series("a.b{k=\"0123456789abcdefghi\"}", 20, theme),
            "a.b{k=\"…9abcdefghi\"}"
        );
    }

    #[test]
    fn bars_are_proportional_to_their_share() {
        assert_eq!(
            drawn(8, |c| c.bar(0, 0, 8, 0.5, StyleRole::Plain)),
            "████····"
        );
        assert_eq!(
            drawn(8, |c| c.bar(0, 0, 8, 0.3, StyleRole::Plain)),
            "██▍·····"
        );
        assert_eq!(drawn(4, |c| c.bar(0, 0, 4, 7.0, StyleRole::Plain)), "████");
        assert_eq!(
            drawn(4, |c| c.bar(0, 0, 4, f64::NAN, StyleRole::Plain)),
            "····"
        );
        use crate::top::model::CpuMode::{System, User};
        let parts = [(0.5, StyleRole::Cpu(User)), (0.25, StyleRole::Cpu(System))];
        assert_eq!(drawn(8, |c| c.stacked_bar(0, 0, 8, &parts)), "████▓▓··");
        let over = [(0.9, StyleRole::Cpu(User)), (0.9, StyleRole::Cpu(System))];
        assert_eq!(drawn(4, |c| c.stacked_bar(0, 0, 4, &over)), "████");
    }

    #[test]
    fn drawing_outside_is_cut_off() {
        let shown = drawn(4, |canvas| {
            canvas.text(2, 0, 100, "abcdef", StyleRole::Plain);
            canvas.text(9, 9, 100, "x", StyleRole::Plain);
            canvas.fill(3, 5, 100, "x", StyleRole::Plain);
            canvas.region(100, 100, 5, 5).clear();
            canvas.column_chart(
                (3, 0),
                1,
                &[Some(1.0), Some(1.0)],
                (0.0, 1.0),
                StyleRole::Plain,
            );
        });
        assert_eq!(shown, "  a█");
    }
}
