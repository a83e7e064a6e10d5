//! Checks the files and directories that a configuration names on this machine, as the agent would
//! at its start.

use std::error::Error;

use pegel_config::{ConfigError, ConfigProblem};
use pegel_metric::with_causes;

use crate::agent_settings::AgentSettings;
use crate::config_sources::{EnvironmentLookup, LoadedConfig};
use crate::store_dir;

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
    if let Err(error) = plan.rules.load() {
        problems.extend(error.problems);
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(ConfigError { problems })
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
