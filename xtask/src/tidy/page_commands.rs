//! Checks the commands in the start pages: every subcommand and long option exists, according to
//! the texts of `--help`.

use std::collections::BTreeMap;

use super::TidyIssue;
use super::reference_pages::{command_name, help_texts};
use super::tree::{SourceFile, SourceTree};

const PAGES: &str = "docs/start/";

pub(super) fn check(tree: &SourceTree) -> anyhow::Result<Vec<TidyIssue>> {
    let mut commands = BTreeMap::new();
    for text in help_texts(crate::step::root())? {
        commands.insert(command_name(&text)?, text);
    }
    let pages = tree.with_extension(&["md"]);
    let pages = pages.filter(|file| file.path.starts_with(PAGES));
    Ok(pages.flat_map(|page| check_page(page, &commands)).collect())
}

fn check_page(page: &SourceFile, commands: &BTreeMap<String, String>) -> Vec<TidyIssue> {
    let mut issues = Vec::new();
    let mut is_fenced = false;
    for (index, line) in page.text.lines().enumerate() {
        is_fenced ^= line.starts_with("```");
        if !is_fenced {
            continue;
        }
        // A line may have several commands, and a comment.
        let line = line.split("  #").next().unwrap_or(line);
        for command in line.split(['|', '&', ';']) {
            if let Some(problem) = check_command(command, commands) {
                issues.push(TidyIssue::at(page, index, problem));
            }
        }
    }
    issues
}

/// Returns what is wrong with a command; None for other programs than `pegel`.
fn check_command(command: &str, commands: &BTreeMap<String, String>) -> Option<String> {
    let start = command.find("pegel ")?;
    let is_program = command[..start].is_empty() || command[..start].ends_with([' ', '\'']);
    if !is_program {
        return None;
    }
    let words: Vec<&str> = command[start..].split_whitespace().collect();
    // What follows `--` is another program.
    let end = words
        .iter()
        .position(|word| *word == "--")
        .unwrap_or(words.len());
    let words = &words[..end];
    let name = (1..=words.len().min(3))
        .rev()
        .map(|count| words[..count].join(" "))
        .find(|name| commands.contains_key(name))?;
    if name == "pegel" && words.len() > 1 && words[1].starts_with(|c: char| c.is_ascii_lowercase())
    {
        return Some(format!("unknown command `pegel {}`", words[1]));
    }
    let help = &commands[&name];
    let options = words.iter().filter(|word| word.starts_with("--"));
    let mut unknown = options.filter(|option| {
        let option = option.split('=').next().unwrap_or(option);
        !help.split([' ', ',', '\n']).any(|word| word == option)
    });
    unknown
        .next()
        .map(|option| format!("`{name}` has no option {option}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_and_options_are_found() {
        let help = [
            ("pegel", "Usage: pegel [COMMAND]\n"),
            ("pegel run", "Options:\n  -s, --syscalls\n      --summary\n"),
            ("pegel config check", "      --text-only\n"),
        ];
        let commands = help.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let commands = BTreeMap::from(commands);
        let text = "`pegel gone`\n```\npegel run --summary -- ls --all    # --no\nmpirun pegel run --sumary\npegel config check --text-only x\n\
            ls && pegel gone\ncp pegel-x.whl y\n```\n";
        let tree = SourceTree::from_files(&[("docs/start/a.md", text)]);
        let issues: Vec<String> = check_page(&tree.files[0], &commands)
            .into_iter()
            .map(|issue| format!("{} {}", issue.location, issue.text))
            .collect();
        assert_eq!(
            issues,
            [
                "docs/start/a.md:4 `pegel run` has no option --sumary",
                "docs/start/a.md:6 unknown command `pegel gone`",
            ]
        );
    }
}
