//! The full parser of one line: implements every rule. Lines in the common short form never get
//! here.

use pegel_metric::NAME_BYTES_MAX;

use super::{
    DecimalNumber, LINE_BYTES_MAX, StatsdLineFault, StatsdMessage, StatsdMetric, StatsdTags,
    StatsdType, events,
};

/// The lowest sample rate. No client samples more rarely, and at far lower rates one line would
/// exceed the whole total and cost it its low digits.
const RATE_MIN: f64 = 1e-6;

/// Parses a line without its line ending; `text` is not empty.
pub(super) fn parse(text: &[u8]) -> Result<StatsdMessage<'_>, StatsdLineFault> {
    if text.len() > LINE_BYTES_MAX {
        return Err(StatsdLineFault::LineTooLong);
    }
    if std::str::from_utf8(text).is_err() {
        return Err(StatsdLineFault::Utf8);
    }
    if has_control(text) {
        return Err(StatsdLineFault::Control);
    }
    if let Some(after) = text.strip_prefix(events::EVENT_PREFIX) {
        return events::parse_event(after).map(StatsdMessage::Event);
    }
    if let Some(after) = text.strip_prefix(events::SERVICE_CHECK_PREFIX) {
        return events::parse_service_check(after).map(StatsdMessage::Check);
    }
    parse_metric(text).map(StatsdMessage::Metric)
}

/// Returns whether the text contains control characters, including the two-byte ones, U+0080 to
/// U+009F.
fn has_control(text: &[u8]) -> bool {
    text.iter().any(u8::is_ascii_control)
        || text
            .windows(2)
            .any(|pair| pair[0] == 0xc2 && pair[1] < 0xa0)
}

fn parse_metric(text: &[u8]) -> Result<StatsdMetric<'_>, StatsdLineFault> {
    let colon = memchr::memchr(b':', text).ok_or(StatsdLineFault::NoColon)?;
    let (name, after) = (&text[..colon], &text[colon + 1..]);
    check_name(name)?;
    let bar = memchr::memchr(b'|', after).ok_or(StatsdLineFault::NoType)?;
    let mut fields = after[bar + 1..].split(|b| *b == b'|');
    let kind =
        StatsdType::parse(fields.next().unwrap_or_default()).ok_or(StatsdLineFault::UnknownType)?;
    let values = &after[..bar];
    let mut metric = StatsdMetric {
        name,
        kind,
        weight: 1.0,
        time: None,
        tags: &[],
        text: values,
        first: parse_first_value(kind, values)?,
        is_packed: kind != StatsdType::Set && values.contains(&b':'),
    };
    for field in fields {
        read_field(&mut metric, field)?;
    }
    Ok(metric)
}

fn check_name(name: &[u8]) -> Result<(), StatsdLineFault> {
    if name.is_empty() {
        return Err(StatsdLineFault::NameEmpty);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(StatsdLineFault::NameTooLong);
    }
    if name.iter().any(|b| matches!(b, b'{' | b'}' | b'"' | b'|')) {
        Err(StatsdLineFault::NameCharacter)
    } else {
        Ok(())
    }
}

/// Returns the first value after validating all of them: a line is accepted or rejected as a whole.
fn parse_first_value(kind: StatsdType, values: &[u8]) -> Result<DecimalNumber, StatsdLineFault> {
    if kind == StatsdType::Set {
        return if values.is_empty() {
            Err(StatsdLineFault::MemberEmpty)
        } else {
            Ok(DecimalNumber::ABSENT)
        };
    }
    let mut parts = values.split(|b| *b == b':');
    let first = DecimalNumber::parse(parts.next().unwrap_or_default())?;
    for part in parts {
        DecimalNumber::parse(part)?;
    }
    Ok(first)
}

fn read_field<'a>(metric: &mut StatsdMetric<'a>, field: &'a [u8]) -> Result<(), StatsdLineFault> {
    match field {
        [b'@', rate @ ..] => {
            let rate = DecimalNumber::parse(rate)
                .map_err(|_| StatsdLineFault::Rate)?
                .value;
            if !(RATE_MIN..=1.0).contains(&rate) {
                return Err(StatsdLineFault::Rate);
            }
            metric.weight = 1.0 / rate;
        }
        [b'#', tags @ ..] => {
            StatsdTags::new(tags).check()?;
            metric.tags = tags;
        }
        [b'T', digits @ ..] => metric.time = Some(parse_seconds(digits)?),
        // The container, external data and tag cardinality are ignored.
        [b'a'..=b'z', ..] if is_word_field(field) => {}
        _ => return Err(StatsdLineFault::Field),
    }
    Ok(())
}

fn parse_seconds(digits: &[u8]) -> Result<i64, StatsdLineFault> {
    match DecimalNumber::parse_short(digits) {
        Some((number, used)) if used == digits.len() && digits.iter().all(u8::is_ascii_digit) => {
            Ok(number.value as i64)
        }
        _ => Err(StatsdLineFault::Time),
    }
}

fn is_word_field(field: &[u8]) -> bool {
    memchr::memchr(b':', field)
        .is_some_and(|colon| field[..colon].iter().all(u8::is_ascii_lowercase))
}
