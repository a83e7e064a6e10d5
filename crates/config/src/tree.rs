//! What a configuration says, before anyone knows what it means: scalars, lists and maps, each with
//! the place where it was written.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
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

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
            Place::Variable(name) => write!(f, "${name}"),
            Place::Argument(name) => f.write_str(name),
        }
    }
}

/// A value and where it was written.
#[derive(Debug, Clone)]
pub struct Tree {
    pub place: Place,
    /// The key that leads here: `keep.memory`, `listen[1]`; empty at the top.
    pub path: String,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub enum Value {
    /// A key without a value, `null` or `~`.
    Nothing,
    /// As it was written, without quotes.
    Scalar(String),
    List(Vec<Tree>),
    Map(Vec<Entry>),
}

/// One key of a map and its value.
#[derive(Debug, Clone)]
pub struct Entry {
    pub key: String,
    /// The place of the key; the value has its own.
    pub place: Place,
    pub value: Tree,
}

impl Tree {
    /// A map that holds nothing.
    pub fn empty(place: Place) -> Tree {
        Tree {
            place,
            path: String::new(),
            value: Value::Map(Vec::new()),
        }
    }

    /// What messages call it.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Nothing => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The entry under a key of the top level.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|entry| entry.key == key)
                .map(|entry| &entry.value),
            _ => None,
        }
    }

    /// The tree that a path such as `keep.memory` leads to.
    pub fn find(&self, path: &str) -> Option<&Tree> {
        path.split('.').try_fold(self, |tree, key| tree.get(key))
    }

    /// Puts one value at the top level, in place of what the key held: this is how the environment
    /// and the command line win over files.
    pub fn set(&mut self, key: &str, text: &str, place: Place) {
        let scalar = Value::Scalar(text.to_owned());
        self.put(key, scalar, place);
    }

    /// The same for a list.
    pub fn set_list(&mut self, key: &str, texts: &[String], place: Place) {
        let items = texts
            .iter()
            .enumerate()
            .map(|(index, text)| Tree {
                place: place.clone(),
                path: format!("{}[{index}]", self.path_of(key)),
                value: Value::Scalar(text.clone()),
            })
            .collect();
        self.put(key, Value::List(items), place);
    }

    fn put(&mut self, key: &str, value: Value, place: Place) {
        let tree = Tree {
            place: place.clone(),
            path: self.path_of(key),
            value,
        };
        if !matches!(self.value, Value::Map(_)) {
            self.value = Value::Map(Vec::new());
        }
        if let Value::Map(entries) = &mut self.value {
            entries.retain(|entry| entry.key != key);
            entries.push(Entry {
                key: key.to_owned(),
                place,
                value: tree,
            });
        }
    }

    /// The map under a key of the top level, made where there is none, to be laid over in part.
    pub fn section(&mut self, key: &str, place: Place) -> &mut Tree {
        let is_map = |tree: &Tree| matches!(tree.value, Value::Map(_));
        if !self.get(key).is_some_and(is_map) {
            self.put(key, Value::Map(Vec::new()), place);
        }
        let Value::Map(entries) = &mut self.value else {
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
    pub fn remove(&mut self, key: &str) -> Option<Tree> {
        let Value::Map(entries) = &mut self.value else {
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
        let mut tree = Tree::empty(Place::Argument("--config"));
        tree.set("rate", "1s", Place::Variable("PEGEL_RATE"));
        tree.set("rate", "2s", Place::Argument("--rate"));
        let rate = tree.find("rate").expect("it was set");
        assert!(matches!(&rate.value, Value::Scalar(text) if text == "2s"));
        assert_eq!(rate.place.to_string(), "--rate");
        assert!(tree.find("rate.more").is_none());
        let keep = tree.section("keep", Place::Argument("--keep"));
        keep.set("disk", "1d", Place::Argument("--keep"));
        keep.set_list("more", &["a".to_owned()], Place::Argument("--keep"));
        tree.section("keep", Place::Argument("--other")).set(
            "memory",
            "1m",
            Place::Argument("--other"),
        );
        for path in ["keep.disk", "keep.memory", "keep.more"] {
            assert_eq!(tree.find(path).map(|found| found.path.as_str()), Some(path));
        }
        assert!(tree.remove("rate").is_some());
        assert!(tree.remove("rate").is_none());
    }
}
