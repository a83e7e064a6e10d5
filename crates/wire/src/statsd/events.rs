//! Parses DogStatsD's messages other than metrics: events and service checks.

use super::{DecimalNumber, StatsdLineFault};

/// An event. Its fields are UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatsdEvent<'a> {
    pub title: &'a [u8],
    /// Newlines are written as `\n`.
    pub text: &'a [u8],
    /// Time, host, priority, kind, tags and any further fields.
    pub fields: &'a [u8],
}

impl<'a> StatsdEvent<'a> {
    /// Returns the tags: key and value, which is empty if there is none.
    pub fn tags(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let tags = self
            .text_fields()
            .filter_map(|field| field.strip_prefix('#'));
        let tags = tags
            .flat_map(|tags| tags.split(','))
            .filter(|tag| !tag.is_empty());
        tags.map(|tag| tag.split_once(':').unwrap_or((tag, "")))
    }

    /// Returns the other fields: `d:`, `h:`, `k:`, `p:`, `s:` and `t:` are known.
    pub fn named_fields(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let named = self.text_fields().filter(|field| !field.starts_with('#'));
        named.filter_map(|field| field.split_once(':'))
    }

    fn text_fields(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let fields = self.fields.split(|byte| *byte == b'|');
        fields.filter_map(|field| std::str::from_utf8(field).ok())
    }
}

/// The status of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceCheck<'a> {
    pub name: &'a [u8],
    /// 0 ok, 1 warning, 2 critical, 3 unknown.
    pub status: u8,
    pub fields: &'a [u8],
}

pub(super) const EVENT_PREFIX: &[u8] = b"_e{";
pub(super) const SERVICE_CHECK_PREFIX: &[u8] = b"_sc|";

/// Parses an event; `after` is the line after `_e{`.
pub(super) fn parse_event(after: &[u8]) -> Result<StatsdEvent<'_>, StatsdLineFault> {
    let head = memchr::memchr(b'}', after).ok_or(StatsdLineFault::Event)?;
    let (lengths, body) = (&after[..head], &after[head + 1..]);
    let comma = memchr::memchr(b',', lengths).ok_or(StatsdLineFault::Event)?;
    let (title, text) = (
        parse_length(&lengths[..comma])?,
        parse_length(&lengths[comma + 1..])?,
    );
    let body = body.strip_prefix(b":").ok_or(StatsdLineFault::Event)?;
    let is_whole = title > 0
        && body.get(title) == Some(&b'|')
        && (body.len() == title + 1 + text || body.get(title + 1 + text) == Some(&b'|'));
    if !is_whole {
        return Err(StatsdLineFault::Event);
    }
    Ok(StatsdEvent {
        title: &body[..title],
        text: &body[title + 1..title + 1 + text],
        fields: body.get(title + text + 2..).unwrap_or_default(),
    })
}

fn parse_length(digits: &[u8]) -> Result<usize, StatsdLineFault> {
    match DecimalNumber::parse_short(digits) {
        Some((number, used)) if used == digits.len() && digits.iter().all(u8::is_ascii_digit) => {
            Ok(number.value.min(super::LINE_BYTES_MAX as f64) as usize)
        }
        _ => Err(StatsdLineFault::Event),
    }
}

/// Parses a service check; `after` is the line after `_sc|`.
pub(super) fn parse_service_check(after: &[u8]) -> Result<ServiceCheck<'_>, StatsdLineFault> {
    let mut parts = after.splitn(3, |b| *b == b'|');
    let name = parts.next().filter(|name| !name.is_empty());
    let (Some(name), Some(&[status @ b'0'..=b'3'])) = (name, parts.next()) else {
        return Err(StatsdLineFault::Check);
    };
    Ok(ServiceCheck {
        name,
        status: status - b'0',
        fields: parts.next().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_fits_its_lengths() {
        let read = parse_event(b"5,4}:title|text|p:low|#a:1").expect("valid");
        assert_eq!(
            (read.title, read.text, read.fields),
            (&b"title"[..], &b"text"[..], &b"p:low|#a:1"[..])
        );
        let read = parse_event(b"1,0}:t|").expect("an event without text");
        assert_eq!((read.text, read.fields), (&b""[..], &b""[..]));
        for bad in [
            "5,4:title|text",
            "5}:title|text",
            "4,4}:title|text",
            "5,9}:title|text",
            "5,3}:title|text",
            "0,4}:|text",
            "x,4}:title|text",
            "5,4}title|text",
            "-5,4}:title|text",
            "99999999999999999999,4}:title|text",
            "1.0,1}:a|b",
            "",
        ] {
            assert_eq!(
                parse_event(bad.as_bytes()),
                Err(StatsdLineFault::Event),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_check_has_a_name_and_a_status() {
        let read = parse_service_check(b"disk|2|h:n1|m:full").expect("valid");
        assert_eq!(
            (read.name, read.status, read.fields),
            (&b"disk"[..], 2, &b"h:n1|m:full"[..])
        );
        assert_eq!(parse_service_check(b"disk|0").expect("valid").fields, b"");
        for bad in ["", "|0", "disk", "disk|", "disk|4", "disk|00", "disk|ok"] {
            assert_eq!(
                parse_service_check(bad.as_bytes()),
                Err(StatsdLineFault::Check),
                "{bad}"
            );
        }
    }
}
