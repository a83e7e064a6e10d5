//! Splits a template into text and the tokens of its actions.

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    /// The tokens between `{{` and `}}`.
    Action(Vec<ActionToken>),
}

/// A token of an action.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ActionToken {
    /// A keyword or the name of a function.
    Word(String),
    /// `$name`; only `$` is empty.
    Variable(String),
    /// `.name`, directly after the previous token if `attached`.
    Field {
        name: String,
        attached: bool,
    },
    Dot,
    Text(String),
    Int(i64),
    Float(f64),
    Pipe,
    Comma,
    Declare,
    Assign,
    Open,
    Close,
}

/// Splits a template. Errors describe what is wrong; the caller adds where.
pub(crate) fn split(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut trim_next = false;
    loop {
        let open = rest.find("{{");
        let (before, after) = match open {
            Some(at) => (&rest[..at], Some(&rest[at + 2..])),
            None => (rest, None),
        };
        let after = after.map(|after| match after.strip_prefix('-') {
            Some(trimmed) if trimmed.starts_with(is_space) => (trimmed, true),
            _ => (after, false),
        });
        let mut literal = before;
        if trim_next {
            literal = literal.trim_start_matches(is_space);
        }
        if matches!(after, Some((_, true))) {
            literal = literal.trim_end_matches(is_space);
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal.to_owned()));
        }
        let Some((action, _)) = after else {
            return Ok(pieces);
        };
        let end = if let Some(comment) = action.trim_start_matches(is_space).strip_prefix("/*") {
            let closed = comment.find("*/").ok_or("unclosed comment")?;
            let comment_end = action.len() - comment.len() + closed + 2;
            let tail = action[comment_end..].trim_start_matches(is_space);
            let tail_start = action.len() - tail.len();
            let (length, trims) = closing(tail).ok_or("comment ends before closing delimiter")?;
            trim_next = trims;
            tail_start + length
        } else {
            let mut lexer = ActionLexer { rest: action };
            let (tokens, trims) = lexer.tokens()?;
            pieces.push(Piece::Action(tokens));
            trim_next = trims;
            action.len() - lexer.rest.len()
        };
        rest = &action[end..];
    }
}

/// Returns the length of the closing delimiter and whether it trims the text that follows.
fn closing(text: &str) -> Option<(usize, bool)> {
    if text.starts_with("}}") {
        Some((2, false))
    } else if text.starts_with("-}}") {
        Some((3, true))
    } else {
        None
    }
}

fn is_space(next: char) -> bool {
    matches!(next, ' ' | '\t' | '\r' | '\n')
}

fn is_name(next: char) -> bool {
    next.is_alphanumeric() || next == '_'
}

struct ActionLexer<'a> {
    rest: &'a str,
}

