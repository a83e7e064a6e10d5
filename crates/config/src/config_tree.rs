//! The untyped configuration: scalars, lists and maps, each with its origin (file position,
//! environment variable or argument). Built by [`load`](crate::load), read by
//! [`Setting::read`](crate::Setting::read); [`Setting::to_value`](crate::Setting::to_value) writes
//! settings back in the same form.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The origin of a value; its `Display` form opens every error message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// A position in a file; line and column count from 1.
    File {
        path: Arc<Path>,
        line: u64,
        column: u64,
    },
    /// An environment variable.
    Variable(&'static str),
    /// A command-line argument.
    Argument(&'static str),
    /// No source: a default, or a value to be written.
    Default,
}

impl fmt::Display for ConfigOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigOrigin::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
            ConfigOrigin::Variable(name) => write!(f, "${name}"),
            ConfigOrigin::Argument(name) => f.write_str(name),
            ConfigOrigin::Default => f.write_str("default"),
        }
    }
}

/// A value, its key path and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigTree {
    pub origin: ConfigOrigin,
    /// The path of keys to this value, such as `keep.memory` or `listen[1]`; empty at the top.
    pub path: String,
    pub value: ConfigValue,
}

/// The shape of a value; scalars are not interpreted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigValue {
    /// A key without a value, `null` or `~`.
    Null,
    /// The source text, without quotes.
    Scalar(String),
    List(Vec<ConfigTree>),
    Map(Vec<ConfigEntry>),
}

/// One key of a map and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEntry {
    pub key: String,
    /// The origin of the key; the value has its own.
    pub origin: ConfigOrigin,
    pub value: ConfigTree,
}

impl From<ConfigValue> for ConfigTree {
    fn from(value: ConfigValue) -> ConfigTree {
        ConfigTree {
            origin: ConfigOrigin::Default,
            path: String::new(),
            value,
        }
    }
}

impl ConfigValue {
    /// Returns a map to be written.
    pub fn map(entries: impl IntoIterator<Item = (String, ConfigValue)>) -> ConfigValue {
        let entry = |(key, value): (String, ConfigValue)| ConfigEntry {
            key,
            origin: ConfigOrigin::Default,
            value: value.into(),
        };
        ConfigValue::Map(entries.into_iter().map(entry).collect())
    }

    /// Returns the entries of a map; none for any other shape.
    pub fn entries(&self) -> &[ConfigEntry] {
        match self {
            ConfigValue::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Calls `visit` for each value that is not a map with entries, with its path: the keys joined
    /// with dots.
    pub fn visit_leaves(&self, visit: &mut impl FnMut(&str, &ConfigValue)) {
        self.visit_below("", visit);
    }

    fn visit_below(&self, path: &str, visit: &mut impl FnMut(&str, &ConfigValue)) {
        for entry in self.entries() {
            entry
                .value
                .value
                .visit_below(&join_path(path, &entry.key), visit);
        }
        if self.entries().is_empty() {
            visit(path, self);
        }
    }
}

/// Returns the path of a key inside a map, whose own path is empty at the top.
pub(crate) fn join_path(inside: &str, key: &str) -> String {
    if inside.is_empty() {
        key.to_owned()
    } else {
        format!("{inside}.{key}")
    }
}

impl ConfigTree {
    /// Returns an empty map.
    pub fn empty(origin: ConfigOrigin) -> ConfigTree {
        ConfigTree {
            origin,
            path: String::new(),
            value: ConfigValue::Map(Vec::new()),
        }
    }

    /// Returns the name of the value's shape for error messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            ConfigValue::Null => "nothing",
            ConfigValue::Scalar(_) => "a single value",
            ConfigValue::List(_) => "a list",
            ConfigValue::Map(_) => "a map",
        }
    }

