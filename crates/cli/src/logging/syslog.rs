//! Encodes records for `/dev/log` (RFC 3164, section 4.1, without timestamp and host name: the
//! local daemon adds both, and the format has no time zone).

use std::fmt::Write;

use super::record::LogRecord;

/// Facility 3: system daemons.
const DAEMON: u8 = 3 << 3;

pub(super) fn encode(record: &LogRecord) -> Vec<u8> {
    let priority = DAEMON | record.priority;
    let mut out = format!("<{priority}>pegel[{}]: ", std::process::id());
    for c in record.text().chars() {
        // Escape control characters: one message is one line.
        if c.is_control() {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_is_one_line() {
        let record = LogRecord {
            priority: 3,
            message: "forged\n<0>kernel: panic\u{1b}[2J".to_owned(),
            fields: vec![("user", "ü".to_owned())],
            module: "",
            file: "",
            line: 0,
        };
        let expected = format!(
            "<27>pegel[{}]: forged\\n<0>kernel: panic\\u{{1b}}[2J user=ü",
            std::process::id()
        );
        assert_eq!(String::from_utf8(encode(&record)), Ok(expected));
    }
}
