//! Completion of metric names in real shells, from a running agent.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{AgentProcess, ChildProcess, TempDir, need};

use crate::PEGEL;

const BOUND: Duration = Duration::from_secs(60);

/// Starts an agent and writes the completion script of a shell next to its socket.
fn start(shell: &str) -> AgentProcess {
    let agent = PEGEL.agent().start();
    let home = TempDir::new();
    let printed = ChildProcess::start(PEGEL.command(&home).args(["completions", shell]));
    let script = agent.dir.join("script");
    fs::write(script, printed.wait(BOUND).stdout).expect("written");
    agent
}

/// Runs a shell with the directory of the binary first in its PATH, and returns its output.
fn run(agent: &AgentProcess, shell: &str, args: &[&str], script: &str) -> String {
    let file = agent.dir.join("commands");
    fs::write(&file, script).expect("written");
    let bin = Path::new(PEGEL.path()).parent().expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(shell);
    command
        .args(args)
        .arg(&file)
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("HOME", &agent.dir)
        .env("PEGEL_SOCKET", &agent.socket)
        .current_dir(&agent.dir);
    let finished = ChildProcess::start(&mut command).wait(BOUND);
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert_eq!(finished.stderr, "", "{finished}");
    finished.stdout
}

#[track_caller]
fn assert_lines(text: &str, expected: &[&str]) {
    let mut lines: Vec<&str> = text.split_whitespace().collect();
    lines.sort_unstable();
    assert_eq!(lines, expected, "{text}");
}

const LOADS: [&str; 3] = ["node_load1", "node_load15", "node_load5"];
const AFTER_A_COMMA: [&str; 3] = [
    "node_boot_time_seconds,node_load1",
    "node_boot_time_seconds,node_load15",
    "node_boot_time_seconds,node_load5",
];

#[test]
fn bash_completes_names() {
    if need("bash").is_none() {
        return;
    }
    let agent = start("bash");
    let complete = |words: &[&str]| {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let last = words.len() - 1;
        let script = format!(
            "source ./script\n\
             COMP_WORDS=({}); COMP_CWORD={last}\n\
             _pegel_with_names pegel \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            quoted.join(" ")
        );
        run(&agent, "bash", &["--norc"], &script)
    };
    for command in ["get", "values", "track", "list"] {
        assert_lines(&complete(&["pegel", command, "node_loa"]), &LOADS);
    }
    assert_lines(&complete(&["pegel", "top", "--match", "node_loa"]), &LOADS);
    let list = complete(&["pegel", "get", "node_boot_time_seconds,node_loa"]);
    assert_lines(&list, &AFTER_A_COMMA);
    let options = complete(&["pegel", "get", "--ma"]);
    assert_lines(&options, &["--match"]);
    let commands = complete(&["pegel", "val"]);
    assert_lines(&commands, &["values"]);
    let formats = complete(&["pegel", "get", "-f", "js"]);
    assert_lines(&formats, &["json"]);
    let elsewhere = complete(&["pegel", "get", "-u", "/nowhere", "node_loa"]);
    assert_lines(&elsewhere, &[]);
}

#[test]
fn fish_completes_names() {
    if need("fish").is_none() {
        return;
    }
    let agent = start("fish");
    let complete = |line: &str| {
        let script = format!("source ./script\ncomplete -C '{line}'\n");
        run(&agent, "fish", &["--no-config"], &script)
    };
    for command in ["get", "values", "track", "list"] {
        assert_lines(&complete(&format!("pegel {command} node_loa")), &LOADS);
    }
    assert_lines(&complete("pegel top --match node_loa"), &LOADS);
    assert_lines(
        &complete("pegel get node_boot_time_seconds,node_loa"),
        &AFTER_A_COMMA,
    );
    assert!(complete("pegel get --ma").starts_with("--match"));
    assert!(complete("pegel val").starts_with("values"));
    assert_lines(&complete("pegel get -u /nowhere node_loa"), &[]);
}

/// zsh completes only in a line editor, which requires a terminal: one is created with `zpty`.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty -b shell zsh -f -i
zpty -w shell 'fpath=($PWD/functions $fpath); autoload -U compinit; compinit -u -d $PWD/dump'
# Records the candidates that match the word.
zpty -w shell 'compadd() { local -a found; builtin compadd -O found "$@"; print -lr -- $found >> $PWD/found; builtin compadd "$@" }'
# All candidates are recorded when the completion has returned.
zpty -w shell 'complete-all() { zle expand-or-complete; print done >> $PWD/done }; zle -N complete-all; bindkey "^I" complete-all'
zpty -w shell 'print ready >> $PWD/ready'
while [[ ! -e ready ]]; do zpty -r -t shell chunk; done
zpty -n -w shell "LINE"$'\t'
tries=0
while [[ ! -s done && $tries -lt 3000 ]]; do zpty -r -t shell chunk; (( tries++ )); sleep 0.01; done
sort -u found 2>/dev/null
zpty -d shell
exit 0
"#;

#[test]
fn zsh_completes_names() {
    if need("zsh").is_none() {
        return;
    }
    let agent = start("zsh");
    let functions = agent.dir.join("functions");
    fs::create_dir(&functions).expect("created");
    fs::rename(agent.dir.join("script"), functions.join("_pegel")).expect("renamed");
    let complete = |line: &str| {
        for file in ["found", "ready", "done"] {
            let _ = fs::remove_file(agent.dir.join(file));
        }
        run(&agent, "zsh", &["-f"], &ZSH.replace("LINE", line))
    };
    for command in ["get", "values", "track", "list"] {
        assert_lines(&complete(&format!("pegel {command} node_loa")), &LOADS);
    }
    assert_lines(&complete("pegel top --match node_loa"), &LOADS);
    assert_lines(
        &complete("pegel get node_boot_time_seconds,node_loa"),
        &AFTER_A_COMMA,
    );
    assert!(complete("pegel get --ma").contains("--match"));
}
