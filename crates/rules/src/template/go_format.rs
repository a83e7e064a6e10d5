//! Formats numbers and `printf` as Go's `fmt` does, since templates of rules rely on it.

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

use super::value::TemplateValue;

/// Formats as `%g` with a number of significant digits; `None` is the shortest text that parses
/// back (`%v`).
pub(crate) fn format_g(value: f64, digits: Option<usize>) -> String {
    if let Some(text) = not_finite(value) {
        return text.to_owned();
    }
    let digits = digits.map(|digits| digits.max(1));
    let text = match digits {
        Some(digits) => format!("{value:.*e}", digits - 1),
        None => format!("{value:e}"),
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let limit = match digits {
        Some(digits) => i32::try_from(digits).unwrap_or(i32::MAX),
        // The shortest form switches to an exponent as if it had six digits.
        None => 6,
    };
    if exponent < -4 || exponent >= limit {
        let mantissa = match digits {
            Some(_) => trim_zeros(mantissa),
            None => mantissa,
        };
        return with_exponent(mantissa, exponent);
    }
    match digits {
        None => format!("{value}"),
        Some(digits) => {
            let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
            trim_zeros(&format!("{value:.decimals$}")).to_owned()
        }
    }
}

/// Formats as `%e`.
fn format_e(value: f64, decimals: usize) -> String {
    if let Some(text) = not_finite(value) {
        return text.to_owned();
    }
    let text = format!("{value:.decimals$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    with_exponent(mantissa, exponent.parse().unwrap_or(0))
}

/// Formats as `strconv.FormatFloat(value, 'e', -1, 64)`: the values of alerts in the API.
pub(crate) fn format_shortest_e(value: f64) -> String {
    if let Some(text) = not_finite(value) {
        return text.to_owned();
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    with_exponent(mantissa, exponent.parse().unwrap_or(0))
}

fn with_exponent(mantissa: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

fn not_finite(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value.is_infinite() {
        Some(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        None
    }
}

fn trim_zeros(text: &str) -> &str {
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.')
}

/// One conversion of a format: `%-08.3f`.
#[derive(Debug, Default)]
struct Conversion {
    minus: bool,
    plus: bool,
    space: bool,
    zero: bool,
    sharp: bool,
    width: usize,
    precision: Option<usize>,
}

/// The largest width and precision: a template must not ask for megabytes of spaces.
const WIDTH_MAX: usize = 1_000;

/// Formats as `fmt.Sprintf`, including its notes on wrong arguments.
pub(crate) fn sprintf(format: &str, arguments: &[TemplateValue]) -> String {
    let mut out = String::new();
    let mut next = arguments.iter();
    let mut chars = format.chars().peekable();
    while let Some(current) = chars.next() {
        if current != '%' {
            out.push(current);
            continue;
        }
        let mut conversion = Conversion::default();
        while let Some(flag) = chars.peek() {
            match flag {
                '-' => conversion.minus = true,
                '+' => conversion.plus = true,
                ' ' => conversion.space = true,
                '0' => conversion.zero = true,
                '#' => conversion.sharp = true,
                _ => break,
            }
            chars.next();
        }
        conversion.width = read_number(&mut chars);
        if chars.next_if_eq(&'.').is_some() {
            conversion.precision = Some(read_number(&mut chars));
        }
        match chars.next() {
            None => out.push_str("%!(NOVERB)"),
            Some('%') => out.push('%'),
            Some(verb) => match next.next() {
                None => {
                    let _ = write!(out, "%!{verb}(MISSING)");
                }
                Some(argument) => out.push_str(&conversion.apply(verb, argument)),
            },
        }
    }
    let extra: Vec<String> = next
        .map(|argument| format!("{}={}", argument.go_type(), argument.display()))
        .collect();
    if !extra.is_empty() {
        let _ = write!(out, "%!(EXTRA {})", extra.join(", "));
    }
    out
}

/// Reads a decimal number; 0 if there is none.
fn read_number(chars: &mut Peekable<Chars<'_>>) -> usize {
    let mut number = 0;
    while let Some(digit) = chars.peek().and_then(|next| next.to_digit(10)) {
        number = (number * 10 + digit as usize).min(WIDTH_MAX);
        chars.next();
    }
    number
}

impl Conversion {
    fn apply(&self, verb: char, argument: &TemplateValue) -> String {
        let wrong = || format!("%!{verb}({}={})", argument.go_type(), argument.display());
        match (verb, argument) {
            ('v', TemplateValue::Float(value)) => self.number(&format_g(*value, self.precision)),
            ('v', TemplateValue::Int(value)) => self.number(&value.to_string()),
            ('v', other) => self.text(&other.display()),
            ('s', TemplateValue::Text(text)) => self.text(text),
            ('q', TemplateValue::Text(text)) => self.text(&format!("{text:?}")),
            ('t', TemplateValue::Bool(value)) => self.text(&value.to_string()),
            ('d', TemplateValue::Int(value)) => self.number(&value.to_string()),
            ('x', TemplateValue::Int(value)) => self.number(&format!("{value:x}")),
            ('X', TemplateValue::Int(value)) => self.number(&format!("{value:X}")),
            ('o', TemplateValue::Int(value)) => self.number(&format!("{value:o}")),
            ('b', TemplateValue::Int(value)) => self.number(&format!("{value:b}")),
            ('f' | 'F', TemplateValue::Float(value)) => {
                let decimals = self.precision.unwrap_or(6);
                let text = not_finite(*value).map(str::to_owned);
                self.number(&text.unwrap_or_else(|| format!("{value:.decimals$}")))
            }
            ('g' | 'G', TemplateValue::Float(value)) => {
                self.number(&format_g(*value, self.precision))
            }
            ('e' | 'E', TemplateValue::Float(value)) => {
                let text = format_e(*value, self.precision.unwrap_or(6));
                self.number(&if verb == 'E' {
                    text.to_uppercase()
                } else {
                    text
                })
            }
            _ => wrong(),
        }
    }

    fn text(&self, text: &str) -> String {
        let cut: String = match self.precision {
            Some(count) => text.chars().take(count).collect(),
            None => text.to_owned(),
        };
        self.pad(&cut, ' ')
    }

    fn number(&self, text: &str) -> String {
        let signed = match text.strip_prefix('+') {
            // The sign of +Inf is written only on request.
            Some(_) if self.plus => text.to_owned(),
            Some(bare) if self.space => format!(" {bare}"),
            Some(_) => text.to_owned(),
            None if text.starts_with('-') || text == "NaN" => text.to_owned(),
            None if self.plus => format!("+{text}"),
            None if self.space => format!(" {text}"),
            None => text.to_owned(),
        };
        let is_digits = signed.ends_with(|last: char| last.is_ascii_alphanumeric());
        if self.zero && !self.minus && is_digits && !signed.ends_with("Inf") && signed != "NaN" {
            let (sign, digits) = match signed.strip_prefix(['+', '-', ' ']) {
                Some(digits) => signed.split_at(signed.len() - digits.len()),
                None => ("", signed.as_str()),
            };
            let width = self.width.saturating_sub(sign.len());
            return format!("{sign}{digits:0>width$}");
        }
        self.pad(&signed, ' ')
    }

    fn pad(&self, text: &str, fill: char) -> String {
        let missing = self.width.saturating_sub(text.chars().count());
        let padding: String = std::iter::repeat_n(fill, missing).collect();
        if self.minus {
            format!("{text}{padding}")
        } else {
            format!("{padding}{text}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits() {
        for (value, digits, expected) in [
            (1234.567, Some(4), "1235"),
            (0.000_012_345_6, Some(4), "1.235e-05"),
            (12_345_678.0, Some(4), "1.235e+07"),
            (1.5, Some(4), "1.5"),
            (100.0, Some(4), "100"),
            (99.999, Some(4), "100"),
            (0.0, Some(4), "0"),
            (f64::NAN, Some(4), "NaN"),
            (f64::INFINITY, Some(4), "+Inf"),
            (0.1, None, "0.1"),
            (1e21, None, "1e+21"),
            (86_400.5, None, "86400.5"),
            (123_456.0, None, "123456"),
            (1_000_000.0, None, "1e+06"),
            (1e-7, None, "1e-07"),
        ] {
            assert_eq!(format_g(value, digits), expected, "{value}");
        }
    }

    #[test]
    fn printf_follows_go() {
        let float = TemplateValue::Float(3.24159);
        let int = TemplateValue::Int(42);
        let text = TemplateValue::Text("abc".into());
        for (format, arguments, expected) in [
            ("%.2f", vec![float.clone()], "3.24"),
            ("%8.2f|", vec![float.clone()], "    3.24|"),
            ("%-8.1f|", vec![float.clone()], "3.2     |"),
            ("%08.2f", vec![float.clone()], "00003.24"),
            ("%+.1e", vec![float.clone()], "+3.2e+00"),
            ("%.3g", vec![float.clone()], "3.24"),
            ("%d%%", vec![int.clone()], "42%"),
            ("%5d|%x", vec![int.clone(), int.clone()], "   42|2a"),
            ("%s %q", vec![text.clone(), text.clone()], "abc \"abc\""),
            ("%.2s", vec![text.clone()], "ab"),
            ("%v %v", vec![text.clone(), float.clone()], "abc 3.24159"),
            ("%d", vec![float.clone()], "%!d(float64=3.24159)"),
            ("%s", vec![], "%!s(MISSING)"),
            ("x", vec![int], "x%!(EXTRA int=42)"),
            ("%", vec![], "%!(NOVERB)"),
        ] {
            assert_eq!(sprintf(format, &arguments), expected, "{format}");
        }
    }
}
