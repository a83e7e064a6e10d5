//! Capabilities of the terminal: colours or none, block characters or plain ASCII.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::{bar, border};
use ratatui::text::Span;

use super::text::{sanitize, shorten};
use crate::top::model::CpuMode;

/// The meaning of an element on the screen; the theme maps it to a style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StyleRole {
    Plain,
    /// Less important: units of measure, empty parts of bars.
    Faint,
    Title,
    /// The selected row or tab.
    Selected,
    Key,
    Good,
    Warning,
    Critical,
    Cpu(CpuMode),
    /// A cell of a heat map, from 0 (idle) to [`HEAT_MAX`] (fully used).
    Heat(u8),
    /// Shared memory, a part of the used memory.
    Shared,
    /// The page cache, which is available to programs.
    Cache,
    /// Charts of incoming and of outgoing bytes.
    Incoming,
    Outgoing,
}

/// The highest level of a heat map.
const HEAT_MAX: u8 = 8;
/// Background colours of heat maps in the palette of 256: dark grey, green, yellow, red.
const HEAT_COLOURS: [u8; HEAT_MAX as usize + 1] = [235, 22, 28, 34, 70, 142, 178, 208, 196];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalTheme {
    pub has_colours: bool,
    pub has_blocks: bool,
    /// Bold and reverse video.
    pub has_attributes: bool,
    /// The palette of 256 colours.
    pub has_palette: bool,
}

impl TerminalTheme {
    /// A theme for tests that compare the text alone.
    #[cfg(test)]
    pub(crate) const WITHOUT_COLOURS: TerminalTheme = TerminalTheme {
        has_colours: false,
        has_blocks: true,
        has_attributes: true,
        has_palette: false,
    };

    /// Detects the capabilities from environment variables, with the precedence of `setlocale`.
    pub(crate) fn detect(variable: impl Fn(&str) -> Option<String>) -> TerminalTheme {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_else(|| "dumb".to_owned());
        let locale = set("LC_ALL")
            .or_else(|| set("LC_CTYPE"))
            .or_else(|| set("LANG"));
        let is_utf8 = locale.is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        let is_old = ["dumb", "vt52", "vt100", "vt102", "vt220"].contains(&term.as_str());
        let is_plain = is_old || term.ends_with("-mono") || term.ends_with("-m");
        let has_colours = !is_plain && set("NO_COLOR").is_none();
        let is_rich = term.contains("256color") || set("COLORTERM").is_some();
        TerminalTheme {
            has_colours,
            has_palette: has_colours && is_rich,
            // The font of the Linux console lacks most block characters.
            has_blocks: is_utf8 && !is_old && term != "linux",
            has_attributes: term != "dumb" && term != "vt52",
        }
    }

    pub(crate) fn style(self, role: StyleRole) -> Style {
        if self.has_colours {
            return match role {
                StyleRole::Heat(level) if self.has_palette => heat_cell(level),
                role => coloured(role),
            };
        }
        let plain = Style::new();
        match role {
            _ if !self.has_attributes => plain,
            StyleRole::Title | StyleRole::Key | StyleRole::Critical => {
                plain.add_modifier(Modifier::BOLD)
            }
            StyleRole::Selected => plain.add_modifier(Modifier::REVERSED),
            _ => plain,
        }
    }

