//! One line, by every rule.

use pegel_metric::NAME_BYTES_MAX;

use super::{Fault, LINE_BYTES_MAX, Message, Metric, Number, Tags, Type, aside};

/// The lowest sample rate. No client samples that rarely, and at far lower rates one line is larger than all that a total
/// had, and takes its digits.
const RATE_MIN: f64 = 1e-6;

/// `text` is a line without its end, and not empty.
pub(super) fn parse(text: &[u8]) -> Result<Message<'_>, Fault> {
    if text.len() > LINE_BYTES_MAX {
        return Err(Fault::LineLong);
    }
    if std::str::from_utf8(text).is_err() {
        return Err(Fault::Utf8);
    }
    if has_control(text) {
        return Err(Fault::Control);
    }
    if let Some(after) = text.strip_prefix(aside::EVENT) {
        return aside::event(after).map(Message::Event);
    }
    if let Some(after) = text.strip_prefix(aside::CHECK) {
        return aside::check(after).map(Message::Check);
    }
    metric(text).map(Message::Metric)
}

/// Also those of two bytes, U+0080 to U+009F.
fn has_control(text: &[u8]) -> bool {
    text.iter().any(u8::is_ascii_control)
        || text
            .windows(2)
            .any(|pair| pair[0] == 0xc2 && pair[1] < 0xa0)
}

fn metric(text: &[u8]) -> Result<Metric<'_>, Fault> {
    let colon = memchr::memchr(b':', text).ok_or(Fault::NoColon)?;
    let (name, after) = (&text[..colon], &text[colon + 1..]);
    check_name(name)?;
    let bar = memchr::memchr(b'|', after).ok_or(Fault::NoType)?;
    let mut fields = after[bar + 1..].split(|b| *b == b'|');
    let kind = Type::parse(fields.next().unwrap_or_default()).ok_or(Fault::UnknownType)?;
    let values = &after[..bar];
    let mut metric = Metric {
        name,
        kind,
        weight: 1.0,
        time: None,
        tags: &[],
        text: values,
        first: first(kind, values)?,
        is_packed: kind != Type::Set && values.contains(&b':'),
    };
    for field in fields {
        read_field(&mut metric, field)?;
    }
    Ok(metric)
}

fn check_name(name: &[u8]) -> Result<(), Fault> {
    if name.is_empty() {
        return Err(Fault::NameEmpty);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Fault::NameLong);
    }
    match name.iter().any(|b| matches!(b, b'{' | b'}' | b'"' | b'|')) {
        true => Err(Fault::NameCharacter),
        false => Ok(()),
    }
}

/// The first value, after a look at all of them: a line is taken or refused as a whole.
fn first(kind: Type, values: &[u8]) -> Result<Number, Fault> {
    if kind == Type::Set {
        return match values.is_empty() {
            true => Err(Fault::MemberEmpty),
            false => Ok(Number::NONE),
        };
    }
    let mut parts = values.split(|b| *b == b':');
    let first = Number::parse(parts.next().unwrap_or_default())?;
    for part in parts {
        Number::parse(part)?;
    }
    Ok(first)
}

fn read_field<'a>(metric: &mut Metric<'a>, field: &'a [u8]) -> Result<(), Fault> {
    match field {
        [b'@', rate @ ..] => {
            let rate = Number::parse(rate).map_err(|_| Fault::Rate)?.value;
            if !(RATE_MIN..=1.0).contains(&rate) {
                return Err(Fault::Rate);
            }
            metric.weight = 1.0 / rate;
        }
        [b'#', tags @ ..] => {
            Tags::new(tags).check()?;
            metric.tags = tags;
        }
        [b'T', digits @ ..] => metric.time = Some(seconds(digits)?),
        // The container, external data, the cardinality of tags: looked at by nobody here.
        [b'a'..=b'z', ..] if is_word_field(field) => {}
        _ => return Err(Fault::Field),
    }
    Ok(())
}

fn seconds(digits: &[u8]) -> Result<i64, Fault> {
    match Number::short(digits) {
        Some((number, used)) if used == digits.len() && digits.iter().all(u8::is_ascii_digit) => {
            Ok(number.value as i64)
        }
        _ => Err(Fault::Time),
    }
}

fn is_word_field(field: &[u8]) -> bool {
    memchr::memchr(b':', field)
        .is_some_and(|colon| field[..colon].iter().all(u8::is_ascii_lowercase))
}
