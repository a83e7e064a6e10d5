//! Labels as C programs write them: `phase=assembly,rank`.

use crate::error::BadText;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Labels<'a> {
    pub pairs: Vec<(&'a str, String)>,
    pub with_pid: bool,
    pub with_rank: bool,
}

pub fn parse(text: &str) -> Result<Labels<'_>, BadText> {
    let mut labels = Labels::default();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after_word) = until(rest, [',', '=']);
        let key = word.trim();
        if let Some(value) = after_word.strip_prefix('=') {
            let (value, after) = unescape(value);
            labels.pairs.push((key, value));
            rest = after;
        } else {
            match key {
                "pid" => labels.with_pid = true,
                "rank" => labels.with_rank = true,
                _ => return Err(BadText::Label),
            }
            rest = after_word;
        }
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Ok(labels)
}

fn until(text: &str, ends: [char; 2]) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// A value up to the next comma that no backslash stands before.
fn unescape(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            ',' => return (value, &text[at..]),
            '\\' => value.push(chars.next().map_or('\\', |(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    (value, "")
}
