//! Checks the configuration of the running agent: its file, and whether the file changed since the
//! agent read it.

use std::path::PathBuf;

use super::finding::Finding;
use crate::agent_report::AgentReport;
use crate::config_rows::{self, ConfigRow};

/// The state of the agent's configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileState {
    /// The agent reads no file.
    None,
    Unchanged,
    /// Keys whose value in the file is no longer the one in force.
    Changed(Vec<String>),
    /// The file cannot be read by this user, or has errors.
    Unreadable(String),
}

#[derive(Debug, Clone)]
pub(super) struct RunningConfigProbe {
    pub file: Option<PathBuf>,
    pub state: FileState,
    /// Options and variables that set keys.
    pub overrides: Vec<String>,
    /// The file that this user's environment names.
    pub own_file: Option<PathBuf>,
}

pub(super) fn probe(report: &AgentReport) -> RunningConfigProbe {
    let file = report.config_file();
    let state = match &file {
        None => FileState::None,
        Some(file) => match pegel_agent::load_config(Some(file.clone()), &[], &|_| None) {
            Ok(loaded) => match changed_keys(&report.config, &config_rows::from_loaded(&loaded)) {
                keys if keys.is_empty() => FileState::Unchanged,
                keys => FileState::Changed(keys),
            },
            Err(error) => {
                let text = error.to_string();
                FileState::Unreadable(text.lines().next().unwrap_or_default().to_owned())
            }
        },
    };
    let origins = report.config.iter().filter(|row| !row.is_from_file());
    let mut overrides: Vec<String> = origins.map(|row| row.origin.clone()).collect();
    overrides.sort();
    overrides.dedup();
    let own_file = std::env::var_os("PEGEL_CONFIG").filter(|value| !value.is_empty());
    let own_file = own_file.and_then(|path| std::path::absolute(path).ok());
    RunningConfigProbe {
        own_file: own_file.filter(|own| Some(own) != file.as_ref()),
        file,
        state,
        overrides,
    }
}

/// Returns the keys that the file sets to another value than the one in force. Keys that an option
/// or a variable of the agent sets are skipped: the file does not decide them.
fn changed_keys(in_force: &[ConfigRow], in_file: &[ConfigRow]) -> Vec<String> {
    let is_changed = |row: &&ConfigRow| {
        let now = in_file.iter().find(|other| other.key == row.key);
        now.is_none_or(|now| now.value != row.value)
    };
    let rows = in_force.iter().filter(|row| row.is_from_file());
    rows.filter(is_changed).map(|row| row.key.clone()).collect()
}

pub(super) fn evaluate(probe: &RunningConfigProbe) -> Finding {
    let mut message = match &probe.file {
        Some(file) => format!("the agent reads {}", file.display()),
        None => "the agent reads no file".to_owned(),
    };
    if !probe.overrides.is_empty() {
        message.push_str(&format!(
            "; set at its start: {}",
            probe.overrides.join(", ")
        ));
    }
    if let Some(own) = &probe.own_file {
        message.push_str(&format!(
            "; $PEGEL_CONFIG of this shell names another file, {}",
            own.display()
        ));
    }
    let file = probe.file.clone().unwrap_or_default();
    match &probe.state {
        FileState::None | FileState::Unchanged => Finding::ok("configuration", message),
        FileState::Changed(keys) => Finding::better(
            "configuration",
            format!("{message}; changed since: {}", keys.join(", ")),
            "restart the agent to apply the changes",
        ),
        FileState::Unreadable(error) => Finding::better(
            "configuration",
            format!("{message}, which cannot be checked: {error}"),
            format!("pegel config check {}, as the agent's user", file.display()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::FindingState;

    fn row(key: &str, value: &str, origin: &str) -> ConfigRow {
        ConfigRow {
            key: key.to_owned(),
            value: value.to_owned(),
            origin: origin.to_owned(),
        }
    }

    #[test]
    fn only_keys_that_the_file_decides_count_as_changed() {
        let in_force = [
            row("level", "3", "default"),
            row("rate", "1s", "/p.yaml:1:1"),
            row("dir", "/d", "--dir"),
        ];
        let in_file = [
            row("level", "2", "/p.yaml:2:1"),
            row("rate", "1s", "/p.yaml:1:1"),
            row("dir", "~", "default"),
        ];
        assert_eq!(changed_keys(&in_force, &in_file), ["level"]);
    }

    #[test]
    fn the_file_its_changes_and_overrides_are_reported() {
        let mut probe = RunningConfigProbe {
            file: Some("/p.yaml".into()),
            state: FileState::Unchanged,
            overrides: vec!["$PEGEL_DIR".into(), "--level".into()],
            own_file: None,
        };
        let finding = evaluate(&probe);
        assert_eq!(finding.state, FindingState::Ok);
        let expected = "the agent reads /p.yaml; set at its start: $PEGEL_DIR, --level";
        assert_eq!(finding.message, expected);
        probe.state = FileState::Changed(vec!["rate".into()]);
        let finding = evaluate(&probe);
        assert_eq!(finding.state, FindingState::Better);
        assert!(
            finding.message.ends_with("; changed since: rate"),
            "{finding:?}"
        );
        probe.own_file = Some("/q.yaml".into());
        assert!(evaluate(&probe).message.contains("/q.yaml"));
    }
}
