//! `pegel man`: manual pages, generated from the command line's definition, the examples and the
//! declarations of configuration keys.

mod config_page;
mod reference;

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::examples;

/// Write the manual pages to a directory
///
/// Commands are in section 1, the configuration file pegel.yaml in section 5.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Output directory, which gets man1 and man5; created if missing
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(args: &ManArgs) -> anyhow::Result<()> {
    let cannot = || format!("cannot write manual pages to {}", args.dir.display());
    let write = |section: &str, name: String, text: String| {
        let dir = args.dir.join(section);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(name), text)
    };
    for page in command_pages() {
        write("man1", format!("{}.1", page.name), page.text).with_context(cannot)?;
    }
    write("man5", "pegel.yaml.5".to_owned(), config_page::text()).with_context(cannot)
}

struct ManualPage {
    name: String,
    text: String,
}

/// Returns the pages of all commands.
fn command_pages() -> Vec<ManualPage> {
    let mut command = crate::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &[], &mut pages);
    pages
}

fn add_pages(command: &clap::Command, path: &[&str], pages: &mut Vec<ManualPage>) {
    pages.push(command_page(command, path));
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
    {
        add_pages(inner, &[path, &[inner.get_name()]].concat(), pages);
    }
}

fn command_page(command: &clap::Command, path: &[&str]) -> ManualPage {
    let name = page_name(path);
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        // Not empty: an empty argument would be omitted, and the source taken for the date.
        .date(" ")
        .source(concat!("pegel ", env!("CARGO_PKG_VERSION")))
        .manual("Pegel");
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = man
        .render_title(&mut text)
        .and_then(|()| man.render_name_section(&mut text))
        .and_then(|()| man.render_synopsis_section(&mut text))
        .and_then(|()| man.render_description_section(&mut text));
    if command
        .get_arguments()
        .any(|argument| !argument.is_hide_set())
    {
        let _ = man.render_options_section(&mut text);
    }
    if command.has_subcommands() {
        let _ = man.render_subcommands_section(&mut text);
    }
    let mut text = String::from_utf8_lossy(&text).into_owned();
    text.push_str(&closing_sections(path, command));
    ManualPage { name, text }
}

fn page_name(path: &[&str]) -> String {
    std::iter::once("pegel")
        .chain(path.iter().copied())
        .collect::<Vec<_>>()
        .join("-")
}

/// Writes the sections after the options: exit status, examples, environment, files, see also.
fn closing_sections(path: &[&str], command: &clap::Command) -> String {
    let mut roff = Roff::new();
    definitions(&mut roff, "EXIT STATUS", reference::exit_codes(path));
    roff.control("SH", ["EXAMPLES"]);
    for example in examples::of(path) {
        roff.control("TP", []);
        roff.text([bold(example.line)]);
        roff.text([roman(example.text)]);
    }
    definitions(&mut roff, "ENVIRONMENT", reference::environment(path));
    definitions(&mut roff, "FILES", reference::files(path));
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(see_also(path, command).join(", "))]);
    // Without the preamble: the title has it already.
    roff.to_roff()
}

fn definitions<'a>(
    roff: &mut Roff,
    title: &str,
    entries: impl Iterator<Item = (&'a str, &'a str)>,
) {
    let mut entries = entries.peekable();
    if entries.peek().is_none() {
        return;
    }
    roff.control("SH", [title]);
    for (name, text) in entries {
        roff.control("TP", []);
        roff.text([bold(name)]);
        roff.text([roman(text)]);
    }
}

/// Returns the pages to read next: the parent, the commands below, related ones and the file.
fn see_also(path: &[&str], command: &clap::Command) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if let Some((_, parent)) = path.split_last() {
        names.push(page_name(parent));
    }
    let below = command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set());
    names.extend(below.map(|inner| page_name(&[path, &[inner.get_name()]].concat())));
    names.extend(
        reference::related(path)
            .iter()
            .map(|name| page_name(&[name])),
    );
    let mut seen: Vec<String> = names.into_iter().map(|name| format!("{name}(1)")).collect();
    seen.push("pegel.yaml(5)".to_owned());
    seen
}

/// Returns whether a page such as `pegel-get(1)` is written.
#[cfg(test)]
fn page_exists(name: &str) -> bool {
    name == "pegel.yaml(5)"
        || command_pages()
            .iter()
            .any(|page| format!("{}(1)", page.name) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_all_sections() {
        for page in command_pages() {
            for section in [
                "NAME",
                "SYNOPSIS",
                "EXAMPLES",
                "ENVIRONMENT",
                "FILES",
                "\"SEE ALSO\"",
            ] {
                let heading = format!("\n.SH {section}\n");
                assert!(
                    page.text.contains(&heading),
                    "{}: no {section}\n{}",
                    page.name,
                    page.text
                );
            }
        }
    }

    #[test]
    fn every_reference_leads_to_a_page() {
        let mut command = crate::command();
        command.build();
        for name in see_also(&[], &command) {
            assert!(page_exists(&name) || name == "pegel-help(1)", "{name}");
        }
        for path in [["get"], ["agent"], ["run"], ["doctor"]] {
            let inner = command.find_subcommand(path[0]).expect("a command");
            for name in see_also(&path, inner) {
                assert!(page_exists(&name), "{name}");
            }
        }
    }
}
