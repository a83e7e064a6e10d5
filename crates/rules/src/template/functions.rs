//! The functions of templates: those of Go and those of Prometheus.

use std::cmp::Ordering;
use std::fmt;

use regex::{Regex, RegexBuilder};

use super::TemplateData;
use super::go_format::sprintf;
use super::humanize::{
    humanize, humanize_duration, humanize_percentage, humanize_timestamp, humanize1024,
};
use super::value::TemplateValue::{self, Bool, Float, Int, Labels, List, Sample, Text};
use crate::duration::parse_duration;

type FunctionBody = fn(&TemplateData<'_>, &[TemplateValue]) -> Result<TemplateValue, String>;

/// A function with the number of arguments that it takes.
pub(crate) struct TemplateFunction {
    name: &'static str,
    arguments: (usize, usize),
    call: FunctionBody,
}

impl fmt::Debug for TemplateFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const ANY: usize = usize::MAX;

const fn function(
    name: &'static str,
    arguments: (usize, usize),
    call: FunctionBody,
) -> TemplateFunction {
    TemplateFunction {
        name,
        arguments,
        call,
    }
}

static FUNCTIONS: &[TemplateFunction] = &[
    // Go.
    function("and", (1, ANY), |_, _| Ok(TemplateValue::Nil)),
    function("or", (1, ANY), |_, _| Ok(TemplateValue::Nil)),
    function("not", (1, 1), |_, all| Ok(Bool(!all[0].is_true()))),
    function("eq", (2, ANY), |_, all| {
        for other in &all[1..] {
            if equal(&all[0], other)? {
                return Ok(Bool(true));
            }
        }
        Ok(Bool(false))
    }),
    function("ne", (2, 2), |_, all| Ok(Bool(!equal(&all[0], &all[1])?))),
    function("lt", (2, 2), |_, all| Ok(Bool(less(&all[0], &all[1])?))),
    function("le", (2, 2), |_, all| {
        Ok(Bool(less(&all[0], &all[1])? || equal(&all[0], &all[1])?))
    }),
    // As in Go: the negation of `le`, so NaN is greater than everything.
    function("gt", (2, 2), |_, all| {
        Ok(Bool(!(less(&all[0], &all[1])? || equal(&all[0], &all[1])?)))
    }),
    function("ge", (2, 2), |_, all| Ok(Bool(!less(&all[0], &all[1])?))),
    function("len", (1, 1), |_, all| match &all[0] {
        Text(text) => Ok(count(text.len())),
        Labels(labels) => Ok(count(labels.iter().count())),
        List(items) => Ok(count(items.len())),
        other => Err(format!("len of type {}", other.go_type())),
    }),
    function("index", (1, ANY), |_, all| {
        all[1..].iter().try_fold(all[0].clone(), index)
    }),
    function("print", (0, ANY), |_, all| Ok(Text(sprint(all)))),
    function("println", (0, ANY), |_, all| {
        let texts: Vec<String> = all.iter().map(TemplateValue::display).collect();
        Ok(Text(format!("{}\n", texts.join(" "))))
    }),
    function("printf", (1, ANY), |_, all| {
        Ok(Text(sprintf(text(&all[0])?, &all[1..])))
    }),
    function("urlquery", (1, ANY), |_, all| {
        Ok(Text(query_escape(&sprint(all))))
    }),
    // Prometheus: queries.
    function("query", (1, 1), |data, all| {
        let samples = (data.query)(text(&all[0])?)?;
        Ok(List(samples.into_iter().map(Sample).collect()))
    }),
    function("first", (1, 1), |_, all| match list(&all[0])? {
        [first, ..] => Ok(first.clone()),
        [] => Err("first() called on vector with no elements".to_owned()),
    }),
    function("label", (2, 2), |_, all| match &all[1] {
        Sample(sample) => Ok(Text(sample.labels.get(text(&all[0])?).to_owned())),
        other => Err(wrong_type("a sample", other)),
    }),
    function("value", (1, 1), |_, all| match &all[0] {
        Sample(sample) => Ok(Float(sample.value)),
        other => Err(wrong_type("a sample", other)),
    }),
    function("strvalue", (1, 1), |_, all| match &all[0] {
        Sample(sample) => Ok(Text(sample.labels.get("__value__").to_owned())),
        other => Err(wrong_type("a sample", other)),
    }),
    function("sortByLabel", (2, 2), |_, all| {
        let name = text(&all[0])?;
        let mut items = list(&all[1])?.to_vec();
        let key = |item: &TemplateValue| match item {
            Sample(sample) => sample.labels.get(name).to_owned(),
            _ => String::new(),
        };
        items.sort_by_key(key);
        Ok(List(items))
    }),
    // Prometheus: numbers.
    function("humanize", (1, 1), |_, all| {
        Ok(Text(humanize(number(&all[0])?)))
    }),
    function("humanize1024", (1, 1), |_, all| {
        Ok(Text(humanize1024(number(&all[0])?)))
    }),
    function("humanizeDuration", (1, 1), |_, all| {
        Ok(Text(humanize_duration(number(&all[0])?)))
    }),
    function("humanizePercentage", (1, 1), |_, all| {
        Ok(Text(humanize_percentage(number(&all[0])?)))
    }),
    function("humanizeTimestamp", (1, 1), |_, all| {
        Ok(Text(humanize_timestamp(number(&all[0])?)?))
    }),
    function("parseDuration", (1, 1), |_, all| {
        Ok(Float(parse_duration(text(&all[0])?)?.as_secs_f64()))
    }),
    function("now", (0, 0), |data, _| {
        Ok(Float(data.time as f64 / 1_000.0))
    }),
    // Prometheus: texts.
    function("title", (1, 1), |_, all| Ok(Text(title(text(&all[0])?)))),
    function("toUpper", (1, 1), |_, all| {
        Ok(Text(text(&all[0])?.to_uppercase()))
    }),
    function("toLower", (1, 1), |_, all| {
        Ok(Text(text(&all[0])?.to_lowercase()))
    }),
    function("match", (2, 2), |_, all| {
        Ok(Bool(regex(text(&all[0])?)?.is_match(text(&all[1])?)))
    }),
    function("reReplaceAll", (3, 3), |_, all| {
        let expression = regex(text(&all[0])?)?;
        let replaced = expression.replace_all(text(&all[2])?, text(&all[1])?);
        Ok(Text(replaced.into_owned()))
    }),
    function("stripPort", (1, 1), |_, all| {
        Ok(Text(strip_port(text(&all[0])?)))
    }),
    function("stripDomain", (1, 1), |_, all| {
        Ok(Text(strip_domain(text(&all[0])?)))
    }),
    function("graphLink", (1, 1), |_, all| {
        Ok(Text(format!(
            "/graph?g0.expr={}&g0.tab=0",
            query_escape(text(&all[0])?)
        )))
    }),
    function("tableLink", (1, 1), |_, all| {
        Ok(Text(format!(
            "/graph?g0.expr={}&g0.tab=1",
            query_escape(text(&all[0])?)
        )))
    }),
    function("externalURL", (0, 0), |data, _| {
        Ok(Text(data.external_url.to_owned()))
    }),
    function("pathPrefix", (0, 0), |data, _| {
        let after_scheme = data
            .external_url
            .split_once("://")
            .map_or("", |(_, rest)| rest);
        let path = after_scheme.find('/').map_or("", |at| &after_scheme[at..]);
        Ok(Text(path.trim_end_matches('/').to_owned()))
    }),
];

/// Finds a function, or describes that it does not exist.
pub(crate) fn find(name: &str) -> Result<&'static TemplateFunction, String> {
    let mut known = FUNCTIONS.iter();
    known
        .find(|function| function.name == name)
        .ok_or_else(|| match name {
            "tmpl" | "args" | "safeHtml" | "call" | "slice" | "html" | "js" | "toTime"
            | "toDuration" | "urlQueryEscape" => format!("function {name:?} is not supported"),
            _ => format!("function {name:?} not defined"),
        })
}

