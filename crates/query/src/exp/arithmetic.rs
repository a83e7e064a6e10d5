//! Parses and evaluates arithmetic expressions such as `(a + b * 2) / c`. Length and nesting are
//! limited, so recursion is bounded.

/// A parsed expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Term {
    Number(f64),
    /// The id of a metric or of another expression.
    Variable(String),
    Negate(Box<Term>),
    Binary(ArithmeticOperator, Box<Term>, Box<Term>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArithmeticOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

const TEXT_BYTES_MAX: usize = 4 << 10;
const DEPTH_MAX: usize = 64;

impl Term {
    pub(super) fn parse(text: &str) -> Result<Term, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("it is longer than {TEXT_BYTES_MAX} bytes"));
        }
        let mut parser = TermParser {
            rest: text,
            depth: 0,
        };
        let term = parser.sum()?;
        match parser.peek() {
            None => Ok(term),
            Some(c) => Err(format!("unexpected '{c}'")),
        }
    }

    /// Returns the distinct variables in the order of their first use.
    pub(super) fn variables(&self) -> Vec<&str> {
        fn add<'a>(term: &'a Term, into: &mut Vec<&'a str>) {
            match term {
                Term::Number(_) => {}
                Term::Variable(name) => {
                    if !into.contains(&name.as_str()) {
                        into.push(name);
                    }
                }
                Term::Negate(inner) => add(inner, into),
                Term::Binary(_, left, right) => {
                    add(left, into);
                    add(right, into);
                }
            }
        }
        let mut names = Vec::new();
        add(self, &mut names);
        names
    }

    /// Evaluates the expression; `of` returns the values of the variables.
    pub(super) fn value(&self, of: &dyn Fn(&str) -> f64) -> f64 {
        match self {
            Term::Number(number) => *number,
            Term::Variable(name) => of(name),
            Term::Negate(inner) => -inner.value(of),
            Term::Binary(operator, left, right) => {
                let (left, right) = (left.value(of), right.value(of));
                match operator {
                    ArithmeticOperator::Add => left + right,
                    ArithmeticOperator::Subtract => left - right,
                    ArithmeticOperator::Multiply => left * right,
                    ArithmeticOperator::Divide => left / right,
                    ArithmeticOperator::Remainder => left % right,
                }
            }
        }
    }
}

struct TermParser<'a> {
    rest: &'a str,
    depth: usize,
}

impl TermParser<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn accept(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.rest = &self.rest[wanted.len_utf8()..];
        }
        is_there
    }

    fn sum(&mut self) -> Result<Term, String> {
        let operators = [
            ('+', ArithmeticOperator::Add),
            ('-', ArithmeticOperator::Subtract),
        ];
        self.chain(&operators, TermParser::product)
    }

    fn product(&mut self) -> Result<Term, String> {
        let operators = [
            ('*', ArithmeticOperator::Multiply),
            ('/', ArithmeticOperator::Divide),
            ('%', ArithmeticOperator::Remainder),
        ];
        self.chain(&operators, TermParser::factor)
    }

    /// Parses left-associative operators of one precedence.
    fn chain(
        &mut self,
        operators: &[(char, ArithmeticOperator)],
        part: fn(&mut Self) -> Result<Term, String>,
    ) -> Result<Term, String> {
        let mut term = part(self)?;
        // A chain builds a left-deep tree that is evaluated recursively, so its length counts as
        // depth too.
        for length in 0.. {
            let found = operators.iter().find(|(sign, _)| self.accept(*sign));
            let Some((_, operator)) = found else {
                break;
            };
            if length > DEPTH_MAX {
                return Err(format!("more than {DEPTH_MAX} operators in a row"));
            }
            term = Term::Binary(*operator, Box::new(term), Box::new(part(self)?));
        }
        Ok(term)
    }

    fn factor(&mut self) -> Result<Term, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("parentheses are nested too deeply".into());
        }
        let term = self.factor_inner();
        self.depth -= 1;
        term
    }

    fn factor_inner(&mut self) -> Result<Term, String> {
        match self.peek() {
            None => Err("unexpected end".into()),
            Some('-') => {
                self.accept('-');
                Ok(Term::Negate(Box::new(self.factor()?)))
            }
            Some('(') => {
                self.accept('(');
                let term = self.sum()?;
                if self.accept(')') {
                    Ok(term)
                } else {
                    Err("unclosed parenthesis".into())
                }
            }
            Some(c) if c.is_ascii_digit() || c == '.' => {
                let is_part = |c: char| c.is_ascii_digit() || c == '.';
                let text = self.word(is_part);
                let number = text
                    .parse()
                    .map_err(|_| format!("expected a number, found {text}"))?;
                Ok(Term::Number(number))
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                Ok(Term::Variable(self.word(is_part).to_owned()))
            }
            Some(c) => Err(format!("unexpected '{c}'")),
        }
    }

    fn word(&mut self, is_part: impl Fn(char) -> bool) -> &str {
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_parentheses() {
        let of = |name: &str| match name {
            "a" => 2.0,
            "b_1" => 3.0,
            _ => 10.0,
        };
        for (text, expected) in [
            ("a + b_1 * c", 32.0),
            ("(a + b_1) * c", 50.0),
            ("c - a - b_1", 5.0),
            ("c / a / 5", 1.0),
            ("-a + -(-b_1)", 1.0),
            ("c % b_1 * 2.5", 2.5),
            ("  .5*4 ", 2.0),
        ] {
            let term = Term::parse(text).expect(text);
            assert_eq!(term.value(&of), expected, "{text}");
        }
        let term = Term::parse("b + a * b").expect("valid");
        assert_eq!(term.variables(), ["b", "a"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "+", "a b", "a + ", "(a", "a)", "1.2.3", "a & b", "ü"] {
            assert!(Term::parse(text).is_err(), "{text}");
        }
        assert!(Term::parse(&"-".repeat(1_000)).is_err());
        assert!(Term::parse(&vec!["a"; 1_000].join("+")).is_err());
    }
}
