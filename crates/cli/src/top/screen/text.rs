//! Prepares texts for the screen: replaces characters that could harm it, and shortens to a width.

use ratatui::text::Span;

use super::theme::TerminalTheme;

/// Returns the number of columns that a text occupies.
pub(crate) fn text_width(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// Replaces control and invisible characters. Names, labels and help texts come from untrusted
/// programs: control characters could inject terminal commands, and others reverse the direction of
/// text.
pub(crate) fn sanitize(text: &str, is_unicode: bool) -> String {
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
pub(crate) fn shorten(text: &str, room: u16, tail: u16, ellipsis: &str) -> String {
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

/// Shortens a series to `room` columns: keeps the end of the name, which is most specific, and a
/// part of the labels.
pub(crate) fn shorten_series(text: &str, room: u16, theme: TerminalTheme) -> String {
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

    #[test]
    fn control_characters_are_replaced() {
        let nasty = "a\u{1b}[2J\u{7}\r\n\u{9b}31m\u{202e}b\u{200b}";
        assert_eq!(sanitize(nasty, true), "a�[2J����31m�b�");
        assert_eq!(sanitize("µ ü\u{1b}", false), "u ??");
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
        let theme = TerminalTheme::WITHOUT_COLOURS;
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
}
