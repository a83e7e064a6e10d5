//! The settings of the sampler and their validation.

use std::collections::BTreeMap;
use std::time::Duration;

use pegel_supervisor::Supervisor;

use crate::{CollectorEntry, REGISTRY};

/// The fastest and the slowest accepted rate.
pub const RATE_MIN: Duration = Duration::from_millis(1);
pub const RATE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The settings of the sampler.
#[derive(Debug, Clone)]
pub struct CollectSettings {
    /// The interval of the fast tier.
    pub rate: Duration,
    /// By the name of the collector.
    pub collectors: BTreeMap<String, CollectorSettings>,
    /// Watches the sampler thread, and restarts the threads of threaded collectors.
    pub supervisor: Supervisor,
}

/// The settings of one collector; `None` selects the default of the registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectorSettings {
    pub enabled: Option<bool>,
    pub rate: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectSettingsError {
    #[error("unknown collector {name:?}; available are {}", collector_names())]
    UnknownCollector { name: String },
    #[error("{key} is {rate:?}; a rate must be a whole number of milliseconds from 1 ms to 24 h")]
    InvalidRate { key: String, rate: Duration },
}

fn collector_names() -> String {
    let names: Vec<&str> = REGISTRY.iter().map(|entry| entry.name).collect();
    names.join(", ")
}

impl Default for CollectSettings {
    fn default() -> CollectSettings {
        CollectSettings {
            rate: Duration::from_millis(500),
            collectors: BTreeMap::new(),
            supervisor: Supervisor::default(),
        }
    }
}

impl CollectSettings {
    pub fn check(&self) -> Result<(), CollectSettingsError> {
        check_rate("rate", self.rate)?;
        for (name, collector) in &self.collectors {
            if !REGISTRY.iter().any(|entry| entry.name == name) {
                return Err(CollectSettingsError::UnknownCollector { name: name.clone() });
            }
            if let Some(rate) = collector.rate {
                check_rate(&format!("collectors.{name}.rate"), rate)?;
            }
        }
        Ok(())
    }

    pub(crate) fn is_enabled(&self, entry: &CollectorEntry) -> bool {
        self.collectors
            .get(entry.name)
            .and_then(|c| c.enabled)
            .unwrap_or(true)
    }

    pub(crate) fn rate_of(&self, entry: &CollectorEntry) -> Duration {
        let chosen = self.collectors.get(entry.name).and_then(|c| c.rate);
        chosen.unwrap_or_else(|| entry.tier.rate(self.rate))
    }
}

fn check_rate(key: &str, rate: Duration) -> Result<(), CollectSettingsError> {
    // Times are whole milliseconds: any other rate would have no nominal times.
    let is_whole = rate.subsec_nanos().is_multiple_of(1_000_000);
    if is_whole && (RATE_MIN..=RATE_MAX).contains(&rate) {
        return Ok(());
    }
    Err(CollectSettingsError::InvalidRate {
        key: key.to_owned(),
        rate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, rate: Option<Duration>) -> CollectSettings {
        let mut settings = CollectSettings::default();
        let collector = CollectorSettings {
            enabled: None,
            rate,
        };
        settings.collectors.insert(name.to_owned(), collector);
        settings
    }

    #[test]
    fn a_wrong_name_is_refused_with_the_right_ones() {
        let error = with("cpus", None).check().expect_err("unknown");
        let expected = "unknown collector \"cpus\"; available are cpu, stat, memory, ";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn a_rate_without_nominal_times_is_refused() {
        for rate in [0, 1, 999_999, 1_500_000, 86_400_000_000_001] {
            let error = with("cpu", Some(Duration::from_nanos(rate)))
                .check()
                .expect_err("rate");
            assert!(
                error.to_string().starts_with("collectors.cpu.rate is "),
                "{error}"
            );
        }
        for rate in [1, 3, 700, 86_400_000] {
            assert_eq!(
                with("cpu", Some(Duration::from_millis(rate))).check(),
                Ok(())
            );
        }
    }

    #[test]
    fn slow_tiers_are_never_faster_than_the_agent() {
        let settings = CollectSettings {
            rate: Duration::from_secs(10),
            ..CollectSettings::default()
        };
        assert_eq!(
            settings.rate_of(&crate::vmstat::ENTRY),
            Duration::from_secs(10)
        );
        assert_eq!(
            CollectSettings::default().rate_of(&crate::vmstat::ENTRY),
            Duration::from_secs(5)
        );
        let rate = Duration::from_millis(100);
        assert_eq!(with("cpu", Some(rate)).rate_of(&crate::cpu::ENTRY), rate);
    }
}
