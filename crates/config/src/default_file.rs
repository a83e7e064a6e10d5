//! Generates the default configuration file: every key with its documentation, the accepted values
//! and its default. `config/pegel.yaml` is this output; a test keeps the two equal.

use crate::config_tree::ConfigValue;
use crate::setting::ConfigKey;

/// Returns the default file: loading it has the same effect as loading no file.
pub fn default_file(heading: &str, keys: &[ConfigKey]) -> String {
    let mut out = String::new();
    write_comment(&mut out, "", &heading.lines().collect::<Vec<_>>());
    for key in keys {
        out.push('\n');
        write_key(&mut out, key, "", false);
    }
    out
}

fn write_key(out: &mut String, key: &ConfigKey, indent: &str, outer_off: bool) {
    write_comment(out, indent, key.doc);
    if key.inner.is_empty() {
        write_comment(out, indent, &[&format!("Accepted: {}", key.accepts)]);
    }
    let off = outer_off || key.default == ConfigValue::Null;
    out.push_str(indent);
    out.push_str(if off { "#" } else { "" });
    out.push_str(key.name);
    out.push(':');
    if key.inner.is_empty() {
        out.push(' ');
        match (&key.default, key.example) {
            (ConfigValue::Null, example) => out.push_str(example.unwrap_or("~")),
            (default, _) => out.push_str(&default.to_inline()),
        }
        out.push('\n');
        return;
    }
    out.push('\n');
    for inner in &key.inner {
        write_key(out, inner, &format!("{indent}  "), off);
    }
}

/// Writes a comment, with its lines rewrapped to a fixed width.
fn write_comment(out: &mut String, indent: &str, lines: &[&str]) {
    const WIDTH: usize = 98;
    let mut line = String::new();
    for word in lines.iter().flat_map(|line| line.split_whitespace()) {
        if !line.is_empty() && indent.len() + 2 + line.chars().count() + 1 + word.len() > WIDTH {
            out.push_str(&format!("{indent}# {line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        out.push_str(&format!("{indent}# {line}\n"));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::{ConfigOrigin, ConfigTree, Section, Setting, TimeSpan, load, read, yaml};

    crate::settings! {
        /// Shared keys.
        struct SharedSection {
            /// Where.
            place: Option<String> = None => "here",
        }
    }

    crate::settings! {
        /// Inside.
        struct InnerSection {
            /// How long.
            time: TimeSpan = TimeSpan::seconds(300),
            names: Vec<String> = vec!["a b".into()],
        }
    }

    crate::settings! {
        struct OuterSection {
            ..shared: SharedSection;
            /// On or off.
            on: bool = true,
            /// First line.
            /// Second line.
            inner: InnerSection = InnerSection::default(),
        }
    }

    fn parse(text: &str) -> ConfigTree {
        yaml::parse(&Arc::from(Path::new("f.yaml")), text).expect("valid YAML")
    }

    #[test]
    fn shows_every_key_with_its_default() {
        let text = default_file("Two\nlines, joined.", &<OuterSection as Section>::keys());
        let expected = "\
# Two lines, joined.

# Where.
# Accepted: text
#place: here

# On or off.
# Accepted: true or false (also yes, no, on, off, 1, 0)
on: true

# First line. Second line.
inner:
  # How long.
  # Accepted: a length of time such as 500ms, 0.5s, 5m, 2h, 2d; a plain number is seconds
  time: 5m
  # Accepted: a list; each item: text
  names: [\"a b\"]
";
        assert_eq!(text, expected);
        let read_back: OuterSection = read(&parse(&text)).expect("the default file is valid");
        assert_eq!(read_back.to_value(), OuterSection::default().to_value());
    }

    #[test]
    fn reads_parts_and_inner_sections() {
        let outer: OuterSection =
            read(&parse("place: x\non: 0\ninner: {time: 0.5, names: one}\n")).expect("valid");
        assert_eq!(outer.shared.place.as_deref(), Some("x"));
        assert!(!outer.on);
        assert_eq!(outer.inner.time.duration().as_millis(), 500);
        assert_eq!(outer.inner.names, ["one"]);
    }

    #[test]
    fn finds_every_mistake_at_once() {
        let error = read::<OuterSection>(&parse(
            "onn: 1\ninner: {time: soon, name: [a, '']}\non: [1]\n",
        ))
        .expect_err("three mistakes");
        let expected = "\
f.yaml:1:1: onn: unknown key; did you mean `on`?
  accepted: place, on, inner
f.yaml:2:15: inner.time: \"soon\" is not a length of time
  accepted: a length of time such as 500ms, 0.5s, 5m, 2h, 2d; a plain number is seconds
f.yaml:2:21: inner.name: unknown key; did you mean `names`?
  accepted: time, names
f.yaml:3:5: on: expected a single value, found a list
  accepted: true or false (also yes, no, on, off, 1, 0)";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_file_that_is_not_there_is_said_so() {
        let error = load(Path::new("/nonexistent/pegel.yaml")).expect_err("no such file");
        let expected =
            "/nonexistent/pegel.yaml: cannot read the file: No such file or directory (os error 2)";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn arguments_are_named_when_they_are_wrong() {
        let mut tree = ConfigTree::empty(ConfigOrigin::Default);
        tree.set("on", "maybe", ConfigOrigin::Argument("--on"));
        let error = read::<OuterSection>(&tree).expect_err("neither");
        assert!(
            error
                .to_string()
                .starts_with("--on: on: \"maybe\" is neither true nor false")
        );
        assert!(matches!(tree.value, ConfigValue::Map(_)));
    }
}
