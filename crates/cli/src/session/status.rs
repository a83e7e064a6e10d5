//! `pegel session status`.

use serde_json::Value;

use super::{SlotArgs, supervise, text};
use crate::agent_client::AgentClient;
use crate::command_error::NO_AGENT;
use crate::format::text_table;
use crate::output;
use crate::rules::ListFormat;

/// Show what is recorded, where, how far the record is behind, and what went wrong
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    session: SlotArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
}

pub(super) fn run(args: &StatusArgs) -> anyhow::Result<()> {
    let answer = AgentClient::find(args.session.socket.as_deref(), &[])
        .and_then(|client| client.get("/api/v1/sessions", &[]));
    let supervisor = supervise::SupervisorFile::find(args.session.socket.as_deref());
    let mut answer = match (answer, &supervisor) {
        (Ok(answer), _) => answer,
        // The state of the supervisor explains why there is no agent.
        (Err(error), Some(state)) if crate::command_error::exit_code(&error).0 == NO_AGENT => {
            output::print_message(&format!("pegel: {}", state.describe()));
            return Err(error);
        }
        (Err(error), _) => return Err(error),
    };
    if let (Some(slot), Some(sessions)) = (&args.session.slot, answer["sessions"].as_array_mut()) {
        sessions.retain(|session| text(session, "slot") == slot);
    }
    if let Some(state) = &supervisor {
        answer["supervisor"] = serde_json::to_value(state).unwrap_or_default();
    }
    let text = match args.format {
        ListFormat::Json => format!("{answer:#}\n"),
        ListFormat::Table => table(&answer, supervisor.as_ref()),
    };
    output::write(None, &text)
}

fn table(answer: &Value, supervisor: Option<&supervise::SupervisorFile>) -> String {
    let sessions = answer["sessions"].as_array();
    let sessions: Vec<&Value> = sessions.into_iter().flatten().collect();
    let mut lines = String::new();
    if sessions.is_empty() {
        lines.push_str("no session; start one with `pegel session start`\n");
    } else {
        let rows: Vec<Vec<String>> = sessions.iter().map(|session| row(session)).collect();
        let titles = ["SLOT", "TASK", "STATE", "BEHIND", "STORED", "WAITING", "TO"];
        lines.push_str(&text_table(&titles, &rows));
    }
    for session in &sessions {
        let upload = &session["upload"];
        let dropped = upload["dropped_blocks"].as_u64().unwrap_or_default();
        let gap = (dropped > 0)
            .then(|| format!("{dropped} blocks were dropped because the spool was full"));
        let problems = [text(session, "problem"), text(upload, "problem")];
        let problems = problems.iter().filter(|problem| !problem.is_empty());
        for problem in problems.map(|problem| (*problem).to_owned()).chain(gap) {
            lines.push_str(&format!("{}: {problem}\n", task_name(session)));
        }
    }
    if let Some(state) = supervisor {
        lines.push_str(&state.describe());
        lines.push('\n');
    }
    lines
}

fn task_name(session: &Value) -> String {
    let [workflow, task, attempt] = ["workflow", "task", "attempt"].map(|key| text(session, key));
    format!("{workflow}/{task}/{attempt}")
}

fn row(session: &Value) -> Vec<String> {
    let upload = &session["upload"];
    let now = jiff::Timestamp::now().as_millisecond();
    let behind = session["recorded_until"].as_i64().map_or_else(
        || "-".to_owned(),
        |until| format!("{} s", (now - until).max(0) / 1000),
    );
    let is_recording = text(session, "state") == "recording";
    let stored = match text(session, "state") {
        "stored" => "all".to_owned(),
        _ => format!(
            "{} blocks",
            upload["position"]["sequence"].as_u64().unwrap_or_default()
        ),
    };
    let state = match (text(session, "state"), session["task_end"].is_i64()) {
        ("recording", true) => "task ended",
        (state, _) => state,
    };
    let waiting = upload["waiting_bytes"].as_u64().unwrap_or_default();
    vec![
        text(session, "slot").to_owned(),
        task_name(session),
        state.to_owned(),
        if is_recording { behind } else { "-".to_owned() },
        stored,
        pegel_metric::quantity::bytes(waiting),
        text(session, "to").to_owned(),
    ]
}
