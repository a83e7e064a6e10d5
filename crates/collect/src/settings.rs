//! The settings of the sampler and their validation.

use std::collections::BTreeMap;
use std::time::Duration;

use pegel_config::SampleInterval;
use pegel_supervisor::Supervisor;

use crate::{CollectorEntry, CollectorSettings, REGISTRY};

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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectSettingsError {
    #[error("unknown collector {name:?}; available are {}", collector_names())]
    UnknownCollector { name: String },
    #[error("rate is {rate:?}; a rate must be a whole number of milliseconds from 1 ms to 24 h")]
    InvalidRate { rate: Duration },
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
        check_rate(self.rate)?;
        let is_known = |name: &String| REGISTRY.iter().any(|entry| entry.name == name);
        match self.collectors.keys().find(|name| !is_known(name)) {
            Some(name) => Err(CollectSettingsError::UnknownCollector { name: name.clone() }),
            None => Ok(()),
        }
    }

    pub(crate) fn is_enabled(&self, entry: &CollectorEntry) -> bool {
        self.collectors
            .get(entry.name)
            .and_then(|c| c.enabled)
            .unwrap_or(true)
    }

    pub(crate) fn rate_of(&self, entry: &CollectorEntry) -> Duration {
        let settings = self.collectors.get(entry.name);
        let chosen = settings.and_then(|settings| settings.rate.as_ref());
        chosen.map_or_else(|| entry.tier.rate(self.rate), SampleInterval::duration)
    }
}

fn check_rate(rate: Duration) -> Result<(), CollectSettingsError> {
    // Times are whole milliseconds: any other rate would have no nominal times.
    let is_whole = rate.subsec_nanos().is_multiple_of(1_000_000);
    if is_whole && (RATE_MIN..=RATE_MAX).contains(&rate) {
        return Ok(());
    }
    Err(CollectSettingsError::InvalidRate { rate })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::{cpu, vmstat};

    fn with(name: &str, rate: Option<SampleInterval>) -> CollectSettings {
        let mut settings = CollectSettings::default();
        let collector = CollectorSettings {
            enabled: None,
            rate,
        };
        settings.collectors.insert(name.to_owned(), collector);
        settings
    }

    fn every(rate: Duration) -> CollectSettings {
        CollectSettings {
            rate,
            ..CollectSettings::default()
        }
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
            let error = every(Duration::from_nanos(rate)).check().expect_err("rate");
            assert!(error.to_string().starts_with("rate is "), "{error}");
        }
        for rate in [1, 3, 700, 86_400_000] {
            assert_eq!(every(Duration::from_millis(rate)).check(), Ok(()));
        }
    }

    #[test]
    fn slow_tiers_are_never_faster_than_the_agent() {
        assert_eq!(
            every(Duration::from_secs(10)).rate_of(&vmstat::ENTRY),
            Duration::from_secs(10)
        );
        assert_eq!(
            CollectSettings::default().rate_of(&vmstat::ENTRY),
            Duration::from_secs(5)
        );
        let rate = SampleInterval::from_millis(100);
        let settings = with("cpu", Some(rate.clone()));
        assert_eq!(settings.rate_of(&cpu::ENTRY), rate.duration());
    }
}
