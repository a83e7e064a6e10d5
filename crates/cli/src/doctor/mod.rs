//! `pegel doctor`: what can be measured here, what not, and the one line that would change it.
//!
//! Each family of checks has a file: `read` gathers facts from the machine or from the agent, `judge` is a pure
//! function from facts to findings.

mod agent;
mod clock;
mod disk;
mod drops;
mod finding;
mod kernel;
mod lanes;
mod limits;
mod machine;
mod ports;
mod rights;
mod text;
mod words;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;

use pegel_agent::{Loaded, Plan};

use crate::client::Client;
use crate::failure::{FAILED, Failure, NO_AGENT};
use crate::output;
use agent::Answer;
use finding::{Finding, Group, State};
use machine::{Machine, Rights};

/// Say what can be measured here, what not, and the one line that would change it
///
/// Looks at the kernel, at what this user may do, at limits, drops, clock, disk and ports, and at the agent where one
/// runs. Exits with 1 if anything is broken.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The agent's socket [default: $PEGEL_SOCKET, yours, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// The form of the findings
    #[arg(short, long, value_enum, default_value = "txt")]
    format: Format,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// for people
    Txt,
    /// one array
    Json,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let groups = examine(args);
    let text = match args.format {
        Format::Txt => text::write(&groups, look()),
        Format::Json => json(&groups),
    };
    output::write(None, &text)?;
    let findings = groups.iter().flat_map(|group| &group.findings);
    let broken = findings.filter(|f| f.state == State::Broken).count() as u64;
    match broken {
        0 => Ok(()),
        1 => Err(Failure::coded(FAILED, "one thing is broken")),
        count => Err(Failure::coded(FAILED, format!("{count} things are broken"))),
    }
}

fn look() -> text::Look {
    let is_plain = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    text::Look {
        width: output::terminal_width().unwrap_or(100),
        has_colour: std::io::stdout().is_terminal() && !is_plain("NO_COLOR") && !is_dumb,
    }
}

fn json(groups: &[Group]) -> String {
    let findings = groups.iter().flat_map(|group| {
        let findings = group.findings.iter();
        findings.map(|finding| finding.json(group.name))
    });
    let lines: Vec<String> = findings.map(|finding| format!("  {finding}")).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

fn examine(args: &Args) -> Vec<Group> {
    let environment = |name: &str| std::env::var_os(name);
    let (settings, loaded) = configuration(pegel_agent::load(None, &[], &environment));
    let plan = Plan::new(&loaded, &environment);
    let machine = Machine::at(plan.host.root.clone());
    let answer = ask(args);
    let status = answer.status();
    let surveyed = pegel_agent::survey(&plan).unwrap_or_default();
    let seen = match status {
        Some(status) => agent::collectors(&agent::seen(status), "in the agent"),
        None => agent::collectors(&agent::surveyed(&surveyed), "for this user"),
    };
    let rights = rights::read(&machine, Rights::own(), &surveyed, status);
    let lanes = lanes::read(&machine, text_of(environment("PEGEL_LANES")));
    let connections = plan.serve.connections_max as u64;
    let group = |name, findings| Group { name, findings };
    let mut groups = vec![
        group(
            "agent",
            [
                agent::judge(&answer, env!("CARGO_PKG_VERSION")),
                vec![settings],
            ]
            .concat(),
        ),
        group("collectors", seen),
        group("drops", status.map(drops::judge).unwrap_or_default()),
        group("limits", limits::judge(&limits::read(status, connections))),
        group(
            "store",
            disk::judge(&disk::read(status, &plan.store.dir, plan.store.keep_bytes)),
        ),
        group("kernel", kernel::judge(&kernel::read(&machine))),
        group("rights", rights::judge(&rights)),
        group("programs", lanes::judge(&lanes)),
        group("clock", clock::judge(&clock::read(&machine, status))),
    ];
    if machine.is_local() {
        let listen: Vec<SocketAddr> = plan
            .serve
            .listen
            .iter()
            .map(|address| address.socket())
            .collect();
        let pid = status.and_then(|status| u32::try_from(status["pid"].as_u64()?).ok());
        groups.push(group("network", ports::judge(&ports::read(&listen, pid))));
    }
    groups
}

/// What the configuration says, or its mistakes; the rest is then judged by the defaults.
fn configuration(loaded: Result<Loaded, pegel_config::ConfigError>) -> (Finding, Loaded) {
    match loaded {
        Ok(loaded) => {
            let says = match &loaded.file {
                Some(file) => format!("{}: no mistakes", file.display()),
                None => "no file: the defaults".to_owned(),
            };
            (Finding::ok("configuration", says), loaded)
        }
        Err(error) => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default().to_owned();
            let details = text.lines().map(|line| line.trim().to_owned()).collect();
            let finding =
                Finding::broken("configuration", first, "pegel config check").with(details);
            let config = pegel_agent::load(None, &[], &|_| None);
            (finding, config.expect("the defaults are without mistakes"))
        }
    }
}