impl TemplateFunction {
    /// Returns the truth at which the evaluation of arguments stops, for `and` and `or`.
    pub(super) fn stops_at(&self) -> Option<bool> {
        match self.name {
            "and" => Some(false),
            "or" => Some(true),
            _ => None,
        }
    }

    pub(super) fn call(
        &self,
        data: &TemplateData<'_>,
        arguments: Vec<TemplateValue>,
    ) -> Result<TemplateValue, String> {
        let (min, max) = self.arguments;
        if arguments.len() < min || arguments.len() > max {
            let want = if min == max {
                format!("{min}")
            } else {
                format!("at least {min}")
            };
            return Err(format!(
                "wrong number of args for {}: want {want} got {}",
                self.name,
                arguments.len()
            ));
        }
        (self.call)(data, &arguments)
            .map_err(|error| format!("error calling {}: {error}", self.name))
    }
}

fn text(value: &TemplateValue) -> Result<&str, String> {
    match value {
        Text(text) => Ok(text),
        other => Err(wrong_type("a string", other)),
    }
}

fn list(value: &TemplateValue) -> Result<&[TemplateValue], String> {
    match value {
        List(items) => Ok(items),
        other => Err(wrong_type("the result of query", other)),
    }
}

fn wrong_type(expected: &str, found: &TemplateValue) -> String {
    format!("wrong type: expected {expected}, got {}", found.go_type())
}

