//! The memory limit of the agent's cgroup, and the limits of the configuration that fit into it.
//!
//! With the defaults, an agent under full load uses up to 640 MiB. If the cgroup permits less,
//! every limit on bytes, series or connections gets a proportional share of what the agent's own
//! code leaves. Keys that were set keep their values.

use std::num::NonZeroU32;

use pegel_config::ByteSize;
use pegel_ingest::statsd::StatsdListenOptions;
use pegel_metric::quantity;
use pegel_rules::AlertSettings;
use pegel_serve::ServeSettings;
use pegel_snapshot::cgroup_memory_limit;
use pegel_tree::TreeSettings;

use crate::agent_settings::host;
use crate::config::Config;
use crate::config_sources::EnvironmentLookup;

/// Maximum memory use of an agent with the defaults.
const DEFAULT_BYTES_MAX: u64 = 640 << 20;
/// Memory use of an agent without data.
const BASE_BYTES: u64 = 16 << 20;
/// With less memory, no query over a few hundred series can be answered.
const QUERY_BYTES_MIN: u64 = 1 << 20;
/// With less memory the agent refuses to start.
pub(crate) const MEMORY_MIN: u64 = 24 << 20;

/// A memory limit that is lower than what the defaults may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryLimit(pub u64);

impl MemoryLimit {
    /// Reads the lowest limit of the agent's cgroup and its parents; `None` if the defaults fit.
    pub(crate) fn read(environment: EnvironmentLookup<'_>) -> Option<MemoryLimit> {
        let limit = cgroup_memory_limit(&host(environment).root)?;
        (limit < DEFAULT_BYTES_MAX).then_some(MemoryLimit(limit))
    }

    /// The share of a value that is `default` with [`DEFAULT_BYTES_MAX`], but at least `least`.
    pub(crate) fn share(self, default: u64, least: u64) -> u64 {
        let room = self.0.saturating_sub(BASE_BYTES);
        let share =
            u128::from(default) * u128::from(room) / u128::from(DEFAULT_BYTES_MAX - BASE_BYTES);
        u64::try_from(share)
            .unwrap_or(default)
            .clamp(least.min(default), default)
    }

    /// The memory of each of the queries that run at a time, of which there are fewer with little
    /// memory.
    fn query_share(self, default: u64) -> u64 {
        let queries = ServeSettings::default().queries_max as u64;
        let share = self.share(queries * default, QUERY_BYTES_MIN) / self.share(queries, 1);
        share.min(default)
    }

    /// Lowers the limits that have no configuration key.
    pub(crate) fn fit_fixed(
        self,
        serve: &mut ServeSettings,
        statsd: &mut StatsdListenOptions,
        tree: &mut TreeSettings,
        alerts: &mut AlertSettings,
    ) {
        let query_bytes = self.query_share(serve.query_bytes_max as u64);
        serve.query_bytes_max = usize::try_from(query_bytes).unwrap_or(serve.query_bytes_max);
        let lower = |value: &mut usize, least: u64| {
            let share = self.share(*value as u64, least);
            *value = usize::try_from(share).unwrap_or(*value);
        };
        lower(&mut serve.response_bytes_max, 1 << 20);
        lower(&mut serve.responses_bytes_max, 2 << 20);
        lower(&mut serve.queries_max, 1);
        lower(&mut serve.node_responses_bytes_max, QUERY_BYTES_MIN);
        lower(&mut tree.responses_bytes_max, QUERY_BYTES_MIN);
        lower(&mut alerts.expression_bytes_max, QUERY_BYTES_MIN);
        lower(&mut serve.socket_connections_max, 32);
        lower(&mut statsd.connections, 8);
    }

    /// Describes the limit and its consequences, for the user who starts the agent.
    pub(crate) fn remark(self, config: &Config) -> String {
        let limits = &config.agent.limits;
        format!(
            "the cgroup limits memory to {}: limits.memory {}, {} series, {} connections, statsd.memory {}, promql.memory {}",
            quantity::bytes(self.0),
            limits.store.memory,
            limits.store.series,
            limits.serve.connections,
            config.agent.statsd.memory,
            config.serve.promql.memory,
        )
    }

