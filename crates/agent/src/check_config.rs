//! Checks the files and directories that a configuration names on this machine, as the agent would
//! at its start.

use std::error::Error;
use std::path::{Path, absolute};

use pegel_archive::{RecordPlace, check_credentials_file};
use pegel_config::{ConfigError, ConfigProblem, ConfigTree, ConfigValue};
use pegel_http_client::{ServerTrust, check_secret_file, tls_config};
use pegel_metric::with_causes;

use crate::agent_settings::AgentSettings;
use crate::config_sources::{EnvironmentLookup, LoadedConfig};
use crate::store_dir;

type FileError = Box<dyn Error + Send + Sync>;

/// Checks one file.
type FileCheck = fn(&Path) -> Result<(), FileError>;

/// Sections, or lists of sections, that name files for connections to other servers.
const CLIENT_SECTIONS: [&str; 7] = [
    "remote_write",
    "history",
    "otlp",
    "alerts",
    "archive",
    "inputs.prometheus",
    "inputs.apache",
];
/// The keys of these files, and how each is checked.
const CLIENT_FILES: [(&str, FileCheck); 4] = [
    ("password_file", |path| Ok(check_secret_file(path)?)),
    ("bearer_token_file", |path| Ok(check_secret_file(path)?)),
    ("credentials_file", |path| Ok(check_credentials_file(path)?)),
    ("ca_file", |path| {
        let ca_file = Some(path.to_owned());
        let trust = ServerTrust {
            ca_file,
            accept_any: false,
        };
        Ok(tls_config(&trust).map(drop)?)
    }),
];

/// Returns what is accepted but most likely a mistake.
pub fn config_warnings(loaded: &LoadedConfig) -> Vec<String> {
    let targets = loaded.config.agent.remote_write.0.iter();
    let warnings = targets.filter_map(|target| target.0.missing_path_warning());
    warnings.collect()
}

/// Reports every file and directory that cannot be used as configured. Defaults are not checked,
/// nothing is created, and no address is bound.
pub fn check_config(
    loaded: &LoadedConfig,
    environment: EnvironmentLookup<'_>,
) -> Result<(), ConfigError> {
    let plan = AgentSettings::new(loaded, environment);
    let mut problems = Vec::new();
    for (key, error) in pegel_serve::check_files(&plan.serve) {
        push_problem(loaded, key, &*error, &mut problems);
    }
    for (key, path) in [
        ("statsd.unix", &plan.statsd.unix),
        ("statsd.unix_stream", &plan.statsd.unix_stream),
    ] {
        if let Some(Err(error)) = path.as_deref().map(pegel_serve::socket::check_socket_path) {
            push_problem(loaded, key, &error, &mut problems);
        }
    }
    if let Err(error) = store_dir::check_store_dir(&plan.store.dir) {
        let is_dragons = loaded.origin_of("dir").is_none();
        let key = if is_dragons {
            "default_tmdb_dir"
        } else {
            "dir"
        };
        push_problem(loaded, key, &error, &mut problems);
    }
    check_client_files(&loaded.tree, &mut problems);
    if let Some(RecordPlace::Directory(dir)) = plan.archive.to.as_ref().map(|place| &place.0)
        && let Err(error) = store_dir::check_file_dir(dir)
    {
        push_problem(loaded, "archive.to", &error, &mut problems);
    }
    if let Err(error) = plan.rules.load() {
        problems.extend(error.problems);
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(ConfigError { problems })
    }
}

/// Checks the files of [`CLIENT_SECTIONS`]: without them, nothing is sent or read.
fn check_client_files(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) {
    for found in CLIENT_SECTIONS.iter().filter_map(|path| tree.find(path)) {
        let sections = match &found.value {
            ConfigValue::List(sections) => sections.as_slice(),
            _ => std::slice::from_ref(found),
        };
        for section in sections {
            for (key, check) in CLIENT_FILES {
                let Some(value) = section.get(key) else {
                    continue;
                };
                let ConfigValue::Scalar(text) = &value.value else {
                    continue;
                };
                // A relative path begins in the working directory: the message shows all of it.
                let path = absolute(text).unwrap_or_else(|_| text.into());
                if let Err(error) = check(&path) {
                    problems.push(ConfigProblem::new(value, with_causes(&*error), ""));
                }
            }
        }
    }
}

fn push_problem(
    loaded: &LoadedConfig,
    key: &str,
    error: &(dyn Error + 'static),
    problems: &mut Vec<ConfigProblem>,
) {
    let origin = loaded.origin_of(key).cloned();
    // The token of the environment has no key.
    if origin.is_none() && key != "token" {
        return;
    }
    problems.push(ConfigProblem {
        origin,
        key: key.to_owned(),
        message: with_causes(error),
        hint: String::new(),
    });
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn files_for_connections_are_checked_with_path_and_key() {
        let home = TempDir::new();
        let token = home.join("token");
        std::fs::write(&token, "secret\n").expect("written");
        let (token, missing) = (token.display(), home.join("missing").display().to_string());
        let text = format!(
            "remote_write:\n\
             - {{url: 'http://vm/w', bearer_token_file: '{token}'}}\n\
             - {{url: 'http://vm2/w', user: u, password_file: '{missing}'}}\n\
             history: {{url: 'http://vm', bearer_token_file: '{missing}', ca_file: '{token}'}}\n\
             otlp: [{{ca_file: '{missing}'}}]\n\
             inputs: {{prometheus: [{{url: 'http://a/m', ca_file: '{missing}'}}]}}\n\
             archive: {{to: 's3://bucket', credentials_file: '{missing}'}}\n"
        );
        let tree = pegel_config::parse("pegel.yaml".as_ref(), &text).expect("YAML");
        let mut problems = Vec::new();
        check_client_files(&tree, &mut problems);
        let keys: Vec<&str> = problems.iter().map(|found| found.key.as_str()).collect();
        let expected = [
            "remote_write[1].password_file",
            "history.bearer_token_file",
            "history.ca_file",
            "otlp[0].ca_file",
            "archive.credentials_file",
            "inputs.prometheus[0].ca_file",
        ];
        assert_eq!(keys, expected);
        let named = problems
            .iter()
            .filter(|found| found.message.contains(&missing));
        assert_eq!(named.count(), 5, "{problems:?}");
        let shown = format!("{problems:?}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}
