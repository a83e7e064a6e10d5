//! [`Setting`] for maps.

use std::collections::BTreeMap;

use crate::config_tree::{ConfigTree, ConfigValue};
use crate::problem::ConfigProblem;
use crate::setting::Setting;
use crate::yaml_value::YamlValue;

/// A map with arbitrary keys.
impl<T: Setting> Setting for BTreeMap<String, T> {
    fn accepts() -> String {
        format!("a map; each value: {}", T::accepts())
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<Self> {
        let entries = match &tree.value {
            ConfigValue::Map(entries) => entries.as_slice(),
            ConfigValue::Null => &[],
            _ => {
                let message = format!("expected a map, found {}", tree.kind());
                problems.push(ConfigProblem::value(tree, message, &Self::accepts()));
                return None;
            }
        };
        // Read every value before returning, to report all problems at once.
        let read: Vec<Option<(String, T)>> = entries
            .iter()
            .map(|entry| Some((entry.key.clone(), T::read(&entry.value, problems)?)))
            .collect();
        read.into_iter().collect()
    }

    fn to_yaml(&self) -> YamlValue {
        let entries = self
            .iter()
            .map(|(key, value)| (key.clone(), value.to_yaml()));
        YamlValue::Map(entries.collect())
    }
}
