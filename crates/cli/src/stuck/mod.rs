//! `pegel stuck`: which ranks of an MPI program the others wait for.

mod stacks;

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::command_error::{CommandError, FAILED};
use crate::format::text_table;
use crate::node_access::{self, NodeArgs};
use crate::output;
use crate::rules::ListFormat;

/// Show which ranks of MPI programs the others wait for
///
/// Compares the ranks of every program that runs under `pegel run -m`, on all nodes of the tree:
/// the call that most ranks are in, and where the others are. Exit codes: 0 no rank waits, 1 ranks
/// have been waiting for longer than --after, 4 no MPI program.
#[derive(Debug, clap::Args)]
pub(crate) struct StuckArgs {
    /// Show only programs of this job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// A rank waits if it has been in one call for this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    after: f64,
    /// List every rank, with the call that it is in; also of programs that ended
    #[arg(long)]
    ranks: bool,
    /// Show the user stacks of ranks on this node for which others wait; requires eu-stack or gdb,
    /// and permission to trace them
    #[arg(long)]
    stacks: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: &StuckArgs) -> anyhow::Result<()> {
    let after = args.after.to_string();
    let mut query = vec![("after", after.as_str())];
    query.extend(args.job.as_deref().map(|job| ("job", job)));
    let client = NodeArgs::default().client(args.socket.as_deref())?;
    let client = client.with_missing_node_messages();
    let mut answer = client.get("/api/v1/mpi", &query)?;
    if args.stacks {
        let own = node_access::list_nodes(&client)?.own;
        stacks::add(&mut answer, &own);
    }
    let mut jobs = answer["jobs"].as_array().cloned().unwrap_or_default();
    jobs.retain(|job| args.ranks || job["has_ended"] != true);
    match args.format {
        ListFormat::Json => output::write(None, &format!("{answer:#}\n"))?,
        ListFormat::Table => output::write(None, &jobs_text(&jobs, args.ranks))?,
    }
    if jobs.is_empty() {
        return Err(CommandError::nothing_matched(match &args.job {
            Some(job) => format!("no MPI program of job {job} runs under `pegel run -m`"),
            None => "no MPI program runs under `pegel run -m`".to_owned(),
        }));
    }
    match jobs.iter().filter(|job| job["is_stuck"] == true).count() {
        0 => Ok(()),
        stuck => Err(CommandError::with_code(
            FAILED,
            format!(
                "ranks of {stuck} of {} MPI programs wait for others",
                jobs.len()
            ),
        )),
    }
}

fn jobs_text(jobs: &[Value], lists_ranks: bool) -> String {
    let mut text = String::new();
    for job in jobs {
        let _ = writeln!(text, "{}", title(job));
        for finding in array(&job["findings"]) {
            for line in array(&finding["lines"]).iter().filter_map(Value::as_str) {
                let _ = writeln!(text, "  {}", pegel_metric::escape_unprintable(line));
            }
        }
        if job["is_stuck"] != true {
            text.push_str("  no rank waits\n");
        }
        if let Some(late) = job["late_text"].as_str() {
            let _ = writeln!(text, "  late: {}", pegel_metric::escape_unprintable(late));
        }
        for stack in array(&job["stacks"]) {
            let _ = writeln!(text, "{}", stack.as_str().unwrap_or_default());
        }
        if lists_ranks {
            text.push_str(&ranks_table(job));
        }
    }
    text
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Names the program: `job 4711, solver: 512 ranks on 4 nodes`.
fn title(job: &Value) -> String {
    let text = |key: &str| job[key].as_str().unwrap_or_default();
    let name = match text("job") {
        "" => text("command").to_owned(),
        id => format!("job {id}, {}", text("command")),
    };
    let seen = array(&job["ranks"]).len() as u64;
    let ranks = match job["size"].as_u64() {
        Some(size) if size > seen => format!("{seen} of {size} ranks"),
        _ if seen == 1 => "1 rank".to_owned(),
        _ => format!("{seen} ranks"),
    };
    let nodes = match job["nodes"].as_u64() {
        Some(1) | None => "1 node".to_owned(),
        Some(count) => format!("{count} nodes"),
    };
    let line = format!("{name}: {ranks} on {nodes}");
    pegel_metric::escape_unprintable(&line).into_owned()
}

fn ranks_table(job: &Value) -> String {
    let rows: Vec<Vec<String>> = array(&job["ranks"])
        .iter()
        .map(|rank| {
            let text = |key: &str| match &rank[key] {
                Value::String(text) => pegel_metric::escape_unprintable(text).into_owned(),
                Value::Number(number) => number.to_string(),
                _ => "–".to_owned(),
            };
            let seconds = rank["collective_seconds"].as_f64().unwrap_or(0.0);
            let mut row: Vec<String> = ["rank", "node", "pid", "state"].map(text).to_vec();
            row.extend([format!("{seconds:.1}"), text("text")]);
            row
        })
        .collect();
    text_table(
        &["RANK", "NODE", "PID", "STATE", "COLLECTIVES S", "IS"],
        &rows,
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn findings_and_ranks_are_listed_below_the_program() {
        let rank = |number: u64| {
            json!({
                "rank": number, "node": "n1", "pid": 10 + number, "state": "S",
                "collective_seconds": 1.5, "text": "in MPI_Recv",
            })
        };
        let job = json!({
            "job": "17", "command": "solver", "size": 4, "nodes": 1, "is_stuck": true,
            "findings": [{"lines": ["3 ranks in MPI_Barrier #2", "rank 1 is outside MPI\u{1b}"]}],
            "late": null, "ranks": [rank(0), rank(1)],
        });
        let text = jobs_text(std::slice::from_ref(&job), true);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "job 17, solver: 2 of 4 ranks on 1 node");
        assert_eq!(lines[1], "  3 ranks in MPI_Barrier #2");
        assert!(lines[2].starts_with("  rank 1 is outside MPI") && !lines[2].contains('\u{1b}'));
        assert!(
            lines
                .last()
                .is_some_and(|line| line.contains("in MPI_Recv"))
        );
    }
}
