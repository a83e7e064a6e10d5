//! Values as lines of statsd, and lines as datagrams.

use std::fmt::Write;

use pegel_lane::LaneKind;
use pegel_lane::reader::{DecodedSeriesSpec, LaneHeader, LaneValue};

use super::config::{LabelStyle, StatsdConfig};

/// The longest datagram: it fits into a packet of Ethernet.
pub(super) const DATAGRAM_BYTES_MAX: usize = 1_440;

/// What was sent of a series, or its current value.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SeriesState {
    /// Of a counter, or the number of values of a distribution.
    count: u64,
    /// Of a float counter or a distribution, or the value of a gauge.
    number: f64,
    /// Whether a gauge was set.
    is_set: bool,
}

impl SeriesState {
    /// Returns the state of a value; `None` if statsd has no form for it.
    pub(super) fn of(value: &LaneValue<'_>) -> Option<SeriesState> {
        let (count, number) = match value {
            LaneValue::Counter(count) => (*count, 0.0),
            LaneValue::FloatCounter(sum) => (0, *sum),
            LaneValue::Gauge { value, .. } => (0, *value),
            LaneValue::Distribution(distribution) => (distribution.count(), distribution.sum),
            LaneValue::Calls { .. } => return None,
        };
        let is_set = matches!(value, LaneValue::Gauge { .. });
        number.is_finite().then_some(SeriesState {
            count,
            number,
            is_set,
        })
    }

    /// Writes the lines of what changed since another state.
    pub(super) fn write_changes(
        &self,
        before: &SeriesState,
        kind: LaneKind,
        (name, tags): (&str, &str),
        lines: &mut String,
    ) {
        let count = self.count.wrapping_sub(before.count);
        let number = self.number - before.number;
        let mean = number / count as f64;
        // Writing to a string cannot fail.
        let _ = match kind {
            LaneKind::Counter => writeln!(lines, "{name}:{count}|c{tags}"),
            LaneKind::FloatCounter => writeln!(lines, "{name}:{number}|c{tags}"),
            // A sign changes a gauge by an amount: it is set to zero first.
            LaneKind::Gauge if self.number.is_sign_negative() => {
                let value = self.number;
                writeln!(lines, "{name}:0|g{tags}\n{name}:{value}|g{tags}")
            }
            LaneKind::Gauge => writeln!(lines, "{name}:{}|g{tags}", self.number),
            // Sample rates would carry the number of values, but collectd scales the value by them.
            LaneKind::Timer if count > 0 => {
                let mean = (mean * 1e3).max(0.0);
                writeln!(
                    lines,
                    "{name}:{mean}|ms{tags}\n{name}.count:{count}|c{tags}"
                )
            }
            LaneKind::Histogram if count > 0 && mean >= 0.0 => {
                writeln!(
                    lines,
                    "{name}.mean:{mean}|g{tags}\n{name}.count:{count}|c{tags}"
                )
            }
            LaneKind::Histogram if count > 0 => writeln!(lines, "{name}.count:{count}|c{tags}"),
            _ => Ok(()),
        };
    }
}

/// Returns the name of a series as the server gets it, and its tags with `|#`.
pub(super) fn name_and_tags(
    series: &DecodedSeriesSpec<'_>,
    header: &LaneHeader,
    config: &StatsdConfig,
) -> (String, String) {
    let pid = header.pid.to_string();
    let mut labels = series.labels.clone();
    if series.with_pid {
        labels.push(("pid", &pid));
    }
    if series.with_rank && !header.rank.is_empty() {
        labels.push(("rank", &header.rank));
    }
    labels.sort_unstable();
    let mut name = format!("{}{}", config.prefix, clean(series.name, true));
    match config.labels {
        LabelStyle::Name => {
            for (key, value) in labels {
                let _ = write!(name, ".{}.{}", clean(key, false), clean(value, false));
            }
            (name, String::new())
        }
        LabelStyle::Tags => {
            let tags = labels.iter().map(|(key, value)| {
                format!("{}:{}", clean(key, false), value.replace(is_separator, "_"))
            });
            let tags: Vec<String> = tags.collect();
            let tags = if tags.is_empty() {
                String::new()
            } else {
                format!("|#{}", tags.join(","))
            };
            (name, tags)
        }
    }
}

