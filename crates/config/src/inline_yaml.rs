//! Writes values as YAML text, on one line.

use std::fmt::Write;

use crate::config_tree::ConfigValue;

impl ConfigValue {
    /// Returns the value on one line, to follow `key: `. Quotes are added where YAML requires them.
    pub fn to_inline(&self) -> String {
        let mut out = String::new();
        self.append(&mut out);
        out
    }

    fn append(&self, out: &mut String) {
        match self {
            ConfigValue::Null => out.push('~'),
            ConfigValue::Scalar(text) => write_scalar(out, text),
            ConfigValue::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    item.value.append(out);
                }
                out.push(']');
            }
            ConfigValue::Map(entries) => {
                out.push('{');
                for (index, entry) in entries.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    write_scalar(out, &entry.key);
                    out.push_str(": ");
                    entry.value.value.append(out);
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
            assert_eq!(ConfigValue::Scalar(text.into()).to_inline(), expected);
        }
        let list = ConfigValue::List(vec![ConfigValue::Null.into()]);
        let map = ConfigValue::map([("a".to_owned(), list)]);
        assert_eq!(map.to_inline(), "{a: [~]}");
    }
}
