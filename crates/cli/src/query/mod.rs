//! `pegel query`: evaluates a PromQL expression on the agent, at one time or over a range.

mod answer;
mod chart;

use std::path::PathBuf;
use std::time::Duration;

use pegel_metric::Millis;
use pegel_query::promql::{parse_duration, parse_time};

use crate::agent_client::AgentClient;
use crate::agent_query::display_context;
use crate::command_error::CommandError;
use crate::format::{self, OutputFormat};
use crate::node_access::NodeArgs;
use crate::output;
use crate::top::TerminalTheme;
use answer::{QueryAnswer, parse_answer};

/// Points of a range without `--step`: about as many as columns of a terminal.
const DEFAULT_POINTS: Millis = 120;
/// The shortest step without `--step`.
const DEFAULT_STEP_MIN: Millis = 1_000;

/// Evaluate a PromQL expression, at one time or over a range
///
/// Without --range the result is a table of the values at one time, with --range a chart. The other
/// formats have one entry per sample.
#[derive(Debug, clap::Args)]
pub(crate) struct QueryArgs {
    /// The expression: node_load1, 'sum by (mode) (rate(node_cpu_seconds_total[1m]))'
    expression: String,
    /// Evaluate over this range of time before the end: 10m, 1h30m; with --job also `job`, for all
    /// of its time
    #[arg(long, value_name = "DURATION")]
    range: Option<String>,
    /// Distance of the evaluations over a range: 10s [default: 120 points, at least 1s apart]
    #[arg(long, value_name = "DURATION", requires = "range")]
    step: Option<String>,
    /// Time of the evaluation, or end of the range: seconds since 1970 or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
    /// Only the time of this job, and the CPUs and devices that it held; without --time and --range
    /// at its end
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Repeat every INTERVAL until interrupted
    #[arg(
        long,
        value_name = "INTERVAL",
        num_args = 0..=1,
        default_missing_value = "2s",
        require_equals = true,
        conflicts_with_all = ["time", "output"]
    )]
    watch: Option<String>,
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    node: NodeArgs,
    /// Output format [default: by the extension of FILE, else md]
    #[arg(short, long, value_enum)]
    format: Option<OutputFormat>,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The times of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
struct QueryTimes {
    /// `None` for now.
    end: Option<Millis>,
    range: Option<QueryRange>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum QueryRange {
    /// A length of time before the end.
    Last { length: Millis, step: Millis },
    /// The time of the job; the agent knows it, and chooses a step.
    Job { step: Option<Millis> },
}

/// The value of `--range` for the time of the job.
const WHOLE_JOB: &str = "job";

/// Returns how PromQL names a metric of statsd such as `a.b`; `None` for another expression.
fn dotted_name_hint(expression: &str) -> Option<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.' | '-');
    let is_dotted = expression.contains('.')
        && expression.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && expression.chars().all(is_part);
    is_dotted.then(|| {
        let name = expression.replace(['.', '-'], "_");
        format!("hint: PromQL accepts no dots in a name; write {name} or '{{\"{expression}\"}}'")
    })
}

pub(crate) fn run(args: &QueryArgs) -> anyhow::Result<()> {
    let times = QueryTimes::parse(args)?;
    let interval = args.watch.as_deref().map(|text| duration("--watch", text));
    let interval = interval.transpose()?;
    let client = args.node.client(args.socket.as_deref())?;
    loop {
        let answer = evaluate(&client, args, times).inspect_err(|_| {
            if let Some(hint) = dotted_name_hint(&args.expression) {
                output::print_message(&hint);
            }
        })?;
        let text = show(args, &answer);
        let Some(interval) = interval else {
            output::write(args.output.as_deref(), &text)?;
            return match answer.series.is_empty() {
                true => Err(CommandError::nothing_matched("the result is empty")),
                false => Ok(()),
            };
        };
        if output::terminal_width().is_some() {
            output::write(None, &format!("\u{1b}[H\u{1b}[2J{text}"))?;
        } else {
            output::write(None, &text)?;
        }
        std::thread::sleep(Duration::from_millis(interval.unsigned_abs()));
    }
}

