//! `pegel doctor`: reports what can be measured on this node, what cannot, and a one-line fix for
//! each problem.
//!
//! Each group of checks has a file: `probe` gathers facts from the machine or from the agent,
//! `evaluate` is a pure function from facts to findings.

mod agent;
mod capabilities;
mod clock;
mod disk;
mod drops;
mod finding;
mod history;
mod kernel;
mod lanes;
mod limits;
mod outputs;
mod permissions;
pub(crate) mod pluralize;
mod ports;
mod pull_inputs;
mod running_config;
mod text;
mod tree;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

use pegel_agent::{AgentSettings, LoadedConfig};
use pegel_machine::MachineFiles;

use crate::agent_client::AgentClient;
use crate::agent_report::AgentReport;
use crate::command_error::{CommandError, FAILED, NO_AGENT};
use crate::output;
use agent::AgentProbe;
use capabilities::ProcessCapabilities;
use finding::{Finding, FindingGroup, FindingState};
use ports::AgentPorts;
use tree::TreeProbe;

/// Check what can be measured on this node and suggest fixes
///
/// Checks the kernel, this user's permissions, limits, drops, clock, disk and ports, and the agent
/// if one is running. Exits with 1 if anything is broken.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "txt")]
    format: DoctorFormat,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum DoctorFormat {
    /// Plain text
    Txt,
    /// One JSON array
    Json,
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let groups = run_checks(args);
    let text = match args.format {
        DoctorFormat::Txt => text::write(&groups, text_style()),
        DoctorFormat::Json => json(&groups),
    };
    output::write(None, &text)?;
    let findings = groups.iter().flat_map(|group| &group.findings);
    let broken = findings.filter(|f| f.state == FindingState::Broken).count() as u64;
    match broken {
        0 => Ok(()),
        1 => Err(CommandError::with_code(FAILED, "1 check is broken")),
        count => Err(CommandError::with_code(
            FAILED,
            format!("{count} checks are broken"),
        )),
    }
}

fn text_style() -> text::TextStyle {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    text::TextStyle {
        width: output::terminal_width().unwrap_or(100),
        has_colour: std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb,
    }
}

fn json(groups: &[FindingGroup]) -> String {
    let findings = groups.iter().flat_map(|group| {
        let findings = group.findings.iter();
        findings.map(|finding| finding.json(group.name))
    });
    let lines: Vec<String> = findings.map(|finding| format!("  {finding}")).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

fn run_checks(args: &DoctorArgs) -> Vec<FindingGroup> {
    let environment = |name: &str| std::env::var_os(name);
    let (agent_probe, report, tree) = probe_agent(args);
    let (settings, loaded) = match report.as_ref().and_then(|r| Some((r, r.loaded_config()?))) {
        // Describe the agent that runs, not one that would be started here.
        Some((report, loaded)) => (
            running_config::evaluate(&running_config::probe(report)),
            loaded,
        ),
        None => check_config(pegel_agent::load_config(None, &[], &environment)),
    };
    let plan = AgentSettings::new(&loaded, &environment);
    let machine = MachineFiles::at(&plan.host.root);
    let status = agent_probe.status();
    let surveyed = pegel_agent::probe_collectors(&plan).unwrap_or_default();
    let collectors = match status {
        Some(status) => agent::collectors(&agent::collectors_from_status(status), "in the agent"),
        None => agent::collectors(&agent::collectors_from_survey(&surveyed), "for this user"),
    };
    let permissions =
        permissions::probe(&machine, ProcessCapabilities::current(), &surveyed, status);
    let lanes = lanes::probe(&machine, non_empty_text(environment("PEGEL_LANES")));
    let connections = u64::from(plan.serve.limits.connections.get());
    let group = |name, findings| FindingGroup { name, findings };
    let mut groups = vec![
        group(
            "agent",
            [
                agent::evaluate(&agent_probe, env!("CARGO_PKG_VERSION")),
                vec![settings],
            ]
            .concat(),
        ),
        group("collectors", collectors),
        group("drops", status.map(drops::evaluate).unwrap_or_default()),
        group(
            "inputs",
            status.map(pull_inputs::evaluate).unwrap_or_default(),
        ),
        group("outputs", status.map(outputs::evaluate).unwrap_or_default()),
        group("history", status.map(history::evaluate).unwrap_or_default()),
        group(
            "tree",
            tree.as_ref().map(tree::evaluate).unwrap_or_default(),
        ),
        group(
            "limits",
            limits::evaluate(&limits::probe(status, connections)),
        ),
        group(
            "store",
            disk::evaluate(&disk::probe(
                status,
                &plan.store.dir,
                plan.store.keep.bytes_max(),
            )),
        ),
        group("kernel", kernel::evaluate(&kernel::probe(&machine))),
        group("rights", permissions::evaluate(&permissions)),
        group("programs", lanes::evaluate(&lanes)),
        group("clock", clock::evaluate(&clock::probe(&machine, status))),
    ];
    if machine.is_local() {
        let listen = plan.serve.listen.iter();
        let listen = listen.map(pegel_config::ListenAddress::socket).collect();
        let mut ports = AgentPorts::with_default_statsd(listen);
        if let Some(report) = report.filter(|report| report.url().is_some()) {
            (ports.statsd_udp, ports.statsd_tcp) = report.statsd_addresses();
        }
        let pid = status.and_then(|status| u32::try_from(status["pid"].as_u64()?).ok());
        groups.push(group(
            "network",
            ports::evaluate(&ports::probe(&ports, pid)),
        ));
    }
    groups
}

/// Reports the configuration file or its errors; after an error the other checks use the defaults.
fn check_config(
    loaded: Result<LoadedConfig, pegel_config::ConfigError>,
) -> (Finding, LoadedConfig) {
    match loaded {
        Ok(loaded) => {
            let message = match &loaded.file {
                Some(file) => format!("{}: no errors", file.display()),
                None => "no file, using the defaults".to_owned(),
            };
            (Finding::ok("configuration", message), loaded)
        }
        Err(error) => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default().to_owned();
            let details = text.lines().map(|line| line.trim().to_owned()).collect();
            let finding =
                Finding::broken("configuration", first, "pegel config check").with_details(details);
            let config = pegel_agent::load_config(None, &[], &|_| None);
            (finding, config.expect("the defaults are valid"))
        }
    }
}

