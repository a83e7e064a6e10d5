//! The configuration in a bundle: without comments, with its includes, and without secrets.

use std::path::Path;

use pegel_config::{ConfigOrigin, ConfigValue};
use pegel_machine::redact::{is_secret_name, looks_like_secret, redact_address};

use crate::command_error::{CommandError, USAGE};

/// Returns the text of a configuration for an archive. Errors name the position of every secret.
pub(super) fn bundled_config(path: &Path) -> anyhow::Result<String> {
    let usage = |text: String| CommandError::with_code(USAGE, text);
    // Reports everything that an agent with this file would report.
    pegel_agent::load_config(Some(path.to_owned()), &[], &|_| None)
        .map_err(|error| usage(error.to_string()))?;
    let mut tree = pegel_config::load(path).map_err(|error| usage(error.to_string()))?;
    // Included files are in the tree.
    tree.remove("include");
    let mut secrets = Vec::new();
    find_secrets("", &tree.value, &tree.origin, &mut secrets);
    if !secrets.is_empty() {
        return Err(usage(format!(
            "the configuration contains secrets, which would be readable in the bundle; name a \
             file of the node instead, or set them in the environment of the task\n{}",
            secrets.join("\n")
        )));
    }
    let lines = tree.value.entries().iter();
    let lines = lines.map(|entry| format!("{}: {}\n", entry.key, entry.value.value.to_inline()));
    Ok(lines.collect())
}

/// Adds a line for each secret, without its value. The rules are those of snapshots.
fn find_secrets(key: &str, value: &ConfigValue, origin: &ConfigOrigin, found: &mut Vec<String>) {
    match value {
        ConfigValue::Null => {}
        ConfigValue::Scalar(text) => {
            let has_credentials = text.contains("://") && redact_address(text) != *text;
            if is_secret_name(key) || looks_like_secret(text) || has_credentials {
                found.push(format!("{origin}: {key}"));
            }
        }
        ConfigValue::List(items) => {
            for item in items {
                find_secrets(key, &item.value, &item.origin, found);
            }
        }
        ConfigValue::Map(entries) => {
            for entry in entries {
                find_secrets(&entry.key, &entry.value.value, &entry.value.origin, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;

    fn bundled(text: &str) -> anyhow::Result<String> {
        let dir = TempDir::new();
        let path = dir.join("pegel.yaml");
        std::fs::write(&path, text).expect("written");
        bundled_config(&path)
    }

    #[test]
    fn comments_are_removed_and_the_rest_means_the_same() {
        let text = bundled("# password: planted\nrate: 1s # every second\nkeep:\n  disk: 1d\n");
        assert_eq!(text.expect("valid"), "rate: 1s\nkeep: {disk: 1d}\n");
    }

    #[test]
    fn secrets_are_refused_and_not_repeated() {
        for text in [
            "auth_key: planted\n",
            "graphite: [{host: carbon1, prefix: 'token=planted'}]\n",
        ] {
            let error = bundled(text).expect_err(text).to_string();
            assert!(error.contains("secrets"), "{error}");
            assert!(!error.contains("planted"), "{error}");
        }
        assert!(bundled("token_file: /etc/pegel/token\n").is_ok());
    }

    #[test]
    fn wrong_keys_are_reported_before_a_node_sees_them() {
        let error = bundled("rates: 1s\n").expect_err("no such key").to_string();
        assert!(error.contains("rates"), "{error}");
    }
}
