//! Trying what a configuration names on this machine, as the agent would at its start.

use std::error::Error;

use pegel_config::{ConfigError, Problem, with_causes};

use crate::place;
use crate::plan::Plan;
use crate::sources::{Environment, Loaded};

/// Every file and directory that cannot be used as the configuration says. What it leaves to defaults is not
/// looked at, nothing is made, and no address is taken.
pub fn check(loaded: &Loaded, environment: Environment<'_>) -> Result<(), ConfigError> {
    let plan = Plan::new(loaded, environment);
    let mut problems = Vec::new();
    for (key, error) in pegel_serve::check(&plan.serve) {
        note(loaded, key, &*error, &mut problems);
    }
    for (key, path) in [
        ("statsd.unix", &plan.statsd.unix),
        ("statsd.unix_stream", &plan.statsd.unix_stream),
    ] {
        if let Some(Err(error)) = path.as_deref().map(pegel_serve::socket::check_place) {
            note(loaded, key, &error, &mut problems);
        }
    }
    if let Err(error) = place::check(&plan.store.dir) {
        let is_dragons = loaded.place_of("dir").is_none();
        let key = if is_dragons {
            "default_tmdb_dir"
        } else {
            "dir"
        };
        note(loaded, key, &error, &mut problems);
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(ConfigError { problems }),
    }
}

fn note(loaded: &Loaded, key: &str, error: &(dyn Error + 'static), problems: &mut Vec<Problem>) {
    let place = loaded.place_of(key).cloned();
    // The token of the environment has no key.
    if place.is_none() && key != "token" {
        return;
    }
    problems.push(Problem {
        place,
        key: key.to_owned(),
        message: with_causes(error),
        hint: String::new(),
    });
}
