//! Generates the pages of commands and of configuration keys.
//!
//! Both come from the program's own declarations: the texts of `--help`, which a test compares with
//! the program, and the default configuration that `pegel config init` prints.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

pub(super) const COMMANDS: &str = "docs/commands.md";
pub(super) const CONFIGURATION: &str = "docs/configuration.md";
/// One file per command, compared with the program by `tests/cli`.
const HELP_TEXTS: &str = "tests/golden/cli/help";

const COMMANDS_HEADER: &str = "\
# Commands

Every command with its options, as `pegel COMMAND --help` prints them. `pegel man --dir DIR` writes the same as manual pages.
This page is generated: `cargo xtask tidy --fix` writes it.
";

const CONFIGURATION_HEADER: &str = "\
# Configuration

Every key with its meaning, what it accepts, and its default. A key that has no default is commented out. `pegel config init`
prints all of it as a file, `pegel config check FILE` finds errors, and `pegel config show` prints what a running agent uses and
where each value comes from. The command line overrides the environment, which overrides the file. This page is generated:
`cargo xtask tidy --fix` writes it.
";

/// Renders the page of commands from the help texts of the repository.
pub(super) fn commands(root: &Path) -> Result<String> {
    commands_page(&help_texts(root)?)
}

/// Reads the help texts of all commands.
pub(super) fn help_texts(root: &Path) -> Result<Vec<String>> {
    let dir = root.join(HELP_TEXTS);
    let mut texts = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path);
        texts.push(text.with_context(|| format!("cannot read {}", path.display()))?);
    }
    Ok(texts)
}

fn commands_page(texts: &[String]) -> Result<String> {
    let mut sections = Vec::new();
    for text in texts {
        sections.push((command_name(text)?, text));
    }
    sections.sort();
    let mut page = COMMANDS_HEADER.to_owned();
    for (name, text) in sections {
        let text = text.trim_end();
        let _ = write!(page, "\n## {name}\n\n```text\n{text}\n```\n");
    }
    Ok(page)
}

/// Returns the words of the usage line before the first option or argument: `pegel config check`.
pub(super) fn command_name(help: &str) -> Result<String> {
    let usage = help.lines().find_map(|line| line.strip_prefix("Usage: "));
    let usage = usage.context("a help text has no usage line")?;
    let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let words: Vec<&str> = usage.split(' ').take_while(is_word).collect();
    Ok(words.join(" "))
}

/// Renders the page of keys from the default configuration, whose sections are separated by empty
/// lines. The first one describes the file.
pub(super) fn configuration(yaml: &str) -> String {
    let mut page = CONFIGURATION_HEADER.to_owned();
    for section in yaml.split("\n\n").skip(1) {
        let section = section.trim_end();
        let key = section.lines().find_map(key_of).unwrap_or("…");
        let _ = write!(page, "\n## {key}\n\n```yaml\n{section}\n```\n");
    }
    page
}

/// Returns the key of `key: value` and `#key: value`; None for comments.
fn key_of(line: &str) -> Option<&str> {
    let line = line.strip_prefix('#').unwrap_or(line);
    let (key, _) = line.split_once(':')?;
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    is_key.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted_under_their_names() {
        let texts = [
            "Run it\n\nUsage: pegel run [OPTIONS] -- COMMAND...\n".to_owned(),
            "All\n\nUsage: pegel [COMMAND]\n".to_owned(),
            "Check\n\nUsage: pegel config check [FILE]\n".to_owned(),
        ];
        let page = commands_page(&texts).expect("valid");
        let headings: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("## "))
            .collect();
        assert_eq!(
            headings,
            ["## pegel", "## pegel config check", "## pegel run"]
        );
        assert!(
            page.ends_with("```text\nRun it\n\nUsage: pegel run [OPTIONS] -- COMMAND...\n```\n")
        );
    }

    #[test]
    fn every_key_has_a_section_also_without_a_default() {
        let yaml = "# The file.\n\n# Accepted: a list: of it\nlisten: []\n\n# Where.\n#socket: /run\n\nkeep:\n  # Long.\n  disk: 2d\n";
        let page = configuration(yaml);
        let headings: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("## "))
            .collect();
        assert_eq!(headings, ["## listen", "## socket", "## keep"]);
        assert!(page.contains("```yaml\n# Where.\n#socket: /run\n```\n"));
    }
}