    /// Returns a text that is safe to show. All texts on the screen are made here or by
    /// [`TerminalTheme::clipped`].
    pub(crate) fn span(self, text: impl AsRef<str>, role: StyleRole) -> Span<'static> {
        Span::styled(sanitize(text.as_ref(), self.has_blocks), self.style(role))
    }

    /// Like [`TerminalTheme::span`], shortened to `width` columns.
    pub(crate) fn clipped(
        self,
        text: impl AsRef<str>,
        width: u16,
        role: StyleRole,
    ) -> Span<'static> {
        let text = sanitize(text.as_ref(), self.has_blocks);
        let text = shorten(&text, width, width / 3, self.ellipsis());
        Span::styled(text, self.style(role))
    }

    /// Returns the colour role of a usage.
    pub(crate) fn usage_role(share: f64) -> StyleRole {
        match share {
            s if s >= 0.9 => StyleRole::Critical,
            s if s >= 0.6 => StyleRole::Warning,
            _ => StyleRole::Good,
        }
    }

    /// Returns the role of a cell in a heat map.
    pub(crate) fn heat_role(share: f64) -> StyleRole {
        StyleRole::Heat((share.clamp(0.0, 1.0) * f64::from(HEAT_MAX)).round() as u8)
    }

    /// Returns a full cell of a bar. CPU modes differ in shape as well as in colour.
    pub(crate) fn cell(self, role: StyleRole) -> &'static str {
        let (block, letter) = match role {
            StyleRole::Cpu(CpuMode::User) => ("█", "#"),
            StyleRole::Cpu(CpuMode::System) => ("▓", "="),
            StyleRole::Cpu(CpuMode::Irq) => ("▒", "%"),
            StyleRole::Cpu(CpuMode::Steal) => ("▒", "$"),
            StyleRole::Cpu(CpuMode::IoWait) | StyleRole::Cache => ("░", "~"),
            StyleRole::Shared => ("▓", "="),
            StyleRole::Faint | StyleRole::Cpu(CpuMode::Idle) => ("·", "."),
            _ => ("█", "#"),
        };
        if self.has_blocks { block } else { letter }
    }

    /// Returns the columns of charts, by eighths of a cell.
    pub(crate) fn bar_set(self) -> bar::Set<'static> {
        const LETTERS: bar::Set<'_> = bar::Set {
            full: "#",
            seven_eighths: "*",
            three_quarters: "+",
            five_eighths: "=",
            half: "-",
            three_eighths: ":",
            one_quarter: ".",
            one_eighth: "_",
            empty: " ",
        };
        if self.has_blocks {
            bar::NINE_LEVELS
        } else {
            LETTERS
        }
    }

    /// Returns a column of one cell, for a fraction of its height.
    pub(crate) fn column(self, share: f64) -> &'static str {
        let set = self.bar_set();
        match level(share, 1) {
            1 => set.one_eighth,
            2 => set.one_quarter,
            3 => set.three_eighths,
            4 => set.half,
            5 => set.five_eighths,
            6 => set.three_quarters,
            7 => set.seven_eighths,
            _ => set.full,
        }
    }

    /// Returns a cell of a bar that is filled from the left, in eighths.
    pub(crate) fn eighth(self, eighths: usize) -> &'static str {
        const BLOCKS: [&str; 8] = ["·", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        match eighths {
            8.. if self.has_blocks => "█",
            8.. => "#",
            eighths if self.has_blocks => BLOCKS[eighths],
            5.. => "-",
            _ => ".",
        }
    }

    pub(crate) fn border_set(self) -> border::Set<'static> {
        border::Set {
            horizontal_top: if self.has_blocks { "─" } else { "-" },
            ..border::PLAIN
        }
    }

    /// Returns the line of a time axis, and the mark at a time.
    pub(crate) fn axis(self) -> (char, char) {
        if self.has_blocks {
            ('─', '┴')
        } else {
            ('-', '+')
        }
    }

    /// Returns the mark at the title of the column that orders a table.
    pub(crate) fn sort_mark(self) -> &'static str {
        if self.has_blocks { "▾" } else { "v" }
    }

    pub(crate) fn dash(self) -> &'static str {
        if self.has_blocks { "–" } else { "-" }
    }

    pub(crate) fn ellipsis(self) -> &'static str {
        if self.has_blocks { "…" } else { "~" }
    }
}

/// Returns the height of a column in eighths of a cell, at least one: an existing value is visible.
pub(crate) fn level(share: f64, height: u16) -> u64 {
    let levels = f64::from(height.max(1)) * 8.0;
    (share * levels).ceil().clamp(1.0, levels) as u64
}

