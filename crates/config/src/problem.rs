//! Problems in a configuration: what is wrong, where, and what is accepted instead.

use std::fmt;

use crate::config_tree::{ConfigOrigin, ConfigTree, join_path};

/// One problem, shown as `origin: key: message`, with the hint on a second line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    pub origin: Option<ConfigOrigin>,
    /// The key concerned; empty for a problem of the file as a whole.
    pub key: String,
    pub message: String,
    /// The accepted values, or what to do.
    pub hint: String,
}

impl ConfigProblem {
    pub fn new(
        tree: &ConfigTree,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> ConfigProblem {
        ConfigProblem {
            origin: Some(tree.origin.clone()),
            key: tree.path.clone(),
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// Describes a value in none of the accepted forms.
    pub fn value(tree: &ConfigTree, message: impl Into<String>, accepts: &str) -> ConfigProblem {
        ConfigProblem::new(tree, message, format!("accepted: {accepts}"))
    }

    /// Describes an unknown key, and suggests the known key nearest to it.
    pub fn unknown_key<'a>(
        origin: &ConfigOrigin,
        inside: &str,
        key: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> ConfigProblem {
        let known: Vec<&str> = known.collect();
        let message = match nearest_key(key, &known) {
            Some(near) => format!("unknown key; did you mean `{near}`?"),
            None => "unknown key".to_owned(),
        };
        ConfigProblem {
            origin: Some(origin.clone()),
            key: join_path(inside, key),
            message,
            hint: format!("accepted: {}", known.join(", ")),
        }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(f, "\n  {}", self.hint)?;
        }
        Ok(())
    }
}

/// All problems found, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", join(problems))]
pub struct ConfigError {
    pub problems: Vec<ConfigProblem>,
}

impl From<ConfigProblem> for ConfigError {
    fn from(problem: ConfigProblem) -> ConfigError {
        ConfigError {
            problems: vec![problem],
        }
    }
}

fn join(problems: &[ConfigProblem]) -> String {
    problems
        .iter()
        .map(ConfigProblem::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the known key that a mistyped one most likely stands for.
fn nearest_key<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let close_enough = (word.chars().count() / 3).max(1) + 1;
    known
        .iter()
        .map(|candidate| (strsim::osa_distance(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= close_enough && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_what_is_near() {
        let known = ["level", "listen", "rate", "dir"];
        assert_eq!(nearest_key("levle", &known), Some("level"));
        assert_eq!(nearest_key("listn", &known), Some("listen"));
        assert_eq!(nearest_key("rates", &known), Some("rate"));
        assert_eq!(nearest_key("graphite", &known), None);
        assert_eq!(nearest_key("x", &known), None);
    }
}
