//! User stacks of ranks on this node, by elfutils' `eu-stack` or by gdb.
//!
//! They run as the user who runs `pegel stuck`, and not in the agent: they read programs and symbol
//! files of the traced process, and may stop it for some milliseconds.

use std::time::Duration;

use pegel_command::{CommandOptions, run_command};
use serde_json::{Value, json};

/// The most processes of which a stack is shown.
const STACKS_MAX: usize = 4;
/// How long a tool may take: it reads the symbols of all loaded libraries.
const TOOL_TIME: Duration = Duration::from_secs(20);
const OUTPUT_MAX: usize = 1 << 20;
/// The most lines of one stack.
const LINES_MAX: usize = 60;

/// Adds `stacks` to each job: of ranks for which others wait, on this node.
pub(super) fn add(answer: &mut Value, own_node: &str) {
    let mut left = STACKS_MAX;
    for job in answer["jobs"].as_array_mut().into_iter().flatten() {
        let missing: Vec<u64> = { job["findings"].as_array().into_iter().flatten() }
            .flat_map(|finding| finding["missing"].as_array().into_iter().flatten())
            .filter_map(Value::as_u64)
            .collect();
        let is_wanted = |rank: &&Value| {
            let number = rank["rank"].as_u64();
            let is_missing = number.is_some_and(|number| missing.contains(&number));
            is_missing && rank["node"] == own_node && rank["has_ended"] == false
        };
        let ranks = job["ranks"].as_array().into_iter().flatten();
        let wanted: Vec<(Value, u64)> = { ranks.filter(is_wanted) }
            .filter_map(|rank| Some((rank["rank"].clone(), rank["pid"].as_u64()?)))
            .take(left)
            .collect();
        left -= wanted.len();
        let stacks: Vec<String> = { wanted.iter() }
            .map(|(rank, pid)| format!("  stack of rank {rank}, pid {pid}:\n{}", stack(*pid)))
            .collect();
        job["stacks"] = json!(stacks);
    }
}

/// Returns the stacks of all threads of a process, or why there are none.
fn stack(pid: u64) -> String {
    let pid = pid.to_string();
    let eu_stack = ["eu-stack", "-p", &pid, "-n", "32"];
    let gdb = [
        "gdb",
        "-nx",
        "-batch",
        "-iex",
        "set auto-load off",
        "-iex",
        "set debuginfod enabled off",
        "-ex",
        "thread apply all backtrace 32",
        "-p",
        &pid,
    ];
    let mut problems = Vec::new();
    for tool in [&eu_stack[..], &gdb[..]] {
        match run_tool(tool) {
            Ok(text) if !text.is_empty() => return text,
            Ok(_) => problems.push(format!("{} printed no stack", tool[0])),
            Err(problem) => problems.push(problem),
        }
    }
    format!("    none: {}", problems.join("; "))
}

fn run_tool(tool: &[&str]) -> Result<String, String> {
    let argv: Vec<String> = tool.iter().map(|&word| word.to_owned()).collect();
    let options = CommandOptions {
        argv: &argv,
        input: &[],
        environment: &[],
        timeout: TOOL_TIME,
        output_max: OUTPUT_MAX,
        stop: None,
    };
    let output = run_command(&options).map_err(|error| format!("{}: {error}", tool[0]))?;
    let text = String::from_utf8_lossy(&output);
    let is_frame = |line: &&str| {
        line.starts_with('#') || line.starts_with("TID") || line.starts_with("Thread")
    };
    let lines = text.lines().filter(is_frame).take(LINES_MAX);
    let lines: Vec<String> = lines
        .map(|line| format!("    {}", pegel_metric::escape_unprintable(line)))
        .collect();
    Ok(lines.join("\n"))
}