fn ask(args: &Args) -> Answer {
    let asked =
        Client::find(args.socket.as_deref(), &[]).and_then(|client| client.get("/status", &[]));
    match asked {
        Ok(status) => Answer::Status(Box::new(status)),
        Err(error) => unanswered(&error),
    }
}

fn unanswered(error: &anyhow::Error) -> Answer {
    let text = format!("{error:#}");
    // Hints have their own line here.
    let first = text.lines().next().unwrap_or_default().to_owned();
    let code = error.downcast_ref::<Failure>().map(|failure| failure.code);
    let is_refused = error.chain().any(|cause| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::PermissionDenied)
    });
    if code == Some(NO_AGENT) {
        Answer::Nobody(first)
    } else if is_refused || first.starts_with("the agent answered 401") {
        Answer::NotForUs(first)
    } else {
        Answer::Trouble(first)
    }
}

fn text_of(value: Option<OsString>) -> Option<String> {
    let value = value?.to_string_lossy().into_owned();
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_keys_of_a_finding_are_stable() {
        let groups = [Group {
            name: "store",
            findings: vec![
                Finding::ok("place", "/a \"b\""),
                Finding::broken("room", "none", "make some"),
            ],
        }];
        let expected = r#"[
  {"group":"store","check":"place","state":"ok","says":"/a \"b\"","fix":null,"details":[]},
  {"group":"store","check":"room","state":"broken","says":"none","fix":"make some","details":[]}
]
"#;
        let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        assert_eq!(parse(&json(&groups)), parse(expected));
        assert_eq!(json(&groups).lines().count(), 4, "a line for each");
        assert_eq!(parse(&json(&[])), Value::Array(Vec::new()));
    }

    #[test]
    fn a_wrong_configuration_is_broken_and_the_rest_goes_on() {
        let environment = |name: &str| (name == "PEGEL_LEVEL").then(|| OsString::from("9"));
        let (finding, loaded) = configuration(pegel_agent::load(None, &[], &environment));
        assert_eq!(finding.state, State::Broken);
        assert!(finding.says.contains("PEGEL_LEVEL"), "{finding:?}");
        assert_eq!(loaded.config.own.level.get(), 3);
        let (finding, _) = configuration(pegel_agent::load(None, &[], &|_| None));
        assert_eq!(finding.state, State::Ok);
    }

    #[test]
    fn silence_has_several_causes() {
        let nobody = unanswered(&Failure::coded(
            NO_AGENT,
            "no agent answers\nhint: start one",
        ));
        assert!(matches!(nobody, Answer::Nobody(text) if text == "no agent answers"));
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let denied = anyhow::Error::from(denied).context("cannot connect to /run/pegel/push.sock");
        assert!(matches!(unanswered(&denied), Answer::NotForUs(_)));
        let refused = anyhow::anyhow!("the agent answered 401: a token is needed");
        assert!(matches!(unanswered(&refused), Answer::NotForUs(_)));
        let squatted = anyhow::anyhow!("/x is served by user 7");
        assert!(matches!(unanswered(&squatted), Answer::Trouble(_)));
    }
}