fn probe_agent(args: &DoctorArgs) -> (AgentProbe, Option<AgentReport>, Option<TreeProbe>) {
    let response = AgentClient::find(args.socket.as_deref(), &[])
        .and_then(|client| Ok((AgentReport::fetch(&client)?, tree::probe(&client))));
    match response {
        Ok((report, tree)) => {
            let status = Box::new(report.status.clone());
            (AgentProbe::Status(status), Some(report), tree)
        }
        Err(error) => (classify_error(&error), None, None),
    }
}

fn classify_error(error: &anyhow::Error) -> AgentProbe {
    let text = format!("{error:#}");
    // Drop the hint lines: findings have their own fix.
    let first = text.lines().next().unwrap_or_default().to_owned();
    let code = error
        .downcast_ref::<CommandError>()
        .map(|failure| failure.code);
    let is_denied = error.chain().any(|cause| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::PermissionDenied)
    });
    if code == Some(NO_AGENT) {
        AgentProbe::NotRunning(first)
    } else if is_denied || first.starts_with("the agent responded with status 401") {
        AgentProbe::NotPermitted(first)
    } else {
        AgentProbe::Unresponsive(first)
    }
}

fn non_empty_text(value: Option<OsString>) -> Option<String> {
    let value = value?.to_string_lossy().into_owned();
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_keys_of_a_finding_are_stable() {
        let groups = [FindingGroup {
            name: "store",
            findings: vec![
                Finding::ok("place", "/a \"b\""),
                Finding::broken("room", "none", "make some"),
            ],
        }];
        let expected = r#"[
  {"group":"store","check":"place","state":"ok","says":"/a \"b\"","fix":null,"details":[]},
  {"group":"store","check":"room","state":"broken","says":"none","fix":"make some","details":[]}
]
"#;
        let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        assert_eq!(parse(&json(&groups)), parse(expected));
        assert_eq!(json(&groups).lines().count(), 4, "one line per finding");
        assert_eq!(parse(&json(&[])), Value::Array(Vec::new()));
    }

    #[test]
    fn an_invalid_configuration_is_broken_and_the_defaults_are_used() {
        let environment = |name: &str| (name == "PEGEL_LEVEL").then(|| OsString::from("9"));
        let (finding, loaded) = check_config(pegel_agent::load_config(None, &[], &environment));
        assert_eq!(finding.state, FindingState::Broken);
        assert!(finding.message.contains("PEGEL_LEVEL"), "{finding:?}");
        assert_eq!(loaded.config.agent.level.get(), 3);
        let (finding, _) = check_config(pegel_agent::load_config(None, &[], &|_| None));
        assert_eq!(finding.state, FindingState::Ok);
    }

    #[test]
    fn connection_errors_are_classified() {
        let missing = classify_error(&CommandError::with_code(
            NO_AGENT,
            "no agent is listening\nhint: start one",
        ));
        assert!(matches!(missing, AgentProbe::NotRunning(text) if text == "no agent is listening"));
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let denied = anyhow::Error::from(denied).context("cannot connect to /run/pegel/push.sock");
        assert!(matches!(
            classify_error(&denied),
            AgentProbe::NotPermitted(_)
        ));
        let unauthorized = anyhow::anyhow!("the agent responded with status 401: token required");
        assert!(matches!(
            classify_error(&unauthorized),
            AgentProbe::NotPermitted(_)
        ));
        let other_user = anyhow::anyhow!("/x is served by user 7");
        assert!(matches!(
            classify_error(&other_user),
            AgentProbe::Unresponsive(_)
        ));
    }
}
