//! The statsd line protocol with DogStatsD's additions, as datagrams and streams carry it.
//!
//! ```text
//! NAME:VALUE[:VALUE…]|TYPE[|@RATE][|#TAG:VALUE,TAG…][|TSECONDS][|c:CONTAINER][|e:EXTERNAL]
//! _e{BYTES,BYTES}:TITLE|TEXT[|…]      an event
//! _sc|NAME|STATUS[|…]                 a service check
//! ```
//!
//! [`StatsdLines`] walks a datagram without copying or allocating. Each line is accepted or
//! rejected on its own: a malformed one never affects the next. Most lines are `NAME:NUMBER|TYPE`
//! in plain ASCII, and [`StatsdLines`] parses those in one pass; all others go through
//! `line_parser.rs`, which implements every rule and reports every fault.

mod events;
mod line_parser;
mod number;
mod tags;

pub use events::{ServiceCheck, StatsdEvent};
pub use number::{DecimalNumber, NumberFault, NumberSign};
pub use tags::{StatsdTag, StatsdTags, TAGS_MAX, UnorderedTags};

/// The longest line; also the longest datagram that UDP can carry.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum StatsdType {
    /// `c`: increments a total.
    Counter,
    /// `C`: the sender's own running total, as Flux and brubeck use it.
    Cumulative,
    /// `g`: sets a value, or changes it by a signed amount.
    Gauge,
    /// `ms`: a duration in milliseconds.
    Timer,
    /// `h`: a value of a distribution.
    Histogram,
    /// `d`: the same, under DogStatsD's other name.
    Distribution,
    /// `s`: a member of a set, any text.
    Set,
    /// `m`: increments a total, under another name.
    Meter,
}

impl StatsdType {
    pub const ALL: [StatsdType; 8] = [
        StatsdType::Counter,
        StatsdType::Cumulative,
        StatsdType::Gauge,
        StatsdType::Timer,
        StatsdType::Histogram,
        StatsdType::Distribution,
        StatsdType::Set,
        StatsdType::Meter,
    ];

    /// Returns the type as written in a line.
    pub fn as_str(self) -> &'static str {
        match self {
            StatsdType::Counter => "c",
            StatsdType::Cumulative => "C",
            StatsdType::Gauge => "g",
            StatsdType::Timer => "ms",
            StatsdType::Histogram => "h",
            StatsdType::Distribution => "d",
            StatsdType::Set => "s",
            StatsdType::Meter => "m",
        }
    }

    fn parse(text: &[u8]) -> Option<StatsdType> {
        Some(match text {
            b"c" => StatsdType::Counter,
            b"C" => StatsdType::Cumulative,
            b"g" => StatsdType::Gauge,
            b"ms" => StatsdType::Timer,
            b"h" => StatsdType::Histogram,
            b"d" => StatsdType::Distribution,
            b"s" => StatsdType::Set,
            b"m" => StatsdType::Meter,
            _ => return None,
        })
    }
}

/// A well-formed line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StatsdMessage<'a> {
    Metric(StatsdMetric<'a>),
    Event(StatsdEvent<'a>),
    Check(ServiceCheck<'a>),
}

/// One metric with its values. Name and tags are UTF-8 without control characters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StatsdMetric<'a> {
    pub name: &'a [u8],
    pub kind: StatsdType,
    /// The number of samples that one value represents: the inverse of the sample rate.
    pub weight: f64,
    /// Seconds since 1970, if the sender set a time.
    pub time: Option<i64>,
    /// The tags as received, without the `#`.
    tags: &'a [u8],
    /// The values as received; for a set, the whole text is the member.
    text: &'a [u8],
    /// The first value. Meaningless for sets.
    first: DecimalNumber,
    is_packed: bool,
}

impl<'a> StatsdMetric<'a> {
    /// Returns the member of a set, as bytes of valid UTF-8. It may contain colons.
    pub fn member(&self) -> &'a [u8] {
        self.text
    }

    pub fn first(&self) -> DecimalNumber {
        self.first
    }

    /// Returns whether there is more than one value.
    pub fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// Returns all values, in order. A set has none: see [`StatsdMetric::member`].
    pub fn values(&self) -> impl Iterator<Item = DecimalNumber> + use<'a> {
        let text = match self.kind {
            StatsdType::Set => None,
            _ => Some(self.text),
        };
        let parts = text.into_iter().flat_map(|text| text.split(|b| *b == b':'));
        // Every value was validated when the line was parsed.
        parts.filter_map(|part| DecimalNumber::parse(part).ok())
    }

    pub fn tags(&self) -> StatsdTags<'a> {
        StatsdTags::new(self.tags)
    }
}

