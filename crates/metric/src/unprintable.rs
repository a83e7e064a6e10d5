//! Characters that must not reach terminals: control characters, and characters that are invisible
//! or change the order of the text around them, so that one name looks like another.

use std::borrow::Cow;

/// Whether a character is a control character, invisible, or changes the direction of text.
/// Newlines are not among them: every output escapes them.
pub fn is_unprintable(c: char) -> bool {
    let is_invisible = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    is_invisible || (c.is_control() && c != '\n')
}

/// Escapes unprintable characters, as `\u{1b}`.
pub fn escape_unprintable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unprintable(c) {
            escaped.extend(c.escape_unicode());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Returns text of a peer as one line that cannot control a terminal.
pub fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    escape_unprintable(&words.join(" ")).into_owned()
}

/// Escapes unprintable characters in the values of labels.
pub(crate) fn escape_values<'a>(labels: &[(&'a str, &'a str)]) -> Vec<(&'a str, Cow<'a, str>)> {
    labels
        .iter()
        .map(|&(key, value)| (key, escape_unprintable(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_unprintable() {
        for c in "\u{1b}\u{7f}\u{9b}\r\t\u{200b}\u{202e}\u{2028}\u{2060}\u{feff}\u{e0041}".chars() {
            assert!(is_unprintable(c), "{}", c.escape_unicode());
        }
        for c in "a\n /ü日\u{1f600}\u{a0}".chars() {
            assert!(!is_unprintable(c), "{}", c.escape_unicode());
        }
    }

    #[test]
    fn values_are_escaped_only_where_they_must_be() {
        let labels = escape_values(&[("comm", "\x1b[31mred"), ("user", "ann")]);
        assert_eq!(labels[0], ("comm", Cow::Borrowed("\\u{1b}[31mred")));
        assert!(matches!(labels[1].1, Cow::Borrowed("ann")));
    }
}
