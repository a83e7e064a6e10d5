//! Checks the running agent: version, health, sampling, log and collectors.

use pegel_agent::{CollectorState, CollectorStatus};
use serde_json::Value;

use super::finding::Finding;
use super::pluralize;

/// The result of a status request.
#[derive(Debug)]
pub(super) enum AgentProbe {
    Status(Box<Value>),
    /// No agent is running.
    NotRunning(String),
    /// An agent is running, but this user has no access to it.
    NotPermitted(String),
    /// An agent is running, but gives no valid response.
    Unresponsive(String),
}

impl AgentProbe {
    pub(super) fn status(&self) -> Option<&Value> {
        match self {
            AgentProbe::Status(status) => Some(status),
            _ => None,
        }
    }
}

/// One collector, as reported by the agent or found by this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CollectorReport {
    pub name: String,
    pub state: String,
    /// The error of a failed collector, or what an absent one looked for.
    pub note: String,
}

pub(super) fn collectors_from_status(status: &Value) -> Vec<CollectorReport> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let collectors = status["collectors"].as_array().into_iter().flatten();
    collectors
        .map(|collector| CollectorReport {
            name: text(&collector["name"]),
            state: text(&collector["state"]),
            note: match collector["error"].as_str() {
                Some(error) => error.to_owned(),
                None => text(&collector["looked_for"]),
            },
        })
        .collect()
}

pub(super) fn collectors_from_survey(collectors: &[CollectorStatus]) -> Vec<CollectorReport> {
    let state = |state| match state {
        CollectorState::Active => "active",
        CollectorState::Absent => "absent",
        CollectorState::Disabled => "disabled",
        CollectorState::Failed => "failed",
    };
    collectors
        .iter()
        .map(|collector| CollectorReport {
            name: collector.name.to_owned(),
            state: state(collector.state).to_owned(),
            note: collector
                .error
                .clone()
                .or_else(|| collector.looked_for.clone())
                .unwrap_or_default(),
        })
        .collect()
}

pub(super) fn evaluate(probe: &AgentProbe, version: &str) -> Vec<Finding> {
    let status = match probe {
        AgentProbe::Status(status) => status,
        AgentProbe::NotRunning(error) => {
            return vec![Finding::better("running", error, "pegel agent")];
        }
        AgentProbe::NotPermitted(error) => {
            return vec![Finding::better(
                "running",
                error,
                "sudo pegel doctor, or run it as the agent's user",
            )];
        }
        AgentProbe::Unresponsive(error) => {
            return vec![Finding::broken(
                "running",
                error,
                "end that process and restart it: pegel agent",
            )];
        }
    };
    let mut findings = vec![running(status, version), health(status)];
    findings.extend(sampling(status));
    findings.extend(
        status["log"]["lost"]
            .as_u64()
            .filter(|lost| *lost > 0)
            .map(|lost| {
                let destination = status["log"]["place"].as_str().unwrap_or("?");
                let message = format!(
                    "{} could not be written to {destination}",
                    pluralize::pluralized(lost, "log message")
                );
                Finding::better(
                    "log",
                    message,
                    "check that this destination exists and has space, or choose another with --log",
                )
            }),
    );
    let faults = status["lanes"]["faults"].as_array().into_iter().flatten();
    findings.extend(faults.filter_map(Value::as_str).map(|fault| {
        Finding::broken(
            "lanes of the agent",
            format!("{fault}; metrics of programs there may be missing"),
            "correct the cause, or start the agent and the programs with $PEGEL_LANES set to a directory of their own",
        )
    }));
    let trouble = status["http"]["guard"]["trouble"].as_str();
    findings.extend(trouble.map(|trouble| {
        Finding::broken(
            "token and TLS",
            trouble,
            "correct that file, then reload: kill -HUP the agent",
        )
    }));
    findings
}

fn running(status: &Value, version: &str) -> Finding {
    let agent_version = status["version"].as_str().unwrap_or("?");
    let message = format!(
        "version {agent_version}, pid {}, level {}",
        status["pid"], status["level"]
    );
    if agent_version == version {
        Finding::ok("running", message)
    } else {
        Finding::better(
            "running",
            format!("{message}; this binary is {version}"),
            "restart the agent to run the same version",
        )
    }
}

fn health(status: &Value) -> Finding {
    if status["degraded"].as_bool() != Some(true) {
        return Finding::ok("health", "the store is writable");
    }
    let reason = status["store"]["degraded"]["reason"].as_str();
    let dir = status["store"]["dir"].as_str().unwrap_or("its directory");
    Finding::broken(
        "health",
        format!("degraded: {}", reason.unwrap_or("see the agent's log")),
        format!("free space in {dir}, or make it writable; the agent then recovers by itself"),
    )
}

/// Reports the share of late and missed sampling passes.
fn sampling(status: &Value) -> Option<Finding> {
    let count = |key: &str| status["sampling"][key].as_u64();
    let (late, missed) = (count("late")?, count("missed")?);
    let rate = status["rate"].as_f64().filter(|rate| *rate > 0.0)?;
    let age = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0.0, |now| {
            now.as_secs_f64() - status["started"].as_f64().unwrap_or(0.0) / 1000.0
        });
    let passes = (age / rate).max(1.0);
    let share = (late + missed) as f64 / passes * 100.0;
    if share < 1.0 {
        return Some(Finding::ok("sampling", format!("on time, every {rate} s")));
    }
    let message = format!("{late} samples late and {missed} missed ({share:.1} %)");
    Some(Finding::better(
        "sampling",
        message,
        "the CPUs are overloaded: sample less often with --rate 1s, or reserve a core for the agent",
    ))
}

