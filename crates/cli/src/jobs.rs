//! `pegel jobs`: the jobs that this node, or all nodes of a tree, have seen.

use std::path::PathBuf;

use pegel_config::TimeSpan;
use pegel_metric::quantity;
use serde_json::Value;

use crate::command_error::CommandError;
use crate::format::{csv_field, number, text_table};
use crate::node_access::NodeArgs;
use crate::output;

/// Nodes of a job that are named in the table; the rest is counted.
const NODES_MAX: usize = 3;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum JobFormat {
    /// Human-readable text
    Table,
    /// One JSON array
    Json,
    /// CSV
    Csv,
}

/// Show the jobs that this node has seen, the newest first
///
/// Users see their own jobs; root, the agent's user and users in `operators` see all. On a parent,
/// the jobs of all nodes are merged by their ids.
#[derive(Debug, clap::Args)]
pub(crate) struct JobsArgs {
    /// Show only this job; JOB.STEP shows a step
    job: Option<String>,
    /// Jobs that ran within this time: 12h, 7d
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    since: TimeSpan,
    /// Only jobs of this user: a name or a number
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Show job steps too
    #[arg(long)]
    steps: bool,
    /// The most jobs, the newest ones
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    limit: u32,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = JobFormat::Table)]
    format: JobFormat,
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    node: NodeArgs,
}

pub(crate) fn run(args: &JobsArgs) -> anyhow::Result<()> {
    let client = args.node.client(args.socket.as_deref())?;
    let client = client.with_missing_node_messages();
    let since = format!("-{}ms", args.since.duration().as_millis());
    let limit = args.limit.to_string();
    let steps = args.steps || args.job.as_deref().is_some_and(|job| job.contains('.'));
    let mut parameters = vec![
        ("since", since.as_str()),
        ("limit", &limit),
        ("steps", if steps { "1" } else { "0" }),
    ];
    parameters.extend(args.user.as_deref().map(|user| ("user", user)));
    parameters.extend(args.job.as_deref().map(|job| ("job", job)));
    let answer = client.get("/api/v1/jobs", &parameters)?;
    let jobs = answer["jobs"].as_array().cloned().unwrap_or_default();
    let text = match args.format {
        JobFormat::Json => format!("{:#}\n", Value::Array(jobs.clone())),
        JobFormat::Csv => csv(&jobs),
        JobFormat::Table => table(&jobs),
    };
    output::write(None, &text)?;
    if let Some(left_out) = answer["left_out"].as_u64().filter(|count| *count > 0) {
        output::print_message(&format!(
            "pegel: {left_out} older jobs are not shown; use --limit"
        ));
    }
    match (jobs.is_empty(), &args.job) {
        (true, Some(job)) => Err(CommandError::nothing_matched(format!("no job {job}"))),
        _ => Ok(()),
    }
}

/// The columns of CSV, by the keys of the API.
const CSV_COLUMNS: [&str; 18] = [
    "job",
    "step",
    "scheduler",
    "user",
    "nodes",
    "begin",
    "end",
    "duration",
    "state",
    "cpus",
    "cpu_seconds",
    "cpu_ratio",
    "gpus",
    "gpu_seconds",
    "gpu_ratio",
    "memory_peak",
    "memory_limit",
    "sluid",
];

fn csv(jobs: &[Value]) -> String {
    let mut text = CSV_COLUMNS.join(",") + "\n";
    for job in jobs {
        let cells = CSV_COLUMNS.map(|key| match &job[key] {
            Value::Null => String::new(),
            Value::String(value) => csv_field(value),
            Value::Array(values) => {
                let values = values.iter().filter_map(Value::as_str);
                csv_field(&values.collect::<Vec<_>>().join(" "))
            }
            value => value.to_string(),
        });
        text.push_str(&(cells.join(",") + "\n"));
    }
    text
}

fn table(jobs: &[Value]) -> String {
    if jobs.is_empty() {
        return "no jobs\n".to_owned();
    }
    let titles = [
        "JOB", "USER", "NODES", "BEGIN", "DURATION", "CPU", "GPU", "MEMORY", "STATE",
    ];
    let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
    text_table(&titles, &rows)
}

