//! Patterns over names, with parts that are given names of their own, and the templates that use them.

use std::fmt;
use std::str::FromStr;

/// A pattern that must match a whole name: `*`, `?`, and `{part}`, `{part:int}`, `{part:any}`.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `?`
    One,
    /// `*`: any characters, also none.
    Any,
    Part(String, PartKind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartKind {
    /// Up to the next dot.
    Word,
    /// Digits.
    Int,
    /// At least one character of any kind.
    Any,
}

/// What the parts of a pattern stood for.
pub type Parts<'a> = Vec<(&'a str, &'a str)>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("a {{ without its }}")]
    Open,
    #[error("{{{0}}} is not a part: a name, then :int or :any")]
    Part(String),
    #[error("the part {{{0}}} stands there twice")]
    Twice(String),
    #[error("the pattern is empty")]
    Empty,
}

impl Pattern {
    pub fn has_part(&self, name: &str) -> bool {
        let is_it = |piece: &Piece| matches!(piece, Piece::Part(part, _) if part == name);
        self.pieces.iter().any(is_it)
    }

    /// The named parts if the whole of `text` matches. Each piece is tried at each offset at most once, so
    /// that a hostile name costs no more than its length says.
    pub fn parts<'a>(&'a self, text: &'a str) -> Option<Parts<'a>> {
        let mut failed = vec![false; (self.pieces.len() + 1) * (text.len() + 1)];
        let mut parts = Vec::new();
        self.matches(0, text, 0, &mut failed, &mut parts).then(|| {
            parts.reverse();
            parts
        })
    }

    fn matches<'a>(
        &'a self,
        piece: usize,
        text: &'a str,
        at: usize,
        failed: &mut [bool],
        parts: &mut Parts<'a>,
    ) -> bool {
        let Some(this) = self.pieces.get(piece) else {
            return at == text.len();
        };
        let memo = piece * (text.len() + 1) + at;
        if failed[memo] {
            return false;
        }
        let rest = &text[at..];
        for length in this.lengths(rest) {
            if self.matches(piece + 1, text, at + length, failed, parts) {
                if let Piece::Part(name, _) = this {
                    parts.push((name, &rest[..length]));
                }
                return true;
            }
        }
        failed[memo] = true;
        false
    }
}

impl Piece {
    /// How many bytes at the beginning of `rest` this piece can take, in the order of trying.
    fn lengths<'a>(&'a self, rest: &'a str) -> Box<dyn Iterator<Item = usize> + 'a> {
        let ends = rest.char_indices().map(|(at, c)| (at + c.len_utf8(), c));
        let longest_first = |fits: fn(char) -> bool| {
            let ends: Vec<usize> = ends
                .clone()
                .take_while(|(_, c)| fits(*c))
                .map(|(end, _)| end)
                .collect();
            ends.into_iter().rev()
        };
        match self {
            Piece::Text(text) => Box::new(rest.starts_with(text).then_some(text.len()).into_iter()),
            Piece::One => Box::new(ends.take(1).map(|(end, _)| end)),
            Piece::Any => Box::new(std::iter::once(0).chain(ends.map(|(end, _)| end))),
            Piece::Part(_, PartKind::Word) => Box::new(longest_first(|c| c != '.')),
            Piece::Part(_, PartKind::Int) => Box::new(longest_first(|c| c.is_ascii_digit())),
            Piece::Part(_, PartKind::Any) => Box::new(longest_first(|_| true)),
        }
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Pattern, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let mut pieces: Vec<Piece> = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '*' => pieces.push(Piece::Any),
                '?' => pieces.push(Piece::One),
                '{' => {
                    let (inside, after) = rest.split_once('}').ok_or(PatternError::Open)?;
                    rest = after;
                    let part = part(inside)?;
                    if let Piece::Part(name, _) = &part
                        && pieces
                            .iter()
                            .any(|known| matches!(known, Piece::Part(other, _) if other == name))
                    {
                        return Err(PatternError::Twice(name.clone()));
                    }
                    pieces.push(part);
                }
                c => match pieces.last_mut() {
                    Some(Piece::Text(text)) => text.push(c),
                    _ => pieces.push(Piece::Text(c.to_string())),
                },
            }
        }
        Ok(Pattern {
            text: text.to_owned(),
            pieces,
        })
    }
}

