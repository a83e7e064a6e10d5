//! Writes values as YAML text.

use std::fmt::Write;

/// A value to be written to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum YamlValue {
    /// Not set.
    Null,
    /// Text without quotes; quotes are added where YAML requires them.
    Scalar(String),
    List(Vec<YamlValue>),
    Map(Vec<(String, YamlValue)>),
}

impl YamlValue {
    /// Returns the value on one line, to follow `key: `.
    pub fn to_inline(&self) -> String {
        let mut out = String::new();
        self.append(&mut out);
        out
    }

    fn append(&self, out: &mut String) {
        match self {
            YamlValue::Null => out.push('~'),
            YamlValue::Scalar(text) => write_scalar(out, text),
            YamlValue::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    item.append(out);
                }
                out.push(']');
            }
            YamlValue::Map(entries) => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    write_scalar(out, key);
                    out.push_str(": ");
                    value.append(out);
                }
                out.push('}');
            }
        }
    }
}

fn write_scalar(out: &mut String, text: &str) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-' | '+');
    let starts = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '.');
    // YAML would not read these back as the same text.
    let special = matches!(text.to_ascii_lowercase().as_str(), "null" | "" | "y" | "n");
    if !special && text.starts_with(starts) && text.chars().all(plain) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // Writing to a String cannot fail.
            c if c.is_control() => _ = write!(out, "\\U{:08x}", c as u32),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_only_where_yaml_needs_it() {
        for (text, expected) in [
            ("5m", "5m"),
            ("/var/lib/pegel", "/var/lib/pegel"),
            ("127.0.0.1:1337", "\"127.0.0.1:1337\""),
            ("", "\"\""),
            ("null", "\"null\""),
            ("a \"b\"\n\u{1}", "\"a \\\"b\\\"\\n\\U00000001\""),
            ("- x", "\"- x\""),
        ] {
            assert_eq!(YamlValue::Scalar(text.into()).to_inline(), expected);
        }
        let map = YamlValue::Map(vec![("a".into(), YamlValue::List(vec![YamlValue::Null]))]);
        assert_eq!(map.to_inline(), "{a: [~]}");
    }
}
