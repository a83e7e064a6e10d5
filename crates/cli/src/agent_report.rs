//! What a running agent reports about itself: its status and the configuration in force.

use std::net::SocketAddr;
use std::path::PathBuf;

use pegel_agent::LoadedConfig;
use serde_json::Value;

use crate::agent_client::AgentClient;
use crate::config_rows::{self, ConfigRow};

#[derive(Debug)]
pub(crate) struct AgentReport {
    pub status: Value,
    /// Empty if the agent does not permit reading its configuration.
    pub config: Vec<ConfigRow>,
}

impl AgentReport {
    pub(crate) fn fetch(client: &AgentClient) -> anyhow::Result<AgentReport> {
        let status = client.get("/status", &[])?;
        let config = client.get("/api/v1/config", &[]);
        Ok(AgentReport {
            status,
            config: config.map_or_else(|_| Vec::new(), |json| config_rows::from_json(&json)),
        })
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        u32::try_from(self.status["pid"].as_u64()?).ok()
    }

    /// The URL of the page.
    pub(crate) fn url(&self) -> Option<&str> {
        self.status["addresses"]["url"].as_str()
    }

    /// The bound HTTP addresses, in the order of the configuration.
    pub(crate) fn http_addresses(&self) -> Vec<SocketAddr> {
        socket_addresses(&self.status["addresses"]["http"])
    }

    /// The bound UDP and TCP addresses of statsd.
    pub(crate) fn statsd_addresses(&self) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        let statsd = &self.status["addresses"]["statsd"];
        (
            socket_addresses(&statsd["udp"]),
            socket_addresses(&statsd["tcp"]),
        )
    }

    /// The configuration file that the agent read.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        self.status["config_file"].as_str().map(PathBuf::from)
    }

    /// The configuration in force, with the addresses that were bound: a configured port may be 0,
    /// or taken. `None` if it cannot be read.
    pub(crate) fn loaded_config(&self) -> Option<LoadedConfig> {
        if self.config.is_empty() {
            return None;
        }
        let mut loaded = config_rows::to_loaded(&self.config, self.config_file()).ok()?;
        let bound = self.http_addresses();
        if !bound.is_empty() {
            loaded.config.serve.listen = bound.into_iter().map(Into::into).collect();
        }
        Some(loaded)
    }
}

fn socket_addresses(json: &Value) -> Vec<SocketAddr> {
    let texts = json.as_array().into_iter().flatten();
    texts
        .filter_map(|text| text.as_str()?.parse().ok())
        .collect()
}
