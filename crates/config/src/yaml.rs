//! Parses YAML text into a [`ConfigTree`]. The only file that depends on the YAML library.
//!
//! Scalars keep their source text, so that `007` or `1e3` reach the setting as written. Depth,
//! nodes and aliases are bounded: a file with expanding aliases is an error.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, MessageFormatter, Spanned, UserMessageFormatter};

use crate::config_tree::{ConfigEntry, ConfigOrigin, ConfigTree, ConfigValue, join_path};
use crate::problem::ConfigProblem;

/// The maximum nesting depth of maps and lists.
const DEPTH_MAX: usize = 32;

/// Parses one document; an empty document is an empty map.
pub(crate) fn parse(path: &Arc<Path>, text: &str) -> Result<ConfigTree, ConfigProblem> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_documents: 1,
            max_nodes: 100_000,
            max_aliases: 1_000,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        with_snippet: false,
    };
    let reader = YamlReader { path, text };
    match serde_saphyr::from_str_with_options::<Option<RawNode>>(text, options) {
        Ok(Some(raw)) => Ok(reader.tree(raw, String::new())),
        Ok(None) => Ok(ConfigTree::empty(ConfigOrigin::File {
            path: path.clone(),
            line: 1,
            column: 1,
        })),
        Err(error) => Err(reader.problem(&error)),
    }
}

struct YamlReader<'a> {
    path: &'a Arc<Path>,
    text: &'a str,
}

impl YamlReader<'_> {
    fn origin(&self, at: Location) -> ConfigOrigin {
        // The library reports unknown positions as 0; messages count from 1.
        ConfigOrigin::File {
            path: self.path.clone(),
            line: at.line().max(1),
            column: at.column().max(1),
        }
    }

    fn tree(&self, raw: RawNode, path: String) -> ConfigTree {
        let origin = self.origin(raw.0.referenced);
        let value = match raw.0.value {
            RawValue::Null => ConfigValue::Null,
            RawValue::Text(text) => ConfigValue::Scalar(text),
            RawValue::Plain => ConfigValue::Scalar(self.source_text(raw.0.defined)),
            RawValue::List(items) => ConfigValue::List(
                items
                    .into_iter()
                    .enumerate()
                    .map(|(index, item)| self.tree(item, format!("{path}[{index}]")))
                    .collect(),
            ),
            RawValue::Map(entries) => ConfigValue::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| self.entry(key, value, &path))
                    .collect(),
            ),
        };
        ConfigTree {
            origin,
            path,
            value,
        }
    }

    fn entry(&self, key: Spanned<String>, value: RawNode, inside: &str) -> ConfigEntry {
        ConfigEntry {
            origin: self.origin(key.referenced),
            value: self.tree(value, join_path(inside, &key.value)),
            key: key.value,
        }
    }

    /// Returns the source text of a number or Boolean: `007` and `1e3` are kept as written.
    fn source_text(&self, at: Location) -> String {
        let span = at.span();
        let slice = span
            .byte_offset()
            .zip(span.byte_len())
            .and_then(|(start, len)| {
                let start = usize::try_from(start).ok()?;
                self.text.get(start..start + usize::try_from(len).ok()?)
            });
        slice.unwrap_or_default().trim().to_owned()
    }

    fn problem(&self, error: &serde_saphyr::Error) -> ConfigProblem {
        let error = error.without_snippet();
        ConfigProblem {
            origin: Some(self.origin(error.location().unwrap_or(Location::UNKNOWN))),
            key: String::new(),
            message: format!("not valid YAML: {}", explain(error)),
            hint: String::new(),
        }
    }
}

/// Returns the library's message, or our own where the library's describes its internals.
fn explain(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error::{Budget, DuplicateMappingKey};
    use serde_saphyr::budget::BudgetBreach::{Depth, Documents};
    match error {
        DuplicateMappingKey { key: Some(key), .. } => format!("duplicate key `{key}`"),
        Budget {
            breach: Depth { .. },
            ..
        } => {
            format!("maps and lists nest more than {DEPTH_MAX} deep")
        }
        Budget {
            breach: Documents { .. },
            ..
        } => "second document (`---`); a file must contain exactly one".to_owned(),
        Budget { .. } => {
            "the file is too large, or its aliases (`*name`) expand to too much".to_owned()
        }
        error => UserMessageFormatter.format_message(error).into_owned(),
    }
}

