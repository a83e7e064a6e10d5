//! Facts that several manual pages share: exit codes, environment variables, files, related pages.

/// Commands that query a running agent.
const CLIENTS: &[&str] = &[
    "", "list", "values", "get", "track", "top", "push", "mark", "doctor", "run", "config",
    "grafana",
];
/// Commands that read the configuration.
const CONFIGURED: &[&str] = &["", "agent", "config", "doctor", "grafana", "snapshot"];
const ALL: &[&str] = &[];
/// Commands with the usual meaning of exit code 1.
const NOT_DOCTOR: &[&str] = &[
    "agent",
    "run",
    "list",
    "values",
    "get",
    "track",
    "top",
    "push",
    "mark",
    "snapshot",
    "grafana",
    "prometheus-config",
    "config",
    "version",
    "completions",
    "man",
];

/// A fact, and the commands to which it applies; all if there are none. The empty name stands for
/// `pegel` itself.
struct Fact {
    name: &'static str,
    text: &'static str,
    commands: &'static [&'static str],
}

const fn fact(name: &'static str, text: &'static str, commands: &'static [&'static str]) -> Fact {
    Fact {
        name,
        text,
        commands,
    }
}

const EXIT_CODES: &[Fact] = &[
    fact("0", "Success.", ALL),
    fact(
        "1",
        "Failure; from doctor: a check is broken.",
        &["", "doctor"],
    ),
    fact("1", "Failure.", NOT_DOCTOR),
    fact("2", "Usage or configuration error.", ALL),
    fact(
        "3",
        "No agent is running, or the connection to it was lost.",
        CLIENTS,
    ),
    fact(
        "4",
        "No series matches.",
        &["", "list", "values", "get", "track"],
    ),
    fact(
        "5",
        "Some of the names or patterns have no series; the others were printed.",
        &["", "list", "values", "get", "track"],
    ),
    fact(
        "126, 127",
        "COMMAND cannot be executed, or is not found. Otherwise the exit code of COMMAND.",
        &["run"],
    ),
];

const ENVIRONMENT: &[Fact] = &[
    fact("PEGEL_SOCKET", "The UNIX socket of the agent.", ALL),
    fact(
        "PEGEL_CONFIG, DRAGON_TELEMETRY_CONFIG",
        "The configuration file.",
        CONFIGURED,
    ),
    fact(
        "PEGEL_LISTEN",
        "Comma-separated addresses for HTTP, like --listen.",
        CONFIGURED,
    ),
    fact(
        "PEGEL_LEVEL, DRAGON_TELEMETRY_LEVEL",
        "The highest metric level to keep, like --level.",
        CONFIGURED,
    ),
    fact(
        "PEGEL_RATE",
        "The sampling interval, like --rate.",
        CONFIGURED,
    ),
    fact(
        "PEGEL_DIR",
        "The directory of the store, like --dir.",
        CONFIGURED,
    ),
    fact(
        "PEGEL_LOG",
        "Log level and destination, like --log.",
        CONFIGURED,
    ),
    fact(
        "PEGEL_TOKEN",
        "The token that clients of other users and machines must send.",
        &["", "agent", "grafana"],
    ),
    fact(
        "PEGEL_LANES",
        "The directory of lanes: shared-memory files through which programs count.",
        &["", "agent", "run", "doctor"],
    ),
    fact(
        "PEGEL_DISABLE",
        "If set to 1, programs and wrappers count nothing.",
        &["", "agent", "run"],
    ),
    fact(
        "PEGEL_JOB",
        "The job ID of counts [default: that of the scheduler].",
        &["", "run"],
    ),
    fact(
        "PEGEL_AUTO_AGENT",
        "If set to 1, start an agent if none is running, like --agent.",
        &["", "run"],
    ),
    fact(
        "NO_COLOR",
        "If set, print without colours.",
        &["", "doctor", "top"],
    ),
];

const FILES: &[Fact] = &[
    fact(
        "$XDG_RUNTIME_DIR/pegel/push.sock, /tmp/pegel-UID/push.sock",
        "The socket of the user's agent.",
        ALL,
    ),
    fact(
        "/run/pegel/push.sock",
        "The socket of the system's agent.",
        ALL,
    ),
    fact(
        "~/.local/state/pegel/HOST",
        "The store of the user's agent; another with --dir.",
        &["", "agent", "doctor"],
    ),
    fact(
        "STORE/endpoint.json",
        "The addresses of the running agent, for scripts.",
        &["", "agent"],
    ),
    fact(
        "/etc/pegel/pegel.yaml, /var/lib/pegel",
        "Configuration and store of the system's service.",
        CONFIGURED,
    ),
    fact("DIR/man1, DIR/man5", "The manual pages written.", &["man"]),
];

fn select(
    facts: &'static [Fact],
    path: &[&str],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let name = path.first().copied().unwrap_or_default().to_owned();
    facts
        .iter()
        .filter(move |fact| fact.commands.is_empty() || fact.commands.contains(&name.as_str()))
        .map(|fact| (fact.name, fact.text))
}

pub(super) fn exit_codes(path: &[&str]) -> impl Iterator<Item = (&'static str, &'static str)> {
    select(EXIT_CODES, path)
}

pub(super) fn environment(path: &[&str]) -> impl Iterator<Item = (&'static str, &'static str)> {
    select(ENVIRONMENT, path)
}

pub(super) fn files(path: &[&str]) -> impl Iterator<Item = (&'static str, &'static str)> {
    select(FILES, path)
}

/// Returns the commands that a reader of this page may look for.
pub(super) fn related(path: &[&str]) -> &'static [&'static str] {
    match path.first().copied().unwrap_or_default() {
        "agent" => &["config", "doctor", "top"],
        "run" => &["values", "top"],
        "list" => &["values", "get"],
        "values" => &["list", "get", "track"],
        "get" => &["list", "values", "track"],
        "track" => &["list", "values"],
        "top" => &["values", "doctor"],
        "push" => &["values", "mark"],
        "mark" => &["push", "run"],
        "snapshot" => &["doctor"],
        "grafana" => &["prometheus-config"],
        "prometheus-config" => &["grafana"],
        "config" => &["agent"],
        "doctor" => &["snapshot", "config"],
        _ => &[],
    }
}
