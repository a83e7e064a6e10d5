//! Checks over the source tree that the compiler does not make.

mod collectors;
mod dead_files;
mod generated;
mod guarantees;
mod links;
mod size;
mod threads;
mod tree;
mod unfinished;
mod unsafe_code;
mod vague_names;

use anyhow::{Result, ensure};

use tree::SourceTree;

pub use generated::GeneratedFilesMode;

/// Something that is not as it should be, and where.
#[derive(Debug)]
pub struct TidyIssue {
    pub location: String,
    pub text: String,
}

impl TidyIssue {
    fn new(place: impl Into<String>, text: impl Into<String>) -> TidyIssue {
        TidyIssue {
            location: place.into(),
            text: text.into(),
        }
    }

    fn at(file: &tree::SourceFile, line_index: usize, text: impl Into<String>) -> TidyIssue {
        TidyIssue::new(format!("{}:{}", file.path, line_index + 1), text)
    }
}

pub fn run(generated: GeneratedFilesMode) -> Result<()> {
    let tree = SourceTree::read(crate::step::root())?;
    let mut complaints = Vec::new();
    complaints.extend(vague_names::check(&tree));
    complaints.extend(dead_files::check(&tree)?);
    complaints.extend(unfinished::check(&tree));
    complaints.extend(unsafe_code::check(&tree));
    complaints.extend(threads::check(&tree));
    complaints.extend(collectors::check(&tree));
    complaints.extend(links::check(&tree));
    complaints.extend(guarantees::check(&tree));
    complaints.extend(generated::check(&tree, generated)?);
    let warnings = size::check(&tree);
    for warning in &warnings {
        println!("warning: {}: {}", warning.location, warning.text);
    }
    for complaint in &complaints {
        println!("error: {}: {}", complaint.location, complaint.text);
    }
    println!(
        "{} files checked, {} errors, {} warnings",
        tree.files.len(),
        complaints.len(),
        warnings.len()
    );
    ensure!(
        complaints.is_empty(),
        "{} complaints about the source tree",
        complaints.len()
    );
    Ok(())
}
