use std::collections::BTreeMap;

use crate::problem::Problem;
use crate::setting::Setting;
use crate::tree::{Tree, Value};
use crate::written::Written;

/// A map with keys of the writer's own.
impl<T: Setting> Setting for BTreeMap<String, T> {
    fn accepts() -> String {
        format!("a map; each value: {}", T::accepts())
    }

    fn read(tree: &Tree, problems: &mut Vec<Problem>) -> Option<Self> {
        let entries = match &tree.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Nothing => &[],
            _ => {
                let message = format!("{} where a map is needed", tree.kind());
                problems.push(Problem::value(tree, message, &Self::accepts()));
                return None;
            }
        };
        // Every value is read, so that all mistakes are found.
        let read: Vec<Option<(String, T)>> = entries
            .iter()
            .map(|entry| Some((entry.key.clone(), T::read(&entry.value, problems)?)))
            .collect();
        read.into_iter().collect()
    }

    fn written(&self) -> Written {
        let entries = self
            .iter()
            .map(|(key, value)| (key.clone(), value.written()));
        Written::Map(entries.collect())
    }
}