/// Evaluates the expression, and prints the agent's warnings.
fn evaluate(
    client: &AgentClient,
    args: &QueryArgs,
    times: QueryTimes,
) -> anyhow::Result<QueryAnswer> {
    let seconds = |millis: Millis| format!("{}.{:03}", millis / 1000, millis % 1000);
    let mut parameters = vec![("query", args.expression.to_owned())];
    parameters.extend(args.job.clone().map(|job| ("job", job)));
    let is_at_job_end = args.job.is_some() && times.end.is_none() && times.range.is_none();
    let end = times.end.unwrap_or_else(now);
    let path = match times.range {
        Some(QueryRange::Last { length, step }) => {
            // Multiples of the step, so that repeated queries evaluate the same times.
            let end = end - end.rem_euclid(step);
            parameters.push(("start", seconds(end - length)));
            parameters.push(("end", seconds(end)));
            parameters.push(("step", seconds(step)));
            "/api/v1/query_range"
        }
        Some(QueryRange::Job { step }) => {
            parameters.extend(step.map(|step| ("step", seconds(step))));
            "/api/v1/query_range"
        }
        None => {
            if !is_at_job_end {
                parameters.push(("time", seconds(end)));
            }
            "/api/v1/query"
        }
    };
    let parameters: Vec<(&str, &str)> = parameters
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let answer = parse_answer(&client.get(path, &parameters)?)?;
    for note in &answer.notes {
        output::print_message(&format!("pegel: {note}"));
    }
    Ok(answer)
}

fn show(args: &QueryArgs, answer: &QueryAnswer) -> String {
    let format = OutputFormat::choose(args.format, args.output.as_deref(), OutputFormat::Md);
    let context = display_context(args.output.as_deref());
    match format {
        OutputFormat::Md if args.range.is_some() => {
            chart::draw(answer, context.width, terminal_theme())
        }
        OutputFormat::Md => answer::table(answer, context),
        _ => format::values(format, &answer.samples(), context),
    }
}

impl QueryTimes {
    fn parse(args: &QueryArgs) -> anyhow::Result<QueryTimes> {
        let end = args.time.as_deref().map(|text| {
            parse_time(text).ok_or_else(|| {
                CommandError::usage(format!(
                    "--time {text}: expected seconds since 1970 or a time such as 2026-05-12T10:24:00Z"
                ))
            })
        });
        let Some(length) = &args.range else {
            let end = end.transpose()?;
            return Ok(QueryTimes { end, range: None });
        };
        let step = args.step.as_deref().map(|step| duration("--step", step));
        let step = step.transpose()?;
        let range = match (length.as_str(), &args.job) {
            (WHOLE_JOB, Some(_)) => QueryRange::Job { step },
            (WHOLE_JOB, None) => {
                return Err(CommandError::usage("--range job requires --job ID"));
            }
            (length, _) => {
                let length = duration("--range", length)?;
                QueryRange::Last {
                    length,
                    step: step.unwrap_or_else(|| default_step(length)),
                }
            }
        };
        Ok(QueryTimes {
            end: end.transpose()?,
            range: Some(range),
        })
    }
}

/// Returns the step of a range without `--step`, in whole seconds.
fn default_step(length: Millis) -> Millis {
    let step = length.div_euclid(DEFAULT_POINTS);
    step.div_euclid(1_000)
        .saturating_mul(1_000)
        .max(DEFAULT_STEP_MIN)
}

fn duration(option: &str, text: &str) -> anyhow::Result<Millis> {
    parse_duration(text)
        .filter(|millis| *millis > 0)
        .ok_or_else(|| {
            CommandError::usage(format!(
                "{option} {text}: expected a duration such as 10s, 5m or 1h30m"
            ))
        })
}

/// Returns the theme of standard output: no colours unless it is a terminal.
fn terminal_theme() -> TerminalTheme {
    let theme = TerminalTheme::detect(|name| std::env::var(name).ok());
    TerminalTheme {
        has_colours: theme.has_colours && output::terminal_width().is_some(),
        ..theme
    }
}

fn now() -> Millis {
    (display_context(None).now * 1000.0) as Millis
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_dots_is_explained() {
        let hint = dotted_name_hint("solver.iter").expect("a hint");
        assert!(
            hint.contains("solver_iter or '{\"solver.iter\"}'"),
            "{hint}"
        );
        for other in ["node_load1", "rate(a.b[1m])", "0.5", "sum by (a.b) (x)"] {
            assert_eq!(dotted_name_hint(other), None, "{other}");
        }
    }

    #[test]
    fn a_range_has_about_120_steps_of_whole_seconds() {
        for (range, step) in [(10_000, 1_000), (600_000, 5_000), (3_600_000, 30_000)] {
            assert_eq!(default_step(range), step);
        }
        assert_eq!(default_step(86_400_000), 720_000);
    }
}
