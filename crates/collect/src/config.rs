//! The `collectors:` key: which collectors run, and how often.

use std::collections::BTreeMap;
use std::time::Duration;

use pegel_config::{Problem, Rate, Setting, Tree, Value, Written, settings};

use crate::{CollectorSettings, REGISTRY, Settings};

settings! {
    /// What may be said about one collector.
    pub struct CollectorConfig {
        /// Whether it runs. Without this key the collector's own default holds.
        enabled: Option<bool> = None => "false",
        /// How often it runs. Without this key: the rate of its tier.
        rate: Option<Rate> = None => "5s",
    }
}

/// What the configuration says about collectors, by name.
#[derive(Debug, Clone, Default)]
pub struct Collectors(BTreeMap<String, CollectorConfig>);

impl Collectors {
    /// As the sampler takes it, with the rate of the fast tier.
    pub fn settings(&self, rate: Duration) -> Settings {
        let collectors = self.0.iter().map(|(name, config)| {
            let rate = config.rate.as_ref().map(Rate::duration);
            (
                name.clone(),
                CollectorSettings {
                    enabled: config.enabled,
                    rate,
                },
            )
        });
        Settings {
            rate,
            collectors: collectors.collect(),
            ..Settings::default()
        }
    }
}

impl Setting for Collectors {
    fn accepts() -> String {
        let names: Vec<&str> = REGISTRY.iter().map(|entry| entry.name).collect();
        format!(
            "a map from collectors ({}) to enabled and rate, such as {{cpu: {{rate: 100ms}}}}",
            names.join(", ")
        )
    }

    fn read(tree: &Tree, problems: &mut Vec<Problem>) -> Option<Collectors> {
        let entries = match &tree.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Nothing => &[],
            _ => {
                let message = format!("{} where a map is needed", tree.kind());
                problems.push(Problem::value(tree, message, &Collectors::accepts()));
                return None;
            }
        };
        let before = problems.len();
        let mut collectors = Collectors::default();
        for entry in entries {
            if REGISTRY.iter().any(|known| known.name == entry.key) {
                if let Some(config) = CollectorConfig::read(&entry.value, problems) {
                    collectors.0.insert(entry.key.clone(), config);
                }
            } else {
                let known = REGISTRY.iter().map(|known| known.name);
                problems.push(Problem::unknown_key(
                    &entry.place,
                    &tree.path,
                    &entry.key,
                    known,
                ));
            }
        }
        (problems.len() == before).then_some(collectors)
    }

    fn written(&self) -> Written {
        let entries = self
            .0
            .iter()
            .map(|(name, config)| (name.clone(), config.written()));
        Written::Map(entries.collect())
    }
}
