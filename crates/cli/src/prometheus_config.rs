use std::net::IpAddr;
use std::path::PathBuf;

use crate::command_error::CommandError;
use crate::output;

const PORT: u16 = 1337;

/// Write what Prometheus needs to scrape agents
///
/// The answer is a part of prometheus.yml; with Prometheus 2.43 or newer it can also be a file of its own, named under
/// scrape_config_files.
#[derive(Debug, clap::Args)]
pub struct PrometheusConfigArgs {
    /// The nodes, separated by commas, each NAME or NAME:PORT [default: this one, over loopback]
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    nodes: Vec<String>,
    /// The port of nodes that have none of their own
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// How often: 5s, 1m
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_interval)]
    interval: String,
    /// The file in which Prometheus finds the token [default: for other nodes /etc/prometheus/pegel.token]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The file with the authority that signed the agents' certificates [default: those that the system trusts]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Ask other nodes without TLS and without a token, as agents with --insecure allow it
    #[arg(long, conflicts_with_all = ["ca_file", "token_file"])]
    insecure: bool,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(args: &PrometheusConfigArgs) -> anyhow::Result<()> {
    let nodes = match args.nodes.is_empty() {
        true => vec!["localhost".to_owned()],
        false => args.nodes.clone(),
    };
    let targets = nodes
        .iter()
        .map(|node| ScrapeTarget::parse(node, args.port));
    let targets = targets.collect::<anyhow::Result<Vec<ScrapeTarget>>>()?;
    let (near, far): (Vec<ScrapeTarget>, Vec<ScrapeTarget>) =
        targets.into_iter().partition(|target| target.is_loopback);
    let mut text = "# Written by `pegel prometheus-config`.\nscrape_configs:\n".to_owned();
    if !near.is_empty() {
        text.push_str("# Over loopback there is no TLS. Without a token, the agent must have `allow_users: [prometheus]`.\n");
        text.push_str(&scrape_job("pegel", &near, args));
        if let Some(token) = &args.token_file {
            text.push_str(&credentials(token));
        }
    }
    if !far.is_empty() {
        let name = if near.is_empty() {
            "pegel"
        } else {
            "pegel-nodes"
        };
        text.push_str(&scrape_job(name, &far, args));
        if !args.insecure {
            let token = args.token_file.clone();
            text.push_str("    scheme: https\n");
            if let Some(ca) = &args.ca_file {
                text.push_str(&format!(
                    "    tls_config:\n      ca_file: {}\n",
                    quoted(&ca.to_string_lossy())
                ));
            }
            text.push_str(&credentials(
                &token.unwrap_or("/etc/prometheus/pegel.token".into()),
            ));
        }
    }
    output::write(args.output.as_deref(), &text)
}

fn scrape_job(name: &str, targets: &[ScrapeTarget], args: &PrometheusConfigArgs) -> String {
    let targets: Vec<String> = targets.iter().map(|target| quoted(&target.text)).collect();
    let interval = &args.interval;
    format!(
        "  - job_name: {name}
    scrape_interval: {interval}
    scrape_timeout: {interval}
    static_configs:
      - targets: [{}]
",
        targets.join(", ")
    )
}

fn credentials(path: &std::path::Path) -> String {
    let path = quoted(&path.to_string_lossy());
    format!("    authorization:\n      type: Bearer\n      credentials_file: {path}\n")
}

/// In double quotes, as JSON and YAML both have it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[derive(Debug, PartialEq, Eq)]
struct ScrapeTarget {
    text: String,
    is_loopback: bool,
}

impl ScrapeTarget {
    fn parse(node: &str, port: u16) -> anyhow::Result<ScrapeTarget> {
        let node = node.trim();
        let wrong = || {
            CommandError::usage(format!(
                "--nodes: {node:?} is not a node; it looks like nid0001, nid0001:{PORT} or [2001:db8::1]:{PORT}"
            ))
        };
        let target = |host: &str, shown: String, port: u16| {
            let ip: Option<IpAddr> = host.parse().ok();
            ScrapeTarget {
                text: format!("{shown}:{port}"),
                is_loopback: ip.is_some_and(|ip| ip.is_loopback())
                    || host.eq_ignore_ascii_case("localhost"),
            }
        };
        let number = |text: &str| text.parse().ok().filter(|port: &u16| *port > 0);
        if node.parse::<std::net::Ipv6Addr>().is_ok() {
            return Ok(target(node, format!("[{node}]"), port));
        }
        if let Some(rest) = node.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
            let port = match rest.strip_prefix(':') {
                Some(text) => number(text).ok_or_else(wrong)?,
                None if rest.is_empty() => port,
                None => return Err(wrong()),
            };
            return Ok(target(host, format!("[{host}]"), port));
        }
        let (host, port) = match node.split_once(':') {
            Some((host, text)) => (host, number(text).ok_or_else(wrong)?),
            None => (node, port),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if host.is_empty() || host.starts_with('-') || !host.chars().all(is_name) {
            return Err(wrong());
        }
        Ok(target(host, host.to_owned(), port))
    }
}

/// A whole number and a unit, as Prometheus has it.
fn parse_interval(text: &str) -> Result<String, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let is_number = digits.parse::<u32>().is_ok_and(|number| number > 0);
    let unit = &text[digits.len()..];
    match is_number && matches!(unit, "ms" | "s" | "m" | "h") {
        true => Ok(text.to_owned()),
        false => Err("it is a whole number with ms, s, m or h, such as 5s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_names_or_addresses_and_may_have_ports() {
        for (node, text, is_loopback) in [
            ("nid1", "nid1:1337", false),
            (" nid1.example.org:9000 ", "nid1.example.org:9000", false),
            ("localhost", "localhost:1337", true),
            ("127.0.0.2:7", "127.0.0.2:7", true),
            ("::1", "[::1]:1337", true),
            ("[2001:db8::1]:9", "[2001:db8::1]:9", false),
            ("[2001:db8::1]", "[2001:db8::1]:1337", false),
        ] {
            let target = ScrapeTarget::parse(node, PORT).expect(node);
            assert_eq!(
                (target.text.as_str(), target.is_loopback),
                (text, is_loopback)
            );
        }
        for node in [
            "", " ", "-x", "a:b", "a:0", "a:70000", "a b", "[x]:1", "[::1", "[::1]x", "http://a",
            "a\"b", "nid[1-3]",
        ] {
            assert!(ScrapeTarget::parse(node, PORT).is_err(), "{node}");
        }
    }

    #[test]
    fn intervals_are_those_of_prometheus() {
        for text in ["5s", "500ms", "1m", "2h"] {
            assert_eq!(parse_interval(text), Ok(text.to_owned()));
        }
        for text in ["", "5", "s", "0s", "1.5s", "-1s", "5 s", "5µs"] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
    }
}