fn part(inside: &str) -> Result<Piece, PatternError> {
    let (name, kind) = match inside.split_once(':') {
        None => (inside, PartKind::Word),
        Some((name, "int")) => (name, PartKind::Int),
        Some((name, "any")) => (name, PartKind::Any),
        Some(_) => return Err(PatternError::Part(inside.to_owned())),
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name
        .then(|| Piece::Part(name.to_owned(), kind))
        .ok_or_else(|| PatternError::Part(inside.to_owned()))
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Text with parts of a pattern in it: `flux.{rest}`.
#[derive(Debug, Clone)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
}

impl Template {
    pub fn fill(&self, parts: &Parts<'_>) -> String {
        let mut filled = String::with_capacity(self.text.len() + 16);
        for piece in &self.pieces {
            match piece {
                Piece::Part(name, _) => {
                    let part = parts.iter().find(|(known, _)| known == name);
                    filled.push_str(part.map_or("", |(_, text)| text));
                }
                Piece::Text(text) => filled.push_str(text),
                Piece::One | Piece::Any => {}
            }
        }
        filled
    }

    /// A part that `pattern` does not have.
    pub fn unknown_part<'a>(&'a self, pattern: &Pattern) -> Option<&'a str> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Part(name, _) if !pattern.has_part(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

impl FromStr for Template {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Template, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let (inside, after) = rest[open + 1..].split_once('}').ok_or(PatternError::Open)?;
            pieces.push(Piece::Text(rest[..open].to_owned()));
            pieces.push(part(inside)?);
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Template {
            text: text.to_owned(),
            pieces,
        })
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

pegel_config::text_setting!(
    Pattern,
    "a pattern over names: *, ? and parts in braces, such as flux.{rank:int}.{rest:any}"
);
pegel_config::text_setting!(
    Template,
    "text with parts of the pattern, such as flux.{rest}"
);

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(pattern: &str, text: &str) -> Option<String> {
        let pattern: Pattern = pattern.parse().expect("a pattern");
        let parts = pattern.parts(text)?;
        let parts: Vec<String> = parts
            .iter()
            .map(|(name, text)| format!("{name}={text}"))
            .collect();
        Some(parts.join(" "))
    }

    #[test]
    fn parts_are_words_numbers_or_anything() {
        let flux = "flux.{module}.{rank:int}.{rest:any}";
        assert_eq!(
            parts(flux, "flux.kvs.12.cache.size").as_deref(),
            Some("module=kvs rank=12 rest=cache.size")
        );
        assert_eq!(parts(flux, "flux.0.content-cache.size"), None);
        assert_eq!(parts(flux, "flux.kvs.12."), None, "a part is never empty");
        assert_eq!(
            parts("flux.{rank:int}.{rest:any}", "flux.0.content-cache.size").as_deref(),
            Some("rank=0 rest=content-cache.size")
        );
        assert_eq!(parts("{a}-{b}", "x-y-z").as_deref(), Some("a=x-y b=z"));
        assert_eq!(parts("*.{last}", "a.b.c").as_deref(), Some("last=c"));
        assert_eq!(parts("a?c*", "aäc").as_deref(), Some(""));
        assert_eq!(parts("a?c", "ac"), None);
    }

    #[test]
    fn a_hostile_name_ends() {
        let pattern = "*a*a*a*a*a*a*a*a*a*a{x:any}b";
        assert_eq!(parts(pattern, &"a".repeat(1000)), None);
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| text.parse::<Pattern>().expect_err("wrong").to_string();
        assert_eq!(error("a{b"), "a { without its }");
        assert_eq!(error("a{}"), "{} is not a part: a name, then :int or :any");
        assert_eq!(
            error("{a:float}"),
            "{a:float} is not a part: a name, then :int or :any"
        );
        assert_eq!(error("{a}.{a}"), "the part {a} stands there twice");
        assert_eq!(error(""), "the pattern is empty");
    }

    #[test]
    fn a_template_is_filled() {
        let template: Template = "x.{b}.{a}.{b}".parse().expect("a template");
        assert_eq!(template.fill(&vec![("a", "1"), ("b", "2")]), "x.2.1.2");
        let pattern: Pattern = "{a}".parse().expect("a pattern");
        assert_eq!(template.unknown_part(&pattern), Some("b"));
    }
}
