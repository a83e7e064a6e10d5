//! `pegel completions`: shell completions, generated from the command line's definition. In bash,
//! zsh and fish they also complete metric names, which `pegel complete-names` fetches from the
//! running agent.

use clap_complete::Shell;

use crate::{metric_names, output};

/// Commands whose arguments are metric names.
const COMMANDS_WITH_NAMES: [&str; 4] = ["get", "list", "track", "values"];
/// Commands with the option `--match`.
const COMMANDS_WITH_MATCH: [&str; 5] = ["get", "list", "top", "track", "values"];

/// Print shell completions
///
/// In bash, zsh and fish, metric names are completed too, from the running agent.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    output::write(None, &script(args.shell))
}

fn script(shell: Shell) -> String {
    let mut command = crate::command();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "pegel", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    match shell {
        Shell::Bash => format!("{text}{}", bash_names(&command)),
        Shell::Zsh => zsh_with_names(&text),
        Shell::Fish => format!("{text}{}", fish_names()),
        _ => text,
    }
}

/// Returns the options of the commands with names that are followed by a value other than a name.
fn options_with_values(command: &clap::Command) -> Vec<String> {
    let commands = COMMANDS_WITH_MATCH
        .iter()
        .filter_map(|name| command.find_subcommand(name));
    let options = commands.flat_map(clap::Command::get_opts);
    let mut texts: Vec<String> = options
        .filter(|option| option.get_long() != Some("match"))
        .flat_map(|option| {
            let short = option.get_short().map(|short| format!("-{short}"));
            short
                .into_iter()
                .chain(option.get_long().map(|long| format!("--{long}")))
        })
        .collect();
    texts.sort();
    texts.dedup();
    texts
}

/// A function that completes names where one is expected, and calls the generated one elsewhere.
fn bash_names(command: &clap::Command) -> String {
    let options = options_with_values(command).join("|");
    let (names, patterns) = (COMMANDS_WITH_NAMES.join("|"), COMMANDS_WITH_MATCH.join("|"));
    let fetch = metric_names::COMMAND;
    format!(
        r#"
_pegel_with_names() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local subcommand="${{COMP_WORDS[1]}}" wants_name="" socket=() index
    if [[ $COMP_CWORD -ge 2 ]]; then
        case "$previous" in
            --match) case "$subcommand" in {patterns}) wants_name=1 ;; esac ;;
            {options}) ;;
            *) case "$subcommand" in {names}) [[ $current == -* ]] || wants_name=1 ;; esac ;;
        esac
    fi
    if [[ -z $wants_name ]]; then
        _pegel "$@"
        return
    fi
    for ((index = 2; index < COMP_CWORD; index++)); do
        [[ ${{COMP_WORDS[index-1]}} == -u ]] && socket=(-u "${{COMP_WORDS[index]}}")
    done
    local IFS=$'\n'
    COMPREPLY=($("${{COMP_WORDS[0]}}" {fetch} "${{socket[@]}}" -- "$current" 2>/dev/null))
}}

if [[ "${{BASH_VERSINFO[0]}}" -eq 4 && "${{BASH_VERSINFO[1]}}" -ge 4 || "${{BASH_VERSINFO[0]}}" -gt 4 ]]; then
    complete -F _pegel_with_names -o nosort -o bashdefault -o default pegel
else
    complete -F _pegel_with_names -o bashdefault -o default pegel
fi
"#
    )
}

/// Replaces the action of arguments and options that are names. The function that completes them is
/// defined before the generated script calls itself.
fn zsh_with_names(text: &str) -> String {
    let fetch = metric_names::COMMAND;
    let function = format!(
        r#"
_pegel_metric_names() {{
    local -a socket names
    [[ -n ${{opt_args[-u]}} ]] && socket=(-u ${{(Q)opt_args[-u]}})
    names=(${{(f)"$(_call_program metric-names $pegel_program {fetch} ${{(q)socket[@]}} -- ${{(q)PREFIX}} 2>/dev/null)"}})
    compadd -Q -a names
}}
"#
    );
    let mut out = String::new();
    for line in text.lines() {
        let spec = line.trim_start();
        let is_name = spec.starts_with("'*::names ") || spec.contains("--match=[");
        let line = match line.rsplit_once(":_default'") {
            Some((before, after)) if is_name => format!("{before}:_pegel_metric_names'{after}"),
            _ => line.to_owned(),
        };
        if line == "_pegel() {" {
            out.push_str(function.trim_start());
            // The words of a subcommand start with it.
            out.push_str("\n_pegel() {\n    local pegel_program=$words[1]\n");
        } else {
            out.push_str(&line);
            out.push('\n');
        }
    }
    out
}

fn fish_names() -> String {
    let fetch = metric_names::COMMAND;
    let mut text = format!(
        r#"
function __fish_pegel_metric_names
    set -l words (commandline -opc)
    set -l socket
    if set -l index (contains -i -- -u $words); and test (count $words) -gt $index
        set socket -u $words[(math $index + 1)]
    end
    command $words[1] {fetch} $socket -- (commandline -ct) 2>/dev/null
end
"#
    );
    for command in COMMANDS_WITH_NAMES {
        text.push_str(&format!(
            "complete -c pegel -n \"__fish_pegel_using_subcommand {command}\" -f -a \"(__fish_pegel_metric_names)\"\n"
        ));
    }
    for command in COMMANDS_WITH_MATCH {
        text.push_str(&format!(
            "complete -c pegel -n \"__fish_pegel_using_subcommand {command}\" -l match -x -a \"(__fish_pegel_metric_names)\"\n"
        ));
    }
    text
}