impl ActionLexer<'_> {
    /// Reads up to and including the closing delimiter.
    fn tokens(&mut self) -> Result<(Vec<ActionToken>, bool), String> {
        let mut tokens = Vec::new();
        loop {
            let trimmed = self.rest.trim_start_matches(is_space);
            let had_space = trimmed.len() < self.rest.len();
            self.rest = trimmed;
            let is_close = closing(self.rest).filter(|(_, trims)| !trims || had_space);
            if let Some((length, trims)) = is_close {
                self.rest = &self.rest[length..];
                return Ok((tokens, trims));
            }
            let is_attached = !had_space
                && matches!(
                    tokens.last(),
                    Some(ActionToken::Variable(_) | ActionToken::Field { .. } | ActionToken::Close)
                );
            let token = self.token(is_attached)?;
            tokens.push(token);
        }
    }

    fn token(&mut self, attached: bool) -> Result<ActionToken, String> {
        let Some(first) = self.rest.chars().next() else {
            return Err("unclosed action".to_owned());
        };
        match first {
            '|' => Ok(self.symbol(1, ActionToken::Pipe)),
            ',' => Ok(self.symbol(1, ActionToken::Comma)),
            '(' => Ok(self.symbol(1, ActionToken::Open)),
            ')' => Ok(self.symbol(1, ActionToken::Close)),
            ':' if self.rest.starts_with(":=") => Ok(self.symbol(2, ActionToken::Declare)),
            '=' => Ok(self.symbol(1, ActionToken::Assign)),
            '"' => self.quoted(),
            '`' => self.raw(),
            '\'' => self.character(),
            '$' => {
                self.rest = &self.rest[1..];
                Ok(ActionToken::Variable(self.name()))
            }
            '.' if self.rest[1..].starts_with(|next: char| next.is_ascii_digit()) => self.number(),
            '.' => {
                self.rest = &self.rest[1..];
                match self.name() {
                    name if name.is_empty() => Ok(ActionToken::Dot),
                    name => Ok(ActionToken::Field { name, attached }),
                }
            }
            digit if digit.is_ascii_digit() => self.number(),
            '+' | '-' if self.rest[1..].starts_with(|next: char| next.is_ascii_digit()) => {
                self.number()
            }
            letter if is_name(letter) => Ok(ActionToken::Word(self.name())),
            other => Err(format!("unexpected {other:?} in an action")),
        }
    }

    fn symbol(&mut self, length: usize, token: ActionToken) -> ActionToken {
        self.rest = &self.rest[length..];
        token
    }

    fn name(&mut self) -> String {
        let end = self.rest.find(|next| !is_name(next));
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        name.to_owned()
    }

    fn number(&mut self) -> Result<ActionToken, String> {
        let is_part = |at: usize, next: char| {
            let after_exponent = self.rest[..at].ends_with(['e', 'E', 'p', 'P']);
            let is_hex = self.rest.trim_start_matches(['+', '-']).starts_with("0x");
            is_name(next)
                || next == '.'
                || (matches!(next, '+' | '-') && (at == 0 || (after_exponent && !is_hex)))
        };
        let end = self
            .rest
            .char_indices()
            .find(|(at, next)| !is_part(*at, *next))
            .map_or(self.rest.len(), |(at, _)| at);
        let (text, rest) = self.rest.split_at(end);
        let malformed = || format!("bad number syntax: {text:?}");
        let plain = text.replace('_', "");
        let (sign, digits) = match plain.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, plain.strip_prefix('+').unwrap_or(&plain)),
        };
        let radix = |prefix: &str, radix| {
            let digits = digits.to_ascii_lowercase();
            let digits = digits.strip_prefix(prefix)?;
            Some(i64::from_str_radix(digits, radix))
        };
        let whole = radix("0x", 16)
            .or_else(|| radix("0o", 8))
            .or_else(|| radix("0b", 2));
        let token = match whole {
            Some(number) => ActionToken::Int(sign * number.map_err(|_| malformed())?),
            None => match digits.parse::<i64>() {
                Ok(number) => ActionToken::Int(sign * number),
                Err(_) => ActionToken::Float(plain.parse().map_err(|_| malformed())?),
            },
        };
        self.rest = rest;
        Ok(token)
    }

    fn raw(&mut self) -> Result<ActionToken, String> {
        let end = self.rest[1..]
            .find('`')
            .ok_or("unterminated raw quoted string")?;
        let text = self.rest[1..=end].replace('\r', "");
        self.rest = &self.rest[end + 2..];
        Ok(ActionToken::Text(text))
    }

    fn quoted(&mut self) -> Result<ActionToken, String> {
        let text = self.until_quote('"')?;
        Ok(ActionToken::Text(text))
    }

    fn character(&mut self) -> Result<ActionToken, String> {
        let text = self.until_quote('\'')?;
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(only), None) => Ok(ActionToken::Int(i64::from(u32::from(only)))),
            _ => Err("malformed character constant".to_owned()),
        }
    }

    /// Reads a quoted text with Go's escapes; the cursor is at the opening quote.
    fn until_quote(&mut self, quote: char) -> Result<String, String> {
        let unterminated = || "unterminated quoted string".to_owned();
        let mut text = String::new();
        let mut chars = self.rest[1..].char_indices();
        while let Some((at, next)) = chars.next() {
            if next == quote {
                self.rest = &self.rest[at + 2..];
                return Ok(text);
            }
            if next == '\n' {
                return Err(unterminated());
            }
            if next != '\\' {
                text.push(next);
                continue;
            }
            let (_, escape) = chars.next().ok_or_else(unterminated)?;
            let mut code = |digits: usize| {
                let code: String = chars.by_ref().take(digits).map(|(_, next)| next).collect();
                let code = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                code.ok_or_else(|| "invalid escape in a quoted string".to_owned())
            };
            text.push(match escape {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                '\\' | '"' | '\'' => escape,
                'x' => code(2)?,
                'u' => code(4)?,
                'U' => code(8)?,
                other => return Err(format!("invalid escape \\{other} in a quoted string")),
            });
        }
        Err(unterminated())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_actions_are_split_and_trimmed() {
        let text = |text: &str| Piece::Text(text.to_owned());
        let word = |name: &str| Piece::Action(vec![ActionToken::Word(name.to_owned())]);
        assert_eq!(
            split("a {{- x -}} b{{/* no }} */}}c {{- /* y */ -}} d"),
            Ok(vec![text("a"), word("x"), text("b"), text("c"), text("d")])
        );
        assert_eq!(split("a } {b} "), Ok(vec![text("a } {b} ")]));
        for wrong in [
            "{{",
            "{{ x",
            "{{ \"a }}",
            "{{ `a }}",
            "{{ /* a }}",
            "{{ & }}",
            "{{ 1z }}",
        ] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tokens_of_an_action() {
        let pieces = split(r#"{{ $a.b .c | printf "%\"\n" 1 -2.5 0x1f 'a' (.) `\n` }}"#);
        let Ok([Piece::Action(tokens)]) = pieces.as_deref() else {
            panic!("{pieces:?}");
        };
        let field = |name: &str, attached| ActionToken::Field {
            name: name.to_owned(),
            attached,
        };
        assert_eq!(
            tokens[..],
            [
                ActionToken::Variable("a".into()),
                field("b", true),
                field("c", false),
                ActionToken::Pipe,
                ActionToken::Word("printf".into()),
                ActionToken::Text("%\"\n".into()),
                ActionToken::Int(1),
                ActionToken::Float(-2.5),
                ActionToken::Int(31),
                ActionToken::Int(97),
                ActionToken::Open,
                ActionToken::Dot,
                ActionToken::Close,
                ActionToken::Text("\\n".into()),
            ]
        );
    }
}