    /// Returns the value of a key at the top level.
    pub fn get(&self, key: &str) -> Option<&ConfigTree> {
        let mut entries = self.value.entries().iter();
        entries
            .find(|entry| entry.key == key)
            .map(|entry| &entry.value)
    }

    /// Returns the value at a path such as `keep.memory`.
    pub fn find(&self, path: &str) -> Option<&ConfigTree> {
        path.split('.').try_fold(self, |tree, key| tree.get(key))
    }

    /// Sets a scalar at the top level and replaces any earlier value of the key. The environment
    /// and the command line override files this way.
    pub fn set(&mut self, key: &str, text: &str, origin: ConfigOrigin) {
        let scalar = ConfigValue::Scalar(text.to_owned());
        self.insert(key, scalar, origin);
    }

    /// Sets a list at the top level and replaces any earlier value of the key.
    pub fn set_list(&mut self, key: &str, texts: &[String], origin: ConfigOrigin) {
        let items = texts
            .iter()
            .enumerate()
            .map(|(index, text)| ConfigTree {
                origin: origin.clone(),
                path: format!("{}[{index}]", join_path(&self.path, key)),
                value: ConfigValue::Scalar(text.clone()),
            })
            .collect();
        self.insert(key, ConfigValue::List(items), origin);
    }

    fn insert(&mut self, key: &str, value: ConfigValue, origin: ConfigOrigin) {
        let tree = ConfigTree {
            origin: origin.clone(),
            path: join_path(&self.path, key),
            value,
        };
        if !matches!(self.value, ConfigValue::Map(_)) {
            self.value = ConfigValue::Map(Vec::new());
        }
        if let ConfigValue::Map(entries) = &mut self.value {
            entries.retain(|entry| entry.key != key);
            entries.push(ConfigEntry {
                key: key.to_owned(),
                origin,
                value: tree,
            });
        }
    }

    /// Returns the map under a key of the top level so that single keys of it can be set. Any other
    /// value of the key is replaced by an empty map.
    pub fn section(&mut self, key: &str, origin: ConfigOrigin) -> &mut ConfigTree {
        let is_map = |tree: &ConfigTree| matches!(tree.value, ConfigValue::Map(_));
        if !self.get(key).is_some_and(is_map) {
            self.insert(key, ConfigValue::Map(Vec::new()), origin);
        }
        let ConfigValue::Map(entries) = &mut self.value else {
            unreachable!("the key was found or inserted above");
        };
        let at = entries.iter().position(|entry| entry.key == key);
        &mut entries[at.expect("the key was found or inserted above")].value
    }

    /// Removes a key from the top level and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<ConfigTree> {
        let ConfigValue::Map(entries) = &mut self.value else {
            return None;
        };
        let at = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(at).value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_layer_replaces_what_a_key_held() {
        let mut tree = ConfigTree::empty(ConfigOrigin::Argument("--config"));
        tree.set("rate", "1s", ConfigOrigin::Variable("PEGEL_RATE"));
        tree.set("rate", "2s", ConfigOrigin::Argument("--rate"));
        let rate = tree.find("rate").expect("it was set");
        assert!(matches!(&rate.value, ConfigValue::Scalar(text) if text == "2s"));
        assert_eq!(rate.origin.to_string(), "--rate");
        assert!(tree.find("rate.more").is_none());
        let keep = tree.section("keep", ConfigOrigin::Argument("--keep"));
        keep.set("disk", "1d", ConfigOrigin::Argument("--keep"));
        keep.set_list("more", &["a".to_owned()], ConfigOrigin::Argument("--keep"));
        tree.section("keep", ConfigOrigin::Argument("--other")).set(
            "memory",
            "1m",
            ConfigOrigin::Argument("--other"),
        );
        for path in ["keep.disk", "keep.memory", "keep.more"] {
            assert_eq!(tree.find(path).map(|found| found.path.as_str()), Some(path));
        }
        assert!(tree.remove("rate").is_some());
        assert!(tree.remove("rate").is_none());
    }
}
