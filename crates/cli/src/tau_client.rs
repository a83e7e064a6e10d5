//! `tau_metric_client`: the queries of `pegel list`, `values`, `get` and `track` with the options
//! and formats of TAU's client, for existing scripts. Undocumented details follow the commands of
//! pegel.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use pegel_metric::split_series_list;

use crate::agent_client::AgentClient;
use crate::agent_query::{self, fetch_series_list};
use crate::api_values::SeriesInfo;
use crate::command_error::{CommandError, clap_message};
use crate::format::{self, OutputFormat};
use crate::series_query::SeriesQuery;
use crate::track::{self, TrackOptions};
use crate::{output, tau_proxy};

pub(crate) const NAME: &str = "tau_metric_client";

const USAGE: &str = "\
usage: tau_metric_client [-h] [-o OUTPUT] [-u UNIX] [-F FREQ] [-f {md,json,yaml,txt}] [-l] [-v] [-g GET] [-t]
                         [-T TRACK_LIST]
";

const OPTIONS: &str = "
tau_metric_proxy client

optional arguments:
  -h, --help            show this help message and exit
  -o OUTPUT, --output OUTPUT
                        File to store the result to
  -u UNIX, --unix UNIX  Path to the tau_metric_proxy UNIX socket
  -F FREQ, --freq FREQ  Sampling frequency (for data retrieval)
  -f {md,json,yaml,txt}, --format {md,json,yaml,txt}
                        Path to the tau_metric_proxy UNIX socket
  -l, --list            List metrics in the tau_metric_proxy
  -v, --values          List all values in the tau_metric_proxy
  -g GET, --get GET     Get values by name (comma separated)
  -t, --track           Track all non-null counters over time
  -T TRACK_LIST, --track-list TRACK_LIST
                        Track a given list of values over time
";

#[derive(Debug, Parser)]
#[command(name = NAME, disable_help_flag = true, infer_long_args = true)]
struct TauClientArgs {
    #[arg(short = 'h', long = "help")]
    help: bool,
    #[arg(short = 'o', long = "output")]
    output: Option<PathBuf>,
    #[arg(short = 'u', long = "unix")]
    unix: Option<PathBuf>,
    #[arg(
        short = 'F',
        long = "freq",
        default_value = "1",
        allow_hyphen_values = true
    )]
    freq: String,
    #[arg(short = 'f', long = "format")]
    format: Option<String>,
    #[arg(short = 'l', long = "list", group = "question")]
    list: bool,
    #[arg(short = 'v', long = "values", group = "question")]
    values: bool,
    #[arg(short = 'g', long = "get", group = "question")]
    get: Option<String>,
    #[arg(short = 't', long = "track", group = "question")]
    track: bool,
    #[arg(short = 'T', long = "track-list", group = "question")]
    track_list: Option<String>,
}

pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let args =
        TauClientArgs::try_parse_from(arguments).map_err(|error| usage(&clap_message(&error)))?;
    if args.help {
        return output::write(None, &format!("{USAGE}{OPTIONS}"));
    }
    let format = args.format.as_deref().map(parse_format).transpose()?;
    let socket = args.unix.as_deref();
    let find = || AgentClient::find(socket, &[tau_proxy::default_socket()]);
    let write = |text: &str| output::write(args.output.as_deref(), text);
    let by_default = |default| OutputFormat::choose(format, None, default);
    if args.list {
        let listed: Vec<SeriesInfo> = fetch_series_list(&find()?)?
            .into_iter()
            .map(with_tau_kind)
            .collect();
        let title = "List of tau_metric_exporter Metrics";
        return write(&format::list(by_default(OutputFormat::Md), &listed, title));
    }
    if args.values {
        let readings = agent_query::fetch_values(&find()?, &[])?;
        let page = agent_query::display_context(args.output.as_deref());
        return write(&format::values(
            by_default(OutputFormat::Md),
            &readings,
            page,
        ));
    }
    if let Some(list) = &args.get {
        let names = parse_names(list, "-g/--get")?;
        let readings = agent_query::fetch_values(&find()?, &[("names", &names.join(","))])?;
        if readings.is_empty() {
            return Err(CommandError::nothing_matched(format!(
                "no metric named {list}"
            )));
        }
        let page = agent_query::display_context(args.output.as_deref());
        return write(&format::values(
            by_default(OutputFormat::Md),
            &readings,
            page,
        ));
    }
    let names = match (&args.track_list, args.track) {
        (Some(list), _) => parse_names(list, "-T/--track-list")?,
        (None, true) => Vec::new(),
        (None, false) => return Err(usage("one of the arguments -l -v -g -t -T is required")),
    };
    let hz = track::parse_frequency(&args.freq)?;
    let client = find()?;
    if let Some(path) = &args.output {
        let path = path.display();
        output::write(
            None,
            &format!("Logging in {path} interrupt with CTRL + C when done...\n"),
        )?;
    }
    let tracking = TrackOptions {
        series: SeriesQuery::exact(&names)?,
        hz,
        format: by_default(OutputFormat::Json),
        output: args.output,
    };
    track::track(&client, &tracking)
}

fn parse_names(list: &str, option: &str) -> anyhow::Result<Vec<String>> {
    let names: Vec<String> = split_series_list(list)
        .into_iter()
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        return Err(usage(&format!("argument {option}: no name given")));
    }
    Ok(names)
}

fn parse_format(text: &str) -> anyhow::Result<OutputFormat> {
    match text {
        "md" => Ok(OutputFormat::Md),
        "json" => Ok(OutputFormat::Json),
        "yaml" => Ok(OutputFormat::Yaml),
        "txt" => Ok(OutputFormat::Txt),
        _ => Err(usage(&format!(
            "argument -f/--format: invalid choice: '{text}' (choose from 'md', 'json', 'yaml', 'txt')"
        ))),
    }
}

fn with_tau_kind(mut item: SeriesInfo) -> SeriesInfo {
    item.kind = match item.kind.as_str() {
        "counter" => "TAU_METRIC_COUNTER",
        _ => "TAU_METRIC_GAUGE",
    }
    .to_owned();
    item.unit.clear();
    item
}

fn usage(message: &str) -> anyhow::Error {
    CommandError::usage(format!("{USAGE}{NAME}: error: {message}"))
}
