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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalTheme {
    pub has_colours: bool,
    pub has_blocks: bool,
    /// Bold and reverse video.
    pub has_attributes: bool,
}

impl TerminalTheme {
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
        TerminalTheme {
            has_colours: !is_plain && set("NO_COLOR").is_none(),
            // The font of the Linux console lacks most block characters.
            has_blocks: is_utf8 && !is_old && term != "linux",
            has_attributes: term != "dumb" && term != "vt52",
        }
    }

    pub(crate) fn style(self, role: StyleRole) -> Style {
        if self.has_colours {
            return coloured(role);
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

    /// Returns a full cell of a bar. CPU modes differ in shape as well as in colour.
    pub(crate) fn cell(self, role: StyleRole) -> &'static str {
        let (block, letter) = match role {
            StyleRole::Cpu(CpuMode::User) => ("█", "#"),
            StyleRole::Cpu(CpuMode::System) => ("▓", "="),
            StyleRole::Cpu(CpuMode::Irq) => ("▒", "%"),
            StyleRole::Cpu(CpuMode::Steal) => ("▒", "$"),
            StyleRole::Cpu(CpuMode::IoWait) => ("░", "~"),
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
        StyleRole::Cpu(CpuMode::IoWait) => plain.fg(Color::Blue),
    }
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
    fn without_colours_no_style_has_one() {
        let theme = TerminalTheme {
            has_colours: false,
            has_blocks: true,
            has_attributes: true,
        };
        for role in [
            StyleRole::Critical,
            StyleRole::Selected,
            StyleRole::Cpu(CpuMode::IoWait),
            StyleRole::Faint,
        ] {
            let style = theme.style(role);
            assert_eq!((style.fg, style.bg), (None, None), "{role:?}");
        }
    }
}
