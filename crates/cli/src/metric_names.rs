//! `pegel complete-names`, called by the completion scripts: the metric names of the running agent
//! that continue a word.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

use crate::agent_client::{AgentClient, STARTUP_TIMEOUT};
use crate::api_values::parse_series_list;
use crate::command_error::{CommandError, clap_message};
use crate::output;

/// The name of the command in completion scripts.
pub(crate) const COMMAND: &str = "complete-names";

/// Print the metric names that continue a word, for shell completions
#[derive(Debug, Parser)]
struct CompleteNamesArgs {
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// The word to complete: a name, or a comma-separated list of names
    #[arg(default_value = "", allow_hyphen_values = true)]
    word: String,
}

/// Prints one whole word per line. Prints nothing if no agent answers within a second: the user
/// waits for a prompt.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let args = CompleteNamesArgs::try_parse_from(arguments)
        .map_err(|error| CommandError::usage(clap_message(&error)))?;
    let (before, start) = split_word(&args.word);
    let names = fetch_names(&args, start).unwrap_or_default();
    let lines = names.iter().map(|name| format!("{before}{name}\n"));
    output::write(None, &lines.collect::<String>())
}

/// Splits a word into the complete names before the last comma and the start of a name. A comma
/// within braces separates labels, which are not completed.
fn split_word(word: &str) -> (&str, &str) {
    let end = match (word.rfind(','), word.rfind('}')) {
        (Some(comma), brace) if brace.is_none_or(|brace| brace < comma) => comma + 1,
        _ => 0,
    };
    word.split_at(end)
}

fn fetch_names(args: &CompleteNamesArgs, start: &str) -> anyhow::Result<BTreeSet<String>> {
    let client = AgentClient::find_within(STARTUP_TIMEOUT, args.socket.as_deref(), &[])?;
    let pattern = format!("{start}*");
    let listed = parse_series_list(&client.get("/api/v1/list", &[("match", &pattern)])?)?;
    let names = listed.iter().map(|item| name_of(&item.name));
    let continues = |name: &&str| name.starts_with(start) && !start.contains('{');
    Ok(names.filter(continues).map(str::to_owned).collect())
}

fn name_of(text: &str) -> &str {
    text.split('{').next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_after_the_last_comma_is_completed() {
        for (word, expected) in [
            ("", ("", "")),
            ("node_", ("", "node_")),
            ("node_load1,node_c", ("node_load1,", "node_c")),
            ("a{x=\"1\",y=\"2\"},b", ("a{x=\"1\",y=\"2\"},", "b")),
        ] {
            assert_eq!(split_word(word), expected);
        }
    }
}