fn row(job: &Value) -> Vec<String> {
    let text = |key: &str| job[key].as_str().unwrap_or_default().to_owned();
    let name = match job["step"].as_str() {
        Some(step) => format!("{}.{step}", text("job")),
        None => text("job"),
    };
    let begin = job["begin"].as_f64().unwrap_or(0.0) / 1000.0;
    vec![
        name,
        job["user"].as_str().unwrap_or("?").to_owned(),
        nodes(&job["nodes"]),
        number::utc(begin),
        duration(job["duration"].as_f64().unwrap_or(0.0)),
        share(&job["cpu_ratio"], &job["cpu_seconds"], &job["cpus"]),
        share(&job["gpu_ratio"], &job["gpu_seconds"], &job["gpus"]),
        memory(&job["memory_peak"], &job["memory_limit"]),
        text("state"),
    ]
}

fn nodes(nodes: &Value) -> String {
    let names: Vec<&str> = { nodes.as_array().into_iter().flatten() }
        .filter_map(Value::as_str)
        .collect();
    match names.len() {
        0..=NODES_MAX => names.join(","),
        count => format!(
            "{} and {} more",
            names[..NODES_MAX].join(","),
            count - NODES_MAX
        ),
    }
}

/// Formats what was used of what was held: `74 % of 64`, or the seconds if the latter is unknown.
fn share(ratio: &Value, seconds: &Value, held: &Value) -> String {
    match (ratio.as_f64(), seconds.as_f64(), held.as_u64()) {
        (Some(ratio), _, Some(held)) => format!("{:.0} % of {held}", ratio * 100.0),
        (None, Some(seconds), _) => format!("{} s", (seconds * 100.0).round() / 100.0),
        (_, None, Some(held)) if held > 0 => format!("of {held}"),
        _ => "-".to_owned(),
    }
}

fn memory(peak: &Value, limit: &Value) -> String {
    let bytes = |value: &Value| value.as_u64().map(quantity::bytes);
    match (bytes(peak), bytes(limit)) {
        (Some(peak), Some(limit)) => format!("{peak} of {limit}"),
        (Some(peak), None) => peak.to_string(),
        (None, _) => "-".to_owned(),
    }
}

/// Formats a time in its two largest units, or in milliseconds.
fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60) {
        (0, 0, 0) if seconds < 10.0 => format!("{} ms", (seconds * 1000.0).round()),
        (0, 0, 0) => format!("{whole}s"),
        (0, 0, minutes) => format!("{minutes}m{:02}s", whole % 60),
        (0, hours, minutes) => format!("{hours}h{minutes:02}m"),
        (days, hours, _) => format!("{days}d{hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn jobs() -> Vec<Value> {
        vec![
            json!({
                "job": "17", "user": "ada", "nodes": ["n1", "n2", "n3", "n4"], "scheduler": "slurm",
                "begin": 1_700_000_000_000_i64, "end": 1_700_003_720_000_i64, "duration": 3720.0,
                "state": "oom", "cpus": 64, "cpu_seconds": 100.0, "cpu_ratio": 0.74, "gpus": null,
                "gpu_seconds": null, "gpu_ratio": null, "memory_peak": 1 << 30, "memory_limit": 2_u64 << 30,
            }),
            json!({
                "job": "17", "step": "batch", "user": null, "nodes": ["a,b"], "scheduler": "slurm",
                "begin": 1_700_000_000_000_i64, "end": null, "duration": 0.005, "state": "running",
                "cpus": null, "cpu_seconds": 0.25, "cpu_ratio": null, "gpus": 2,
            }),
        ]
    }

    #[test]
    fn jobs_are_shown_as_a_table() {
        let expected = "\
JOB       USER  NODES                BEGIN                 DURATION  CPU         GPU   MEMORY          STATE
17        ada   n1,n2,n3 and 1 more  2023-11-14 22:13:20Z  1h02m     74 % of 64  -     1 GiB of 2 GiB  oom
17.batch  ?     a,b                  2023-11-14 22:13:20Z  5 ms      0.25 s      of 2  -               running
";
        assert_eq!(table(&jobs()), expected);
        assert_eq!(table(&[]), "no jobs\n");
    }

    #[test]
    fn jobs_are_written_as_csv() {
        let text = csv(&jobs());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("job,step,scheduler,user,nodes,begin"));
        assert!(
            lines[1].starts_with(
                "17,,slurm,ada,n1 n2 n3 n4,1700000000000,1700003720000,3720.0,oom,64,"
            )
        );
        assert!(lines[2].starts_with("17,batch,slurm,,\"a,b\",1700000000000,,0.005,running,"));
    }

    #[test]
    fn durations_have_two_units() {
        for (seconds, expected) in [
            (0.0, "0 ms"),
            (12.9, "12s"),
            (61.0, "1m01s"),
            (90_061.0, "1d01h"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
