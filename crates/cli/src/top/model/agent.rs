//! Summary of the agent's status: level, health, collectors, drops.

use serde_json::Value;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AgentSummary {
    pub node: String,
    pub level: u64,
    pub is_degraded: bool,
    pub collectors: Vec<CollectorSummary>,
    /// Number of dropped samples, over all inputs and reasons.
    pub dropped: u64,
    /// Why the shared memory of programs cannot be read, or not all of it.
    pub lane_faults: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CollectorSummary {
    pub name: String,
    /// `active`, `absent`, `disabled`, `failed`.
    pub state: String,
    pub error: Option<String>,
}

impl AgentSummary {
    pub(crate) fn from_status(status: &Value) -> AgentSummary {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let collectors = status["collectors"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let inputs = status["inputs"].as_array().map_or(&[][..], Vec::as_slice);
        let dropped = inputs
            .iter()
            .filter_map(|input| input["dropped"].as_object())
            .flat_map(|reasons| reasons.values().filter_map(Value::as_u64));
        AgentSummary {
            node: text(&status["node"]),
            level: status["level"].as_u64().unwrap_or_default(),
            is_degraded: status["degraded"].as_bool().unwrap_or_default(),
            collectors: collectors
                .iter()
                .map(|item| CollectorSummary {
                    name: text(&item["name"]),
                    state: text(&item["state"]),
                    error: item["error"].as_str().map(str::to_owned),
                })
                .collect(),
            dropped: dropped.sum(),
            lane_faults: status["lanes"]["faults"]
                .as_array()
                .map_or(&[][..], Vec::as_slice)
                .iter()
                .map(text)
                .collect(),
        }
    }

    /// Explains why these collectors, whose metrics have this level, provide no values.
    pub(crate) fn empty_reason(&self, what: &str, level: u64, collectors: &[&str]) -> String {
        if self.level < level {
            return format!(
                "The agent's level is {}; {what} require level {level}: pegel agent --level {level}",
                self.level
            );
        }
        let known = || {
            self.collectors
                .iter()
                .filter(|known| collectors.contains(&known.name.as_str()))
        };
        if let Some(failed) = known().find(|known| known.state == "failed") {
            let error = failed.error.as_deref().unwrap_or("unknown error");
            return format!("The collector {} failed: {error}", failed.name);
        }
        if known().next().is_some() && known().all(|known| known.state == "disabled") {
            let name = collectors.first().unwrap_or(&"");
            return format!(
                "The collector {name} is disabled: set collectors.{name}.enabled to true"
            );
        }
        format!("No {what} on this node.")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent(level: u64, state: &str) -> AgentSummary {
        AgentSummary::from_status(&json!({
            "node": "nid0001", "level": level,
            "collectors": [
                {"name": "nvidia", "state": state, "error": "NVML says no"},
                {"name": "gpu", "state": "absent", "error": null},
            ],
            "inputs": [{"input": "tick", "dropped": {"late": 2, "full": 1}}],
        }))
    }

    #[test]
    fn an_empty_view_has_a_reason() {
        let reason = |level, state| agent(level, state).empty_reason("GPUs", 3, &["nvidia", "gpu"]);
        assert_eq!(reason(3, "absent"), "No GPUs on this node.");
        assert_eq!(
            reason(2, "absent"),
            "The agent's level is 2; GPUs require level 3: pegel agent --level 3"
        );
        assert_eq!(
            reason(3, "failed"),
            "The collector nvidia failed: NVML says no"
        );
        let off = agent(3, "disabled").empty_reason("GPUs", 3, &["nvidia"]);
        assert!(off.contains("collectors.nvidia.enabled"), "{off}");
    }

    #[test]
    fn drops_are_summed_and_a_malformed_status_is_empty() {
        assert_eq!(agent(3, "active").dropped, 3);
        assert_eq!(
            AgentSummary::from_status(&json!("?")),
            AgentSummary::default()
        );
    }
}