fn coloured(role: StyleRole) -> Style {
    let plain = Style::new();
    match role {
        StyleRole::Plain => plain,
        StyleRole::Faint | StyleRole::Cpu(CpuMode::Idle) => plain.fg(Color::DarkGray),
        StyleRole::Title => plain.fg(Color::Cyan).add_modifier(Modifier::BOLD),
        StyleRole::Selected => plain.add_modifier(Modifier::REVERSED),
        StyleRole::Key => plain.add_modifier(Modifier::BOLD),
        StyleRole::Good | StyleRole::Cpu(CpuMode::User) => plain.fg(Color::Green),
        StyleRole::Warning => plain.fg(Color::Yellow),
        StyleRole::Critical | StyleRole::Cpu(CpuMode::System) => plain.fg(Color::Red),
        StyleRole::Cpu(CpuMode::Irq) => plain.fg(Color::Magenta),
        StyleRole::Cpu(CpuMode::Steal) => plain.fg(Color::Yellow),
        StyleRole::Cpu(CpuMode::IoWait) | StyleRole::Cache => plain.fg(Color::Blue),
        StyleRole::Shared | StyleRole::Outgoing => plain.fg(Color::Magenta),
        StyleRole::Incoming => plain.fg(Color::Cyan),
        StyleRole::Heat(level) => coloured(TerminalTheme::usage_role(
            f64::from(level) / f64::from(HEAT_MAX),
        )),
    }
}

/// Returns the style of a cell in a heat map: a background, and a colour that is readable on it.
fn heat_cell(level: u8) -> Style {
    let level = level.min(HEAT_MAX);
    let text = if level <= 2 { 252 } else { 16 };
    Style::new()
        .bg(Color::Indexed(HEAT_COLOURS[usize::from(level)]))
        .fg(Color::Indexed(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capabilities(variables: &[(&str, &str)]) -> (bool, bool, bool) {
        let theme = TerminalTheme::detect(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        (theme.has_colours, theme.has_blocks, theme.has_attributes)
    }

    #[test]
    fn capabilities_follow_the_environment() {
        let utf8 = ("LANG", "C.UTF-8");
        assert_eq!(capabilities(&[("TERM", "xterm"), utf8]), (true, true, true));
        assert_eq!(
            capabilities(&[("TERM", "xterm"), utf8, ("NO_COLOR", "1")]),
            (false, true, true)
        );
        assert_eq!(
            capabilities(&[("TERM", "xterm"), utf8, ("NO_COLOR", "")]),
            (true, true, true)
        );
        assert_eq!(
            capabilities(&[("TERM", "xterm"), ("LANG", "C")]),
            (true, false, true)
        );
        assert_eq!(
            capabilities(&[("TERM", "xterm"), utf8, ("LC_ALL", "POSIX")]),
            (true, false, true)
        );
        assert_eq!(
            capabilities(&[("TERM", "linux"), utf8]),
            (true, false, true)
        );
        assert_eq!(
            capabilities(&[("TERM", "vt100"), utf8]),
            (false, false, true)
        );
        assert_eq!(
            capabilities(&[("TERM", "dumb"), utf8]),
            (false, false, false)
        );
        assert_eq!(capabilities(&[]), (false, false, false));
    }

    #[test]
    fn heat_maps_need_the_palette_of_256_colours() {
        let theme = |term: &'static str| {
            TerminalTheme::detect(|name| (name == "TERM").then(|| term.to_owned()))
        };
        let hottest = TerminalTheme::heat_role(1.0);
        let style = theme("xterm-256color").style(hottest);
        assert_eq!(style.bg, Some(Color::Indexed(196)));
        let style = theme("xterm").style(hottest);
        assert_eq!((style.fg, style.bg), (Some(Color::Red), None));
        assert_eq!(TerminalTheme::heat_role(f64::NAN), StyleRole::Heat(0));
    }

    #[test]
    fn without_colours_no_style_has_one() {
        let theme = TerminalTheme {
            has_colours: false,
            has_blocks: true,
            has_attributes: true,
            has_palette: true,
        };
        for role in [
            StyleRole::Critical,
            StyleRole::Selected,
            StyleRole::Cpu(CpuMode::IoWait),
            StyleRole::Faint,
            StyleRole::Heat(8),
        ] {
            let style = theme.style(role);
            assert_eq!((style.fg, style.bg), (None, None), "{role:?}");
        }
    }
}