/// The fault of a rejected line, and the line's position in the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {fault}")]
pub struct StatsdLineError {
    pub fault: StatsdLineFault,
    pub at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StatsdLineFault {
    #[error("the line exceeds {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    #[error("the line is not UTF-8")]
    Utf8,
    #[error("the line contains a control character")]
    Control,
    #[error("no ':' between name and value")]
    NoColon,
    #[error("the name is empty")]
    NameEmpty,
    #[error("the name is longer than {} bytes", pegel_metric::NAME_BYTES_MAX)]
    NameTooLong,
    #[error("the name contains one of the characters {{ }} \" |")]
    NameCharacter,
    #[error("{0}")]
    Value(#[from] NumberFault),
    #[error("the member of the set is empty")]
    MemberEmpty,
    #[error("no '|' and type after the value")]
    NoType,
    #[error("unknown type; expected c, C, g, ms, h, d, s or m")]
    UnknownType,
    #[error("the sample rate is not between 0.000001 and 1")]
    Rate,
    #[error("a tag has no name, or its name contains one of the characters {{ }} \" = ! ~")]
    Tag,
    #[error("more than {TAGS_MAX} tags")]
    TooManyTags,
    #[error("the timestamp is not a whole number of seconds since 1970")]
    Time,
    #[error("unknown field after the type; expected @, #, T or WORD:")]
    Field,
    #[error("the event contradicts its length fields")]
    Event,
    #[error("the service check has no name or no status from 0 to 3")]
    Check,
}

/// Iterates over the lines of a datagram, or of a part of a stream that ends with a complete line.
#[derive(Debug, Clone)]
pub struct StatsdLines<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether the bytes are only printable ASCII and newlines, without characters that names must
    /// not contain.
    is_plain: bool,
}

impl<'a> StatsdLines<'a> {
    pub fn new(bytes: &'a [u8]) -> StatsdLines<'a> {
        StatsdLines {
            bytes,
            at: 0,
            is_plain: is_plain(bytes),
        }
    }

    /// Parses exactly `NAME:NUMBER|TYPE`; `None` leaves the line to the full parser.
    #[inline]
    fn parse_short_line(&mut self, rest: &'a [u8]) -> Option<StatsdMetric<'a>> {
        let colon = memchr::memchr3(b':', b'|', b'\n', rest)?;
        if rest[colon] != b':' || colon == 0 || colon > pegel_metric::NAME_BYTES_MAX {
            return None;
        }
        let (name, value) = (&rest[..colon], &rest[colon + 1..]);
        let (first, used) = DecimalNumber::parse_short(value)?;
        let [b'|', letter, after @ ..] = &value[used..] else {
            return None;
        };
        let (kind, after) = match (letter, after) {
            (b'c', after) => (StatsdType::Counter, after),
            (b'g', after) => (StatsdType::Gauge, after),
            (b'm', [b's', after @ ..]) => (StatsdType::Timer, after),
            (b'C', after) => (StatsdType::Cumulative, after),
            (b'h', after) => (StatsdType::Histogram, after),
            (b'd', after) => (StatsdType::Distribution, after),
            (b's', after) => (StatsdType::Set, after),
            (b'm', after) => (StatsdType::Meter, after),
            _ => return None,
        };
        let end = match after {
            [] => self.bytes.len(),
            [b'\n', next @ ..] => self.bytes.len() - next.len(),
            _ => return None,
        };
        self.at = end;
        Some(StatsdMetric {
            name,
            kind,
            weight: 1.0,
            time: None,
            tags: &[],
            text: &value[..used],
            first: match kind {
                StatsdType::Set => DecimalNumber::ABSENT,
                _ => first,
            },
            is_packed: false,
        })
    }
}

impl<'a> Iterator for StatsdLines<'a> {
    type Item = Result<StatsdMessage<'a>, StatsdLineError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = &self.bytes[self.at..];
            match rest {
                [] => return None,
                [b'\n', ..] => {
                    self.at += 1;
                    continue;
                }
                _ => {}
            }
            if self.is_plain
                && let Some(metric) = self.parse_short_line(rest)
            {
                return Some(Ok(StatsdMessage::Metric(metric)));
            }
            let at = self.at;
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            self.at += (end + 1).min(rest.len());
            let text = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            if !text.is_empty() {
                return Some(
                    line_parser::parse(text).map_err(|fault| StatsdLineError { fault, at }),
                );
            }
        }
    }
}

/// Has no branch per byte, so that the compiler can vectorise it.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |is_plain, &b| {
        is_plain
            & ((b >= b' ') | (b == b'\n'))
            & (b < 0x7f)
            & (b != b'"')
            & (b != b'{')
            & (b != b'}')
    })
}

#[cfg(test)]
mod tests;