    /// Lowers the limits of keys that were not set, according to `is_set`.
    pub(crate) fn fit_config(self, config: &mut Config, is_set: impl Fn(&str) -> bool) {
        let limits = &mut config.agent.limits;
        let counts = [
            ("limits.series", &mut limits.store.series, 2_000),
            (
                "limits.series_per_sender",
                &mut limits.senders.series_per_sender,
                500,
            ),
            ("limits.connections", &mut limits.serve.connections, 16),
        ];
        for (key, value, least) in counts {
            if !is_set(key) {
                let share = self.share(value.get().into(), least);
                let share = u32::try_from(share).ok().and_then(NonZeroU32::new);
                *value = share.unwrap_or(*value);
            }
        }
        let sizes = [
            ("limits.memory", &mut limits.store.memory),
            ("limits.body", &mut limits.serve.body),
            ("limits.bodies", &mut limits.serve.bodies),
            ("statsd.memory", &mut config.agent.statsd.memory),
            (
                "statsd.receive_buffer",
                &mut config.agent.statsd.receive_buffer,
            ),
            ("history.bytes", &mut config.agent.history.0.bytes),
            ("history.cache", &mut config.agent.history.0.cache),
        ];
        for (key, value) in sizes {
            if !is_set(key) {
                let least = 256 << 10;
                *value = ByteSize::kibibytes(self.share(value.count(), least) >> 10);
            }
        }
        if !is_set("promql.memory") {
            let memory = &mut config.serve.promql.memory;
            *memory = ByteSize::kibibytes(self.query_share(memory.count()) >> 10);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_answers_of_others_shrink_with_the_cgroup() {
        let fitted = |mebibytes: u64| {
            let limit = MemoryLimit(mebibytes << 20);
            let mut config = Config::default();
            limit.fit_config(&mut config, |_| false);
            let mut serve = ServeSettings::default();
            let mut statsd = StatsdListenOptions::new(&config.agent.statsd, None, false);
            let (mut tree, mut alerts) = (TreeSettings::default(), AlertSettings::default());
            limit.fit_fixed(&mut serve, &mut statsd, &mut tree, &mut alerts);
            let room = limit.0 - BASE_BYTES;
            let promql = config.serve.promql.memory.count();
            let queries = serve.queries_max as u64 * promql.max(serve.query_bytes_max as u64);
            assert!(queries <= room / 4, "{mebibytes} MiB: {queries}");
            let history = &config.agent.history.0;
            for bytes in [
                history.bytes.count() + history.cache.count(),
                serve.node_responses_bytes_max as u64,
                alerts.expression_bytes_max as u64,
            ] {
                assert!(bytes <= room / 4, "{mebibytes} MiB: {bytes}");
            }
            assert!(tree.responses_bytes_max as u64 <= room / 3);
            promql
        };
        assert_eq!(fitted(32) >> 10, 3_360);
        assert_eq!(fitted(256), 32 << 20, "one query at a time");
        fitted(24);
    }

    #[test]
    fn limits_shrink_with_the_cgroup_and_stay_where_they_were_set() {
        let fitted = |mebibytes: u64| {
            let mut config = Config::default();
            let is_set = |key: &str| key == "limits.bodies";
            MemoryLimit(mebibytes << 20).fit_config(&mut config, is_set);
            config.agent
        };
        for mebibytes in [24, 32, 64, 256, 639] {
            let own = fitted(mebibytes);
            let held = own.limits.store.memory.count() + own.statsd.memory.count();
            assert!(
                held + BASE_BYTES <= mebibytes << 20,
                "{mebibytes} MiB: {own:?}"
            );
            assert_eq!(own.limits.serve.bodies.count(), 32 << 20, "it was set");
        }
        let (small, large) = (fitted(32).limits, fitted(256).limits);
        assert_eq!(small.store.series.get(), 5_128);
        assert_eq!(large.store.series.get(), 76_923);
        assert_eq!(small.store.memory.to_string(), "6721KiB");
        assert_eq!(small.serve.connections.get(), 16);
    }
}