/// Reports collectors by state. `scope` completes the sentence: "in the agent" or "for this user".
pub(super) fn collectors(reports: &[CollectorReport], scope: &str) -> Vec<Finding> {
    let with = |state: &str| {
        reports
            .iter()
            .filter(|collector| collector.state == state)
            .collect::<Vec<_>>()
    };
    let (active, absent, failed) = (with("active"), with("absent"), with("failed"));
    let count = pluralize::pluralized(active.len() as u64, "active collector");
    let mut findings = vec![Finding::ok("active", format!("{count} {scope}"))];
    for collector in failed {
        let message = format!("{}: {}", collector.name, collector.note);
        let note = collector.note.to_lowercase();
        let is_denied = note.contains("permission denied") || note.contains("not permitted");
        findings.push(if is_denied {
            Finding::better("failed", message, missing_privilege_fix(&collector.name))
        } else {
            Finding::broken(
                "failed",
                message,
                format!(
                    "repair it, or disable it: collectors: {{{}: {{enabled: false}}}}",
                    collector.name
                ),
            )
        });
    }
    if !absent.is_empty() {
        let names: Vec<&str> = absent
            .iter()
            .map(|collector| collector.name.as_str())
            .collect();
        let message = format!("no such device or file for {}", names.join(", "));
        let details = absent
            .iter()
            .map(|collector| format!("{} looked for {}", collector.name, collector.note));
        findings.push(Finding::ok("absent", message).with_details(details.collect()));
    }
    findings
}

/// Returns the fix for a collector that lacks a privilege.
fn missing_privilege_fix(name: &str) -> String {
    let feature = match name {
        "rapl" => "rapl",
        "nvme" => "nvme-smart",
        "nvidia" => "nvidia",
        "top_processes" | "processes" => "other-users-processes",
        _ => return "run the agent as a user with read access".to_owned(),
    };
    format!("add drop-ins/{feature}.conf to the service; the file documents the risks")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::FindingState;

    fn status() -> Value {
        json!({
            "version": "1.0.0", "pid": 7, "level": 3, "rate": 0.5, "started": 0, "degraded": false,
            "sampling": {"late": 0, "missed": 0, "clock_steps": 0},
            "log": {"place": "journal", "lost": 0},
        })
    }

    fn states(status: Value, version: &str) -> Vec<(&'static str, FindingState)> {
        let findings = evaluate(&AgentProbe::Status(Box::new(status)), version);
        findings
            .iter()
            .map(|finding| (finding.check, finding.state))
            .collect()
    }

    #[test]
    fn a_healthy_agent() {
        let expected = [
            ("running", FindingState::Ok),
            ("health", FindingState::Ok),
            ("sampling", FindingState::Ok),
        ];
        assert_eq!(states(status(), "1.0.0"), expected);
        assert_eq!(
            states(json!({}), "1.0.0").len(),
            2,
            "an older agent reports less"
        );
    }

    #[test]
    fn each_problem_of_an_agent_is_reported() {
        let mut status = status();
        status["degraded"] = json!(true);
        status["store"] = json!({"dir": "/full", "degraded": {"reason": "no space left"}});
        status["started"] = json!(4e15);
        status["sampling"]["missed"] = json!(9);
        status["log"]["lost"] = json!(2);
        status["http"]["guard"]["trouble"] = json!("the token is too short");
        status["lanes"]["faults"] = json!(["/dev/shm/x: another agent reads it"]);
        let expected = [
            ("running", FindingState::Better),
            ("health", FindingState::Broken),
            ("sampling", FindingState::Better),
            ("log", FindingState::Better),
            ("lanes of the agent", FindingState::Broken),
            ("token and TLS", FindingState::Broken),
        ];
        assert_eq!(states(status, "1.0.1"), expected);
    }

    #[test]
    fn missing_forbidden_and_unresponsive_agents_are_reported() {
        for (probe, state) in [
            (
                AgentProbe::NotRunning("none".to_owned()),
                FindingState::Better,
            ),
            (
                AgentProbe::NotPermitted("denied".to_owned()),
                FindingState::Better,
            ),
            (
                AgentProbe::Unresponsive("no answer".to_owned()),
                FindingState::Broken,
            ),
        ] {
            assert_eq!(evaluate(&probe, "1")[0].state, state);
        }
    }

    #[test]
    fn collectors_without_privileges_could_be_better_and_other_failures_are_broken() {
        let reports = collectors_from_status(&json!({"collectors": [
            {"name": "cpu", "state": "active", "error": null, "looked_for": null},
            {"name": "hwmon", "state": "absent", "error": null, "looked_for": "/sys/class/hwmon"},
            {"name": "rapl", "state": "failed", "error": "energy_uj: Permission denied (os error 13)"},
            {"name": "filesystem", "state": "failed", "error": "/dead does not answer"},
        ]}));
        let findings = collectors(&reports, "in the agent");
        let states: Vec<_> = findings
            .iter()
            .map(|finding| (finding.check, finding.state))
            .collect();
        let expected = [
            ("active", FindingState::Ok),
            ("failed", FindingState::Better),
            ("failed", FindingState::Broken),
            ("absent", FindingState::Ok),
        ];
        assert_eq!(states, expected);
        assert_eq!(findings[0].message, "1 active collector in the agent");
        assert!(
            findings[1]
                .fix
                .as_deref()
                .expect("a fix")
                .contains("rapl.conf")
        );
        assert!(
            findings[2]
                .fix
                .as_deref()
                .expect("a fix")
                .contains("{filesystem: {enabled: false}}")
        );
        assert_eq!(findings[3].details, ["hwmon looked for /sys/class/hwmon"]);
    }
}
