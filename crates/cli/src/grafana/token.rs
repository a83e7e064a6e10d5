//! Finds and validates the agent's token, which Grafana sends.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use pegel_config::Secret;

use crate::command_error::CommandError;

/// The longest token that the agent accepts.
const BYTES_MAX: u64 = 4096;

/// Returns the token from the given file, else from `$PEGEL_TOKEN`, else from the file in the
/// agent's configuration.
pub(super) fn find(
    given: Option<&Path>,
    configured: Option<&Path>,
) -> anyhow::Result<Option<Secret>> {
    if let Some(path) = given {
        return read(path).map(Some);
    }
    let variable = std::env::var("PEGEL_TOKEN").unwrap_or_default();
    if !variable.trim().is_empty() {
        return check(&variable, "$PEGEL_TOKEN").map(Some);
    }
    configured.map(read).transpose()
}

fn read(path: &Path) -> anyhow::Result<Secret> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(2 * BYTES_MAX).read_to_string(&mut text))
        .with_context(|| {
            let path = path.display();
            format!("cannot read the token file {path}; run as the agent's user or root, or pass another file with --token-file")
        })?;
    check(&text, &path.display().to_string())
}

/// Checks that the token is valid in an HTTP header. No message shows any part of it.
fn check(text: &str, source: &str) -> anyhow::Result<Secret> {
    let text = text.trim();
    let is_valid = !text.is_empty()
        && text.len() as u64 <= BYTES_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid {
        Ok(Secret::new(text))
    } else {
        Err(CommandError::usage(format!(
            "invalid token in {source}: expected one line of 1 to {BYTES_MAX} visible ASCII characters"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word_and_is_never_shown() {
        assert_eq!(
            check(" planted \n", "F").expect("a token").reveal(),
            "planted"
        );
        for text in ["", " \n", "planted word", "planted\nline", "plantedä"] {
            let message = check(text, "F").expect_err(text).to_string();
            assert!(message.contains("invalid token in F"), "{message}");
            assert!(!message.contains("planted"), "{message}");
        }
    }
}