/// A value as deserialised by the library, with its location.
struct RawNode(Spanned<RawValue>);

enum RawValue {
    Null,
    /// A string, quoted or plain.
    Text(String),
    /// A number or Boolean; its text is taken from the source.
    Plain,
    List(Vec<RawNode>),
    Map(Vec<(Spanned<String>, RawNode)>),
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawNode, D::Error> {
        Spanned::deserialize(deserializer).map(RawNode)
    }
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawValue, D::Error> {
        deserializer.deserialize_any(RawValueVisitor)
    }
}

struct RawValueVisitor;

impl<'de> Visitor<'de> for RawValueVisitor {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a map")
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_none<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<RawValue, E> {
        Ok(RawValue::Plain)
    }

    fn visit_i64<E>(self, _: i64) -> Result<RawValue, E> {
        Ok(RawValue::Plain)
    }

    fn visit_u64<E>(self, _: u64) -> Result<RawValue, E> {
        Ok(RawValue::Plain)
    }

    fn visit_i128<E>(self, _: i128) -> Result<RawValue, E> {
        Ok(RawValue::Plain)
    }

    fn visit_u128<E>(self, _: u128) -> Result<RawValue, E> {
        Ok(RawValue::Plain)
    }

    fn visit_f64<E>(self, _: f64) -> Result<RawValue, E> {
        Ok(RawValue::Plain)
    }

    fn visit_str<E>(self, text: &str) -> Result<RawValue, E> {
        Ok(RawValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RawValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(RawValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(RawValue::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Result<ConfigTree, ConfigProblem> {
        parse(&Arc::from(Path::new("f.yaml")), text)
    }

    fn scalar(tree: &ConfigTree, path: &str) -> (String, String) {
        let found = tree.find(path).unwrap_or_else(|| panic!("no {path}"));
        match &found.value {
            ConfigValue::Scalar(text) => (text.clone(), found.origin.to_string()),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn scalars_keep_their_written_form_and_place() {
        let tree = parse_text(
            "rate: 0.50\nnode: 007\nquoted: \"a\\tb\"\nyes: true\nbig: 99999999999999999999\nkeep: {memory: 5m,  disk: 1e3}\n",
        )
        .expect("valid");
        for (path, text, place) in [
            ("rate", "0.50", "f.yaml:1:7"),
            ("node", "007", "f.yaml:2:7"),
            ("quoted", "a\tb", "f.yaml:3:9"),
            ("yes", "true", "f.yaml:4:6"),
            ("big", "99999999999999999999", "f.yaml:5:6"),
            ("keep.memory", "5m", "f.yaml:6:16"),
            ("keep.disk", "1e3", "f.yaml:6:27"),
        ] {
            assert_eq!(
                scalar(&tree, path),
                (text.to_owned(), place.to_owned()),
                "{path}"
            );
        }
    }

    #[test]
    fn aliases_and_umlauts_do_not_confuse_the_text() {
        let tree = parse_text("a: \"äöü\"\nb: &x 12\nc: *x\nd: 3\n").expect("valid");
        assert_eq!(scalar(&tree, "c"), ("12".into(), "f.yaml:3:4".into()));
        assert_eq!(scalar(&tree, "d").0, "3");
    }

    #[test]
    fn an_empty_file_is_an_empty_map() {
        for text in ["", "# only a comment\n", "---\n"] {
            let tree = parse_text(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
            assert!(
                matches!(&tree.value, ConfigValue::Map(entries) if entries.is_empty()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn refuses_bombs_and_nonsense_with_a_place() {
        let deep = format!("a: {}{}\n", "[".repeat(100), "]".repeat(100));
        let mut bomb = String::from("a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n");
        for level in 1..9 {
            let inner = vec![format!("*a{}", level - 1); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
        }
        for text in [
            "a: [1, 2\n",
            "a: 1\na: 2\n",
            "a: b: c\n",
            "a: \"x\n",
            "a: *nope\n",
            &deep,
            &bomb,
        ] {
            let problem = parse_text(text).expect_err("not valid");
            let message = problem.to_string();
            assert!(message.starts_with("f.yaml:"), "{message}");
            assert!(message.contains(": not valid YAML: "), "{message}");
        }
    }
}