fn is_separator(c: char) -> bool {
    c.is_control() || c.is_whitespace() || ",|#@".contains(c)
}

/// Replaces characters that separate fields of a line, and dots where they would be levels.
fn clean(text: &str, keeps_dots: bool) -> String {
    text.replace(
        |c: char| is_separator(c) || ":/".contains(c) || (c == '.' && !keeps_dots),
        "_",
    )
}

/// Collects lines into datagrams. What belongs to a datagram is confirmed when it was sent.
#[derive(Debug)]
pub(super) struct DatagramPacker<T> {
    bytes: String,
    waiting: Vec<T>,
}

impl<T> DatagramPacker<T> {
    pub(super) fn new() -> DatagramPacker<T> {
        DatagramPacker {
            bytes: String::with_capacity(DATAGRAM_BYTES_MAX),
            waiting: Vec::new(),
        }
    }

    /// Returns whether lines fit into the current datagram.
    pub(super) fn fits(&self, lines: &str) -> bool {
        // The newline at the end is not sent.
        self.bytes.len() + lines.len() <= DATAGRAM_BYTES_MAX + 1
    }

    pub(super) fn add(&mut self, lines: &str, item: T) {
        self.bytes.push_str(lines);
        self.waiting.push(item);
    }

    /// Returns the datagram, if it has any lines, and what belongs to it.
    pub(super) fn take(&mut self) -> Option<(String, Vec<T>)> {
        let datagram = std::mem::take(&mut self.bytes);
        let items = std::mem::take(&mut self.waiting);
        let datagram = datagram.trim_end_matches('\n');
        (!datagram.is_empty()).then(|| (datagram.to_owned(), items))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(kind: LaneKind, before: (u64, f64), now: (u64, f64)) -> String {
        let state = |(count, number)| SeriesState {
            count,
            number,
            is_set: true,
        };
        let mut lines = String::new();
        state(now).write_changes(&state(before), kind, ("n", "|#a:b"), &mut lines);
        lines.replace('\n', " ")
    }

    #[test]
    fn each_kind_has_its_lines() {
        let none = (0, 0.0);
        assert_eq!(
            changes(LaneKind::Counter, (2, 0.0), (7, 0.0)),
            "n:5|c|#a:b "
        );
        assert_eq!(
            changes(LaneKind::FloatCounter, (0, 0.5), (0, 2.0)),
            "n:1.5|c|#a:b "
        );
        assert_eq!(changes(LaneKind::Gauge, none, (0, 0.25)), "n:0.25|g|#a:b ");
        assert_eq!(
            changes(LaneKind::Gauge, none, (0, -3.0)),
            "n:0|g|#a:b n:-3|g|#a:b "
        );
        let timer = changes(LaneKind::Timer, (1, 1.0), (5, 1.5));
        assert_eq!(timer, "n:125|ms|#a:b n.count:4|c|#a:b ");
        let histogram = changes(LaneKind::Histogram, none, (4, 8.0));
        assert_eq!(histogram, "n.mean:2|g|#a:b n.count:4|c|#a:b ");
        assert_eq!(
            changes(LaneKind::Histogram, none, (4, -8.0)),
            "n.count:4|c|#a:b "
        );
        assert_eq!(
            changes(LaneKind::Timer, (1, 1.0), (1, 2.0)),
            "",
            "the count follows"
        );
    }

    #[test]
    fn datagrams_have_at_most_1440_bytes() {
        let mut packer = DatagramPacker::new();
        let line = format!("{}\n", "x".repeat(99));
        let mut added = 0;
        while packer.fits(&line) {
            packer.add(&line, added);
            added += 1;
        }
        let rest = format!("{}\n", "y".repeat(DATAGRAM_BYTES_MAX - 100 * added));
        assert!(packer.fits(&rest) && !packer.fits(&format!("y{rest}")));
        packer.add(&rest, added);
        let (datagram, items) = packer.take().expect("full");
        assert_eq!(
            (datagram.len(), items.len()),
            (DATAGRAM_BYTES_MAX, added + 1)
        );
        assert!(packer.take().is_none());
    }
}
