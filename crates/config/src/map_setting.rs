//! [`Setting`] for maps.

use std::collections::BTreeMap;

use crate::config_tree::{ConfigTree, ConfigValue};
use crate::problem::ConfigProblem;
use crate::setting::{Setting, map_entries};

/// A map with arbitrary keys.
impl<T: Setting> Setting for BTreeMap<String, T> {
    fn accepts() -> String {
        format!("a map; each value: {}", T::accepts())
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<Self> {
        let entries = map_entries::<Self>(tree, problems)?;
        // Read every value before returning, to report all problems at once.
        let read: Vec<Option<(String, T)>> = entries
            .iter()
            .map(|entry| Some((entry.key.clone(), T::read(&entry.value, problems)?)))
            .collect();
        read.into_iter().collect()
    }

    fn to_value(&self) -> ConfigValue {
        let entries = self
            .iter()
            .map(|(key, value)| (key.clone(), value.to_value()));
        ConfigValue::map(entries)
    }
}
