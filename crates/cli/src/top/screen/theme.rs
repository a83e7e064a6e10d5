//! Capabilities of the terminal: colours or none, block characters or plain ASCII.

use ratatui::style::{Color, Modifier, Style};

use crate::top::model::CpuMode;

/// The meaning of an element on the screen; the theme maps it to a style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StyleRole {
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
pub struct TerminalTheme {
    pub has_colours: bool,
    pub has_blocks: bool,
    /// Bold and reverse video.
    pub has_attributes: bool,
}

impl TerminalTheme {
    /// Detects the capabilities from environment variables, with the precedence of `setlocale`.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> TerminalTheme {
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

    pub fn style(self, role: StyleRole) -> Style {
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

    /// Returns the colour role of a usage.
    pub fn usage_role(share: f64) -> StyleRole {
        match share {
            s if s >= 0.9 => StyleRole::Critical,
            s if s >= 0.6 => StyleRole::Warning,
            _ => StyleRole::Good,
        }
    }

    /// Returns a full cell of a bar. CPU modes differ in shape as well as in colour.
    pub fn cell(self, role: StyleRole) -> &'static str {
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

    /// Returns the column of a sparkline, for a fraction of its height.
    pub fn column(self, share: f64) -> &'static str {
        const BLOCKS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
        const LETTERS: [&str; 8] = ["_", ".", ":", "-", "=", "+", "*", "#"];
        let index = ((share.clamp(0.0, 1.0) * 8.0) as usize).min(7);
        if self.has_blocks {
            BLOCKS[index]
        } else {
            LETTERS[index]
        }
    }

    /// Returns a cell of a bar that is filled from the left, in eighths.
    pub fn eighth(self, eighths: usize) -> &'static str {
        const BLOCKS: [&str; 8] = ["·", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        match eighths {
            8.. if self.has_blocks => "█",
            8.. => "#",
            eighths if self.has_blocks => BLOCKS[eighths],
            5.. => "-",
            _ => ".",
        }
    }

    pub fn rule(self) -> &'static str {
        if self.has_blocks { "─" } else { "-" }
    }

    pub fn dash(self) -> &'static str {
        if self.has_blocks { "–" } else { "-" }
    }

    pub fn ellipsis(self) -> &'static str {
        if self.has_blocks { "…" } else { "~" }
    }
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
