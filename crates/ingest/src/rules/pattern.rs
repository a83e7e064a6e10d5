//! Patterns over names with named captures, and the templates that use the captures.

use std::fmt;
use std::str::FromStr;

/// A pattern that must match a whole name: `*`, `?`, and `{name}`, `{name:int}`, `{name:any}`.
#[derive(Debug, Clone)]
pub struct NamePattern {
    text: String,
    pieces: Vec<PatternPiece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternPiece {
    Text(String),
    /// `?`
    AnyChar,
    /// `*`: any characters, possibly none.
    AnyText,
    Capture(String, CaptureKind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CaptureKind {
    /// Up to the next dot.
    Word,
    /// Digits.
    Int,
    /// At least one character of any kind.
    Any,
}

/// The text that each capture of a pattern matched.
pub type Captures<'a> = Vec<(&'a str, &'a str)>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("unclosed {{")]
    UnclosedBrace,
    #[error("{{{0}}} is not a capture: expected a name, optionally followed by :int or :any")]
    InvalidCapture(String),
    #[error("duplicate capture {{{0}}}")]
    DuplicateCapture(String),
    #[error("the pattern is empty")]
    Empty,
}

impl NamePattern {
    pub fn has_capture(&self, name: &str) -> bool {
        let is_it =
            |piece: &PatternPiece| matches!(piece, PatternPiece::Capture(part, _) if part == name);
        self.pieces.iter().any(is_it)
    }

    /// Returns the captures if all of `text` matches. Each piece is tried at each offset at most once, so
    /// that the cost for a hostile name is bounded by its length.
    pub fn captures<'a>(&'a self, text: &'a str) -> Option<Captures<'a>> {
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
        parts: &mut Captures<'a>,
    ) -> bool {
        let Some(this) = self.pieces.get(piece) else {
            return at == text.len();
        };
        let memo = piece * (text.len() + 1) + at;
        if failed[memo] {
            return false;
        }
        let rest = &text[at..];
        for length in this.candidate_lengths(rest) {
            if self.matches(piece + 1, text, at + length, failed, parts) {
                if let PatternPiece::Capture(name, _) = this {
                    parts.push((name, &rest[..length]));
                }
                return true;
            }
        }
        failed[memo] = true;
        false
    }
}

impl PatternPiece {
    /// Returns how many bytes at the beginning of `rest` this piece can match, in the order of trying.
    fn candidate_lengths<'a>(&'a self, rest: &'a str) -> Box<dyn Iterator<Item = usize> + 'a> {
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
            PatternPiece::Text(text) => {
                Box::new(rest.starts_with(text).then_some(text.len()).into_iter())
            }
            PatternPiece::AnyChar => Box::new(ends.take(1).map(|(end, _)| end)),
            PatternPiece::AnyText => Box::new(std::iter::once(0).chain(ends.map(|(end, _)| end))),
            PatternPiece::Capture(_, CaptureKind::Word) => Box::new(longest_first(|c| c != '.')),
            PatternPiece::Capture(_, CaptureKind::Int) => {
                Box::new(longest_first(|c| c.is_ascii_digit()))
            }
            PatternPiece::Capture(_, CaptureKind::Any) => Box::new(longest_first(|_| true)),
        }
    }
}

impl FromStr for NamePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<NamePattern, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let mut pieces: Vec<PatternPiece> = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '*' => pieces.push(PatternPiece::AnyText),
                '?' => pieces.push(PatternPiece::AnyChar),
                '{' => {
                    let (inside, after) =
                        rest.split_once('}').ok_or(PatternError::UnclosedBrace)?;
                    rest = after;
                    let part = parse_capture(inside)?;
                    if let PatternPiece::Capture(name, _) = &part
                        && pieces
                            .iter()
                            .any(|known| matches!(known, PatternPiece::Capture(other, _) if other == name))
                    {
                        return Err(PatternError::DuplicateCapture(name.clone()));
                    }
                    pieces.push(part);
                }
                c => match pieces.last_mut() {
                    Some(PatternPiece::Text(text)) => text.push(c),
                    _ => pieces.push(PatternPiece::Text(c.to_string())),
                },
            }
        }
        Ok(NamePattern {
            text: text.to_owned(),
            pieces,
        })
    }
}

