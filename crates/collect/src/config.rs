//! The `collectors:` key: which collectors run, and how often.

use std::collections::BTreeMap;

use pegel_config::{
    ConfigProblem, ConfigTree, ConfigValue, SampleInterval, Setting, map_entries, settings,
};

use crate::REGISTRY;

settings! {
    /// The settings of one collector.
    pub struct CollectorSettings {
        /// Whether it runs. Default: the collector's own default.
        enabled: Option<bool> = None => "false",
        /// How often it runs. Default: the rate of its tier.
        rate: Option<SampleInterval> = None => "5s",
    }
}

/// The settings of the collectors, by name.
#[derive(Debug, Clone, Default)]
pub struct CollectorsConfig(pub BTreeMap<String, CollectorSettings>);

impl Setting for CollectorsConfig {
    fn accepts() -> String {
        "a map from collectors to enabled and rate, such as {cpu: {rate: 100ms}}; docs/metrics.md has \
         the collectors"
            .to_owned()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<CollectorsConfig> {
        let entries = map_entries::<CollectorsConfig>(tree, problems)?;
        let before = problems.len();
        let mut collectors = CollectorsConfig::default();
        for entry in entries {
            if REGISTRY.iter().any(|known| known.name == entry.key) {
                if let Some(config) = CollectorSettings::read(&entry.value, problems) {
                    collectors.0.insert(entry.key.clone(), config);
                }
            } else {
                let known = REGISTRY.iter().map(|known| known.name);
                let mut problem =
                    ConfigProblem::unknown_key(&entry.origin, &tree.path, &entry.key, known);
                // There are many: the nearest one is enough here.
                problem.hint = "accepted: the collectors in docs/metrics.md".to_owned();
                problems.push(problem);
            }
        }
        (problems.len() == before).then_some(collectors)
    }

    fn to_value(&self) -> ConfigValue {
        self.0.to_value()
    }
}
