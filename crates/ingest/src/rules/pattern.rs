//! Patterns over names with named captures, and the templates that use the captures.

use std::fmt;
use std::str::FromStr;

use regex_lite::Regex;

/// A pattern that must match a whole name: `*`, `?`, and `{name}`, `{name:int}`, `{name:any}`.
#[derive(Debug, Clone)]
pub struct NamePattern {
    text: String,
    /// With a group for each capture.
    expression: Regex,
    captures: Vec<String>,
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
    #[error("the pattern is too long")]
    TooLong,
}

impl NamePattern {
    pub fn has_capture(&self, name: &str) -> bool {
        self.captures.iter().any(|known| known == name)
    }

    /// Returns the captures if all of `text` matches. The cost for a hostile name is bounded by its
    /// length.
    pub fn captures<'a>(&'a self, text: &'a str) -> Option<Captures<'a>> {
        let found = self.expression.captures(text)?;
        let groups = found.iter().skip(1);
        let groups = groups.map(|group| group.map_or("", |group| group.as_str()));
        Some(
            self.captures
                .iter()
                .map(String::as_str)
                .zip(groups)
                .collect(),
        )
    }
}

impl FromStr for NamePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<NamePattern, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let (mut expression, mut captures) = ("(?s)^".to_owned(), Vec::new());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '*' => expression.push_str(".*?"),
                '?' => expression.push('.'),
                '{' => {
                    let (inside, after) =
                        rest.split_once('}').ok_or(PatternError::UnclosedBrace)?;
                    rest = after;
                    let (name, group) = parse_capture(inside)?;
                    if captures.contains(&name) {
                        return Err(PatternError::DuplicateCapture(name));
                    }
                    captures.push(name);
                    expression.push_str(group);
                }
                c => expression.push_str(&regex_lite::escape(c.encode_utf8(&mut [0; 4]))),
            }
        }
        expression.push('$');
        Ok(NamePattern {
            text: text.to_owned(),
            expression: Regex::new(&expression).map_err(|_| PatternError::TooLong)?,
            captures,
        })
    }
}

/// Returns the name of a capture, and the expression for what it matches, the longest first.
fn parse_capture(inside: &str) -> Result<(String, &'static str), PatternError> {
    let (name, group) = match inside.split_once(':') {
        None => (inside, "([^.]+)"),
        Some((name, "int")) => (name, "([0-9]+)"),
        Some((name, "any")) => (name, "(.+)"),
        Some(_) => return Err(PatternError::InvalidCapture(inside.to_owned())),
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name
        .then(|| (name.to_owned(), group))
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
    /// Plain text, and the name of the capture that follows it, if any.
    pieces: Vec<(String, Option<String>)>,
}

impl CaptureTemplate {
    pub fn fill(&self, parts: &Captures<'_>) -> String {
        let mut filled = String::with_capacity(self.text.len() + 16);
        for (text, capture) in &self.pieces {
            filled.push_str(text);
            let part = parts
                .iter()
                .find(|(known, _)| Some(*known) == capture.as_deref());
            filled.push_str(part.map_or("", |(_, text)| text));
        }
        filled
    }

    /// Returns a capture that `pattern` does not have.
    pub fn unknown_capture<'a>(&'a self, pattern: &NamePattern) -> Option<&'a str> {
        let mut captures = self.pieces.iter().filter_map(|(_, name)| name.as_deref());
        captures.find(|name| !pattern.has_capture(name))
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
            let (name, _) = parse_capture(inside)?;
            pieces.push((rest[..open].to_owned(), Some(name)));
            rest = after;
        }
        pieces.push((rest.to_owned(), None));
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