fn parse_capture(inside: &str) -> Result<PatternPiece, PatternError> {
    let (name, kind) = match inside.split_once(':') {
        None => (inside, CaptureKind::Word),
        Some((name, "int")) => (name, CaptureKind::Int),
        Some((name, "any")) => (name, CaptureKind::Any),
        Some(_) => return Err(PatternError::InvalidCapture(inside.to_owned())),
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name
        .then(|| PatternPiece::Capture(name.to_owned(), kind))
        .ok_or_else(|| PatternError::InvalidCapture(inside.to_owned()))
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Text with captures of a pattern: `flux.{rest}`.
#[derive(Debug, Clone)]
pub struct CaptureTemplate {
    text: String,
    pieces: Vec<PatternPiece>,
}

impl CaptureTemplate {
    pub fn fill(&self, parts: &Captures<'_>) -> String {
        let mut filled = String::with_capacity(self.text.len() + 16);
        for piece in &self.pieces {
            match piece {
                PatternPiece::Capture(name, _) => {
                    let part = parts.iter().find(|(known, _)| known == name);
                    filled.push_str(part.map_or("", |(_, text)| text));
                }
                PatternPiece::Text(text) => filled.push_str(text),
                PatternPiece::AnyChar | PatternPiece::AnyText => {}
            }
        }
        filled
    }

    /// Returns a capture that `pattern` does not have.
    pub fn unknown_capture<'a>(&'a self, pattern: &NamePattern) -> Option<&'a str> {
        self.pieces.iter().find_map(|piece| match piece {
            PatternPiece::Capture(name, _) if !pattern.has_capture(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

impl FromStr for CaptureTemplate {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<CaptureTemplate, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let (inside, after) = rest[open + 1..]
                .split_once('}')
                .ok_or(PatternError::UnclosedBrace)?;
            pieces.push(PatternPiece::Text(rest[..open].to_owned()));
            pieces.push(parse_capture(inside)?);
            rest = after;
        }
        pieces.push(PatternPiece::Text(rest.to_owned()));
        Ok(CaptureTemplate {
            text: text.to_owned(),
            pieces,
        })
    }
}

impl fmt::Display for CaptureTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

pegel_config::text_setting!(
    NamePattern,
    "a name pattern with *, ? and captures in braces, such as flux.{rank:int}.{rest:any}"
);
pegel_config::text_setting!(
    CaptureTemplate,
    "text with captures of the pattern, such as flux.{rest}"
);

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(pattern: &str, text: &str) -> Option<String> {
        let pattern: NamePattern = pattern.parse().expect("a pattern");
        let parts = pattern.captures(text)?;
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
        assert_eq!(
            parts(flux, "flux.kvs.12."),
            None,
            "a capture is never empty"
        );
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
        let error = |text: &str| text.parse::<NamePattern>().expect_err("wrong").to_string();
        assert_eq!(error("a{b"), "unclosed {");
        assert_eq!(
            error("a{}"),
            "{} is not a capture: expected a name, optionally followed by :int or :any"
        );
        assert_eq!(
            error("{a:float}"),
            "{a:float} is not a capture: expected a name, optionally followed by :int or :any"
        );
        assert_eq!(error("{a}.{a}"), "duplicate capture {a}");
        assert_eq!(error(""), "the pattern is empty");
    }

    #[test]
    fn a_template_is_filled() {
        let template: CaptureTemplate = "x.{b}.{a}.{b}".parse().expect("a template");
        assert_eq!(template.fill(&vec![("a", "1"), ("b", "2")]), "x.2.1.2");
        let pattern: NamePattern = "{a}".parse().expect("a pattern");
        assert_eq!(template.unknown_capture(&pattern), Some("b"));
    }
}
