//! Checks the keys of maps in rule files and in their unit tests.

use pegel_config::{ConfigProblem, ConfigTree, ConfigValue};

/// Reports every key that is not known, and a value that is not a map. `expected` names the map.
pub(crate) fn check_keys(
    tree: &ConfigTree,
    known: &[&str],
    expected: &str,
    problems: &mut Vec<ConfigProblem>,
) {
    match &tree.value {
        ConfigValue::Map(entries) => {
            let unknown = entries
                .iter()
                .filter(|entry| !known.contains(&entry.key.as_str()));
            problems.extend(unknown.map(|entry| {
                let known = known.iter().copied();
                ConfigProblem::unknown_key(&entry.origin, &tree.path, &entry.key, known)
            }));
        }
        ConfigValue::Null => {}
        _ => {
            let message = format!("expected {expected}, found {}", tree.kind());
            problems.push(ConfigProblem::new(tree, message, ""));
        }
    }
}
