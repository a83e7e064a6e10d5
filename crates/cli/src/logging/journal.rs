//! Encodes records in the journal's native protocol: a datagram of fields. A field is a line
//! `NAME=value`; a value with line breaks is written as the name, a line break, its length as
//! 64-bit little-endian integer, and the value.

use super::record::LogRecord;

pub(super) fn encode(record: &LogRecord) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    append_field(&mut out, "PRIORITY", &record.priority.to_string());
    append_field(&mut out, "SYSLOG_IDENTIFIER", "pegel");
    append_field(&mut out, "SYSLOG_PID", &std::process::id().to_string());
    append_field(&mut out, "MESSAGE", &record.text());
    append_field(&mut out, "CODE_MODULE", record.module);
    if !record.file.is_empty() {
        append_field(&mut out, "CODE_FILE", record.file);
        append_field(&mut out, "CODE_LINE", &record.line.to_string());
    }
    for (name, value) in &record.fields {
        append_field(&mut out, &field_name(name), value);
    }
    out
}

fn append_field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

/// Converts to a valid field name: at most 64 capital letters, digits and underscores. The prefix
/// `PEGEL_` avoids collisions with the journal's own fields.
fn field_name(name: &str) -> String {
    let allowed = name.chars().map(|c| match c.to_ascii_uppercase() {
        c @ ('A'..='Z' | '0'..='9') => c,
        _ => '_',
    });
    "PEGEL_".chars().chain(allowed).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> LogRecord {
        LogRecord {
            priority: 4,
            message: "cannot remove the socket".to_owned(),
            fields: vec![
                ("path", "/x".to_owned()),
                ("os.error", "two\nlines".to_owned()),
            ],
            module: "pegel_serve::socket",
            file: "a.rs",
            line: 7,
        }
    }

    #[test]
    fn a_value_with_line_breaks_is_preceded_by_its_length() {
        let mut out = Vec::new();
        append_field(&mut out, "A", "b=c");
        append_field(&mut out, "D", "e\nf");
        assert_eq!(out, b"A=b=c\nD\n\x03\0\0\0\0\0\0\0e\nf\n");
    }

    #[test]
    fn a_message_has_priority_source_and_fields() {
        let mut expected = format!(
            "PRIORITY=4\nSYSLOG_IDENTIFIER=pegel\nSYSLOG_PID={}\nMESSAGE\n",
            std::process::id()
        )
        .into_bytes();
        let text = "cannot remove the socket path=/x os.error=two\nlines";
        expected.extend_from_slice(&(text.len() as u64).to_le_bytes());
        expected.extend_from_slice(text.as_bytes());
        expected.extend_from_slice(
            b"\nCODE_MODULE=pegel_serve::socket\nCODE_FILE=a.rs\nCODE_LINE=7\nPEGEL_PATH=/x\n",
        );
        expected.extend_from_slice(b"PEGEL_OS_ERROR\n\x09\0\0\0\0\0\0\0two\nlines\n");
        assert_eq!(
            String::from_utf8_lossy(&encode(&record())),
            String::from_utf8_lossy(&expected)
        );
    }

    #[test]
    fn field_names_are_valid_for_the_journal() {
        assert_eq!(field_name("_pid"), "PEGEL__PID");
        assert_eq!(field_name("größe"), "PEGEL_GR__E");
        assert_eq!(field_name(&"x".repeat(100)).len(), 64);
    }
}
