//! `pegel inputs`: the sources that the agent reads by itself; shows them and switches them.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::agent_client::AgentClient;
use crate::alerts::since;
use crate::format::text_table;
use crate::output;
use crate::rules::ListFormat;

/// Show the inputs that the agent reads, and switch them on and off
///
/// Without a subcommand, shows each input with its state and its last error.
#[derive(Debug, clap::Args)]
pub(crate) struct InputsArgs {
    #[command(subcommand)]
    action: Option<InputsAction>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET", global = true)]
    socket: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum InputsAction {
    /// Read an input, until the agent stops
    Enable {
        /// Name of an input, or of an input and a module of Flux: flux/kvs
        #[arg(value_name = "NAME[/MODULE]")]
        input: String,
    },
    /// Do not read an input, until the agent stops
    Disable {
        /// Name of an input, or of an input and a module of Flux: flux/kvs
        #[arg(value_name = "NAME[/MODULE]")]
        input: String,
    },
}

pub(crate) fn run(args: &InputsArgs) -> anyhow::Result<()> {
    let socket = args.socket.as_deref();
    match &args.action {
        Some(InputsAction::Enable { input }) => switch(socket, input, true),
        Some(InputsAction::Disable { input }) => switch(socket, input, false),
        None => {
            let client = AgentClient::find(socket, &[])?;
            let inputs = client.get("/status", &[])?["pull"].take();
            match args.format {
                ListFormat::Json => {
                    let inputs = if inputs.is_null() { json!([]) } else { inputs };
                    output::write(None, &format!("{inputs:#}\n"))
                }
                ListFormat::Table => output::write(None, &inputs_table(&inputs, Timestamp::now())),
            }
        }
    }
}

fn switch(socket: Option<&Path>, input: &str, is_enabled: bool) -> anyhow::Result<()> {
    let client = AgentClient::find(socket, &[])?;
    let body = json!({"input": input, "enabled": is_enabled});
    client.post("/api/v1/inputs", &body).map(drop)
}

/// Returns one line per input.
fn inputs_table(inputs: &Value, now: Timestamp) -> String {
    let rows: Vec<Vec<String>> = inputs
        .as_array()
        .into_iter()
        .flatten()
        .map(|input| row(input, now))
        .collect();
    if rows.is_empty() {
        return "no inputs; docs/inputs.md shows how to add some\n".to_owned();
    }
    text_table(
        &["INPUT", "KIND", "STATE", "SAMPLES", "LAST", "NEXT", "ERROR"],
        &rows,
    )
}

fn row(input: &Value, now: Timestamp) -> Vec<String> {
    let text = |key: &str| input[key].as_str().unwrap_or_default().to_owned();
    let time = |key: &str| {
        let millis = (input[key].as_f64()? * 1000.0) as i64;
        Timestamp::from_millisecond(millis).ok()
    };
    let last = time("last_attempt").map(|time| format!("{} ago", since(time, now)));
    let next = time("next_attempt").map(|time| format!("in {}", since(now, time)));
    let error = if input["state"] == "failing" {
        text("error")
    } else {
        text("first_refusal")
    };
    vec![
        text("name"),
        text("kind"),
        text("state"),
        input["samples"].as_u64().unwrap_or(0).to_string(),
        last.unwrap_or_default(),
        next.unwrap_or_default(),
        error.split_whitespace().collect::<Vec<_>>().join(" "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_input_has_a_line() {
        let now = Timestamp::from_second(1000).expect("valid");
        assert!(inputs_table(&Value::Null, now).starts_with("no inputs"));
        let inputs = json!([
            {"name": "web", "kind": "prometheus", "state": "up", "samples": 12, "refused": 0,
             "last_attempt": 995.5, "next_attempt": 1005.5, "error": null},
            {"name": "power", "kind": "exec", "state": "failing", "samples": 0,
             "last_attempt": 940.0, "next_attempt": 1060.0, "error": "exited with\nstatus 3"},
            {"name": "raid", "kind": "file", "state": "disabled", "samples": 0},
        ]);
        let expected = "\
INPUT  KIND        STATE     SAMPLES  LAST      NEXT    ERROR
web    prometheus  up        12       4s ago    in 5s
power  exec        failing   0        1m 0s ago in 1m 0s exited with status 3
raid   file        disabled  0
";
        let words = |text: &str| {
            let lines = text
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(words(&inputs_table(&inputs, now)), words(expected));
    }
}
