//! Checks of the source tree that the compiler does not perform.

mod book;
mod cited_code;
mod collectors;
mod comment_width;
mod dead_files;
mod generated;
mod guarantees;
mod isolated_tests;
mod links;
mod page_commands;
mod reference_pages;
mod size;
mod threads;
mod tree;
mod type_names;
mod unfinished;
mod unsafe_code;
mod vague_names;

use anyhow::{Result, ensure};

use tree::SourceTree;

pub(crate) use generated::GeneratedFilesMode;

/// A violation of a check, with its location.
#[derive(Debug)]
pub(crate) struct TidyIssue {
    pub location: String,
    pub text: String,
}

impl TidyIssue {
    fn new(location: impl Into<String>, text: impl Into<String>) -> TidyIssue {
        TidyIssue {
            location: location.into(),
            text: text.into(),
        }
    }

    fn at(file: &tree::SourceFile, line_index: usize, text: impl Into<String>) -> TidyIssue {
        TidyIssue::new(format!("{}:{}", file.path, line_index + 1), text)
    }
}

pub(crate) fn run(generated: GeneratedFilesMode) -> Result<()> {
    let tree = SourceTree::read(crate::step::root())?;
    let mut issues = Vec::new();
    issues.extend(vague_names::check(&tree));
    issues.extend(dead_files::check(&tree)?);
    issues.extend(unfinished::check(&tree));
    issues.extend(comment_width::check(&tree));
    issues.extend(unsafe_code::check(&tree));
    issues.extend(threads::check(&tree));
    issues.extend(type_names::check(&tree));
    issues.extend(collectors::check(&tree));
    issues.extend(cited_code::check(&tree));
    issues.extend(links::check(&tree));
    issues.extend(book::check(&tree));
    issues.extend(page_commands::check(&tree)?);
    issues.extend(guarantees::check(&tree));
    issues.extend(isolated_tests::check(&tree));
    issues.extend(generated::check(&tree, generated)?);
    let warnings = size::check(&tree);
    for warning in &warnings {
        println!("warning: {}: {}", warning.location, warning.text);
    }
    for issue in &issues {
        println!("error: {}: {}", issue.location, issue.text);
    }
    println!(
        "{} files checked, {} errors, {} warnings",
        tree.files.len(),
        issues.len(),
        warnings.len()
    );
    ensure!(
        issues.is_empty(),
        "{} errors in the source tree",
        issues.len()
    );
    Ok(())
}
