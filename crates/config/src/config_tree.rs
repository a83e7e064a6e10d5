//! What a configuration says, before anyone knows what it means: scalars, lists and maps, each with
//! the place where it was written.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// In a file; line and column count from 1.
    File {
        path: Arc<Path>,
        line: u64,
        column: u64,
    },
    /// In an environment variable.
    Variable(&'static str),
    /// On the command line.
    Argument(&'static str),
}

impl fmt::Display for ConfigOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigOrigin::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
            ConfigOrigin::Variable(name) => write!(f, "${name}"),
            ConfigOrigin::Argument(name) => f.write_str(name),
        }
    }
}

/// A value and where it was written.
#[derive(Debug, Clone)]
pub struct ConfigTree {
    pub origin: ConfigOrigin,
    /// The key that leads here: `keep.memory`, `listen[1]`; empty at the top.
    pub path: String,
    pub value: ConfigValue,
}

#[derive(Debug, Clone)]
pub enum ConfigValue {
    /// A key without a value, `null` or `~`.
    Null,
    /// As it was written, without quotes.
    Scalar(String),
    List(Vec<ConfigTree>),
    Map(Vec<ConfigEntry>),
}

/// One key of a map and its value.
#[derive(Debug, Clone)]
pub struct ConfigEntry {
    pub key: String,
    /// The place of the key; the value has its own.
    pub origin: ConfigOrigin,
    pub value: ConfigTree,
}

impl ConfigTree {
    /// A map that holds nothing.
    pub fn empty(place: ConfigOrigin) -> ConfigTree {
        ConfigTree {
            origin: place,
            path: String::new(),
            value: ConfigValue::Map(Vec::new()),
        }
    }

    /// What messages call it.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            ConfigValue::Null => "nothing",
            ConfigValue::Scalar(_) => "a single value",
            ConfigValue::List(_) => "a list",
            ConfigValue::Map(_) => "a map",
        }
    }

    /// The entry under a key of the top level.
    pub fn get(&self, key: &str) -> Option<&ConfigTree> {
        match &self.value {
            ConfigValue::Map(entries) => entries
                .iter()
                .find(|entry| entry.key == key)
                .map(|entry| &entry.value),
            _ => None,
        }
    }

    /// The tree that a path such as `keep.memory` leads to.
    pub fn find(&self, path: &str) -> Option<&ConfigTree> {
        path.split('.').try_fold(self, |tree, key| tree.get(key))
    }

    /// Puts one value at the top level, in place of what the key held: this is how the environment
    /// and the command line win over files.
    pub fn set(&mut self, key: &str, text: &str, place: ConfigOrigin) {
        let scalar = ConfigValue::Scalar(text.to_owned());
        self.insert(key, scalar, place);
    }

    /// The same for a list.
    pub fn set_list(&mut self, key: &str, texts: &[String], place: ConfigOrigin) {
        let items = texts
            .iter()
            .enumerate()
            .map(|(index, text)| ConfigTree {
                origin: place.clone(),
                path: format!("{}[{index}]", self.path_of(key)),
                value: ConfigValue::Scalar(text.clone()),
            })
            .collect();
        self.insert(key, ConfigValue::List(items), place);
    }

    fn insert(&mut self, key: &str, value: ConfigValue, place: ConfigOrigin) {
        let tree = ConfigTree {
            origin: place.clone(),
            path: self.path_of(key),
            value,
        };
        if !matches!(self.value, ConfigValue::Map(_)) {
            self.value = ConfigValue::Map(Vec::new());
        }
        if let ConfigValue::Map(entries) = &mut self.value {
            entries.retain(|entry| entry.key != key);
            entries.push(ConfigEntry {
                key: key.to_owned(),
                origin: place,
                value: tree,
            });
        }
    }

    /// The map under a key of the top level, made where there is none, to be laid over in part.
    pub fn section(&mut self, key: &str, place: ConfigOrigin) -> &mut ConfigTree {
        let is_map = |tree: &ConfigTree| matches!(tree.value, ConfigValue::Map(_));
        if !self.get(key).is_some_and(is_map) {
            self.insert(key, ConfigValue::Map(Vec::new()), place);
        }
        let ConfigValue::Map(entries) = &mut self.value else {
            unreachable!("a key was found or put there");
        };
        let at = entries.iter().position(|entry| entry.key == key);
        &mut entries[at.expect("a key was found or put there")].value
    }

    fn path_of(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// Takes a key out of the top level.
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