/// Converts as Prometheus does for the functions of numbers.
fn number(value: &TemplateValue) -> Result<f64, String> {
    match value {
        Float(value) => Ok(*value),
        Int(value) => Ok(*value as f64),
        Text(text) => text
            .parse()
            .map_err(|_| format!("strconv.ParseFloat: parsing {text:?}: invalid syntax")),
        other => Err(format!("can't convert {} to float", other.go_type())),
    }
}

fn count(count: usize) -> TemplateValue {
    Int(i64::try_from(count).unwrap_or(i64::MAX))
}

fn equal(a: &TemplateValue, b: &TemplateValue) -> Result<bool, String> {
    match (a, b) {
        (Bool(a), Bool(b)) => Ok(a == b),
        (Int(a), Int(b)) => Ok(a == b),
        (Float(a), Float(b)) => Ok(a == b),
        (Text(a), Text(b)) => Ok(a == b),
        (TemplateValue::Nil, TemplateValue::Nil) => Ok(true),
        _ => Err("incompatible types for comparison".to_owned()),
    }
}

fn less(a: &TemplateValue, b: &TemplateValue) -> Result<bool, String> {
    match (a, b) {
        (Int(a), Int(b)) => Ok(a < b),
        (Float(a), Float(b)) => Ok(a.partial_cmp(b) == Some(Ordering::Less)),
        (Text(a), Text(b)) => Ok(a < b),
        (Bool(_), Bool(_)) => Err("invalid type for comparison".to_owned()),
        _ => Err("incompatible types for comparison".to_owned()),
    }
}

fn index(value: TemplateValue, key: &TemplateValue) -> Result<TemplateValue, String> {
    match (value, key) {
        (Labels(labels), Text(name)) => Ok(Text(labels.get(name).to_owned())),
        (List(items), Int(at)) => usize::try_from(*at)
            .ok()
            .and_then(|at| items.get(at).cloned())
            .ok_or_else(|| format!("index out of range: {at}")),
        (value, key) => Err(format!(
            "cannot index {} with {}",
            value.go_type(),
            key.go_type()
        )),
    }
}

/// Joins values as `fmt.Sprint`: with a space between two that are not texts.
fn sprint(values: &[TemplateValue]) -> String {
    let mut out = String::new();
    for (at, value) in values.iter().enumerate() {
        let is_text = |value: &TemplateValue| matches!(value, Text(_));
        if at > 0 && !is_text(value) && !is_text(&values[at - 1]) {
            out.push(' ');
        }
        out.push_str(&value.display());
    }
    out
}

/// The memory of a compiled expression.
const REGEX_BYTES_MAX: usize = 1 << 20;

fn regex(pattern: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(pattern);
    let built = builder.size_limit(REGEX_BYTES_MAX).build();
    built.map_err(|error| format!("error parsing regexp: {error}"))
}

/// Makes the first letter of every word upper case.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_start = true;
    for next in text.chars() {
        let is_letter = next.is_alphanumeric() || next == '_' || next == '\'';
        if is_start && is_letter {
            out.extend(next.to_uppercase());
        } else {
            out.push(next);
        }
        is_start = !is_letter;
    }
    out
}

fn strip_port(text: &str) -> String {
    match text.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            let inner = host
                .strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'));
            match inner {
                Some(inner) => inner.to_owned(),
                // More colons: an IPv6 address without a port.
                None if host.contains(':') => text.to_owned(),
                None => host.to_owned(),
            }
        }
        _ => text.to_owned(),
    }
}

fn strip_domain(text: &str) -> String {
    let host = strip_port(text);
    let port = text.strip_prefix(host.as_str()).unwrap_or("");
    if host.parse::<std::net::IpAddr>().is_ok() {
        return text.to_owned();
    }
    let name = host.split('.').next().unwrap_or(&host);
    format!("{name}{port}")
}

/// Escapes a text for the query of a URL.
pub(crate) fn query_escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            b' ' => out.push('+'),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
