//! Checks that every `unsafe` has a SAFETY comment. Clippy checks blocks; this also covers impls,
//! extern blocks and public functions.

use super::TidyIssue;
use super::tree::SourceTree;

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let mut issues = Vec::new();
    for file in tree.with_extension(&["rs"]) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            if is_unsafe(line) && !is_explained(&lines, index) {
                issues.push(TidyIssue::at(
                    file,
                    index,
                    "unsafe without a SAFETY comment; state the invariant and who upholds it",
                ));
            }
        }
    }
    issues
}

/// Whether a line requires a SAFETY comment. Private unsafe functions do not: they belong to an
/// `unsafe impl` or are called from blocks that have one.
fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    if code.trim_start().starts_with("pub unsafe fn ") {
        return true;
    }
    // A function pointer type needs no comment: calling one requires an unsafe block.
    let code = &code.replace("unsafe extern \"C\" fn(", "fn(");
    ["{", "impl ", "extern "].iter().any(|next| {
        let needle = format!("unsafe {next}");
        // Not inside a string literal, and not the end of a longer word.
        code.split(&needle).count() > 1
            && code.find(&needle).is_some_and(|start| {
                let before = &code[..start];
                before.matches('"').count().is_multiple_of(2)
                    && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
            })
    })
}

/// Whether a SAFETY comment is on the line itself, or in the comments and attributes directly above
/// it.
fn is_explained(lines: &[&str], index: usize) -> bool {
    let explains = |line: &str| line.contains("SAFETY:") || line.contains("# Safety");
    explains(lines[index])
        || lines[..index]
            .iter()
            .rev()
            .take_while(|line| {
                let line = line.trim_start();
                line.starts_with("//") || line.starts_with("#[")
            })
            .any(|line| explains(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unexplained_unsafe_is_found() {
        // In capitals, so that the check does not match this file.
        let text = "\
// SAFETY: checked above.
UNSAFE { a() }
let b = UNSAFE { a() };
// SAFETY: for the next line only.
let c = 1;
UNSAFE impl Send for X {}
/// # Safety
#[inline]
pub UNSAFE fn d() {}
pub UNSAFE fn e() {}
    UNSAFE fn f() {}
#![deny(unsafe_op_in_unsafe_fn)] // UNSAFE { is not here
type G = UNSAFE extern \"C\" fn(i32) -> i32;
UNSAFE extern \"C\" {
"
        .replace("UNSAFE", "unsafe");
        let tree = SourceTree::from_files(&[("a.rs", &text)]);
        let locations: Vec<String> = check(&tree)
            .into_iter()
            .map(|issue| issue.location)
            .collect();
        assert_eq!(locations, ["a.rs:3", "a.rs:6", "a.rs:10", "a.rs:14"]);
    }
}
