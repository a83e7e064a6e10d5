//! `pegel completions`: shell completions, generated from the command line's definition.

use clap_complete::Shell;

use crate::output;

/// Print shell completions
///
/// For bash: `pegel completions bash > ~/.local/share/bash-completion/completions/pegel`
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "pegel", &mut text);
    output::write(None, &String::from_utf8_lossy(&text))
}
