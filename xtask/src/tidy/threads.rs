//! Threads of the agent are started by the supervisor, so that none of them ends unnoticed. Others are listed here, with
//! the reason why their end does not go unnoticed either.

use super::TidyIssue;
use super::tree::SourceTree;

/// Where threads may be started without the supervisor.
const EXCEPTIONS: [(&str, &str); 10] = [
    ("crates/supervisor/src/", "the supervisor itself"),
    ("crates/testkit/src/", "not in the agent"),
    ("crates/cli/src/top/", "not in the agent"),
    (
        "crates/cli/src/agent.rs",
        "ends the process when a thread hangs",
    ),
    (
        "crates/agent/src/signals.rs",
        "not in the agent: for commands that block",
    ),
    ("crates/agent/src/until.rs", "its end is awaited"),
    (
        "crates/collect/src/collectors/mount_prober.rs",
        "may hang in a file system; the collector counts them and goes on",
    ),
    (
        "crates/snapshot/src/mounts.rs",
        "may hang in a file system; the snapshot waits for it with a limit",
    ),
    (
        "crates/run/src/ptrace/hold.rs",
        "reports its end to the one who counts the program",
    ),
    ("crates/run/src/ebpf/set.rs", "joined at once"),
];
pub fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let mut complaints = Vec::new();
    let is_allowed = |path: &str| EXCEPTIONS.iter().any(|(start, _)| path.starts_with(start));
    for file in tree.with_extension(&["rs"]) {
        let is_code = file.path.starts_with("crates/") && file.path.contains("/src/");
        if !is_code || file.stem() == "tests" || is_allowed(&file.path) {
            continue;
        }
        let code = file
            .text
            .lines()
            .take_while(|line| line.trim() != "#[cfg(test)]");
        for (index, line) in code.enumerate().filter(|(_, line)| starts_thread(line)) {
            let text = format!("start it with Supervisor::thread: {}", line.trim());
            complaints.push(TidyIssue::at(file, index, text));
        }
    }
    complaints
}

fn starts_thread(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let imports = code.contains("use std::thread::{") && code.contains("Builder");
    imports || code.contains("thread::spawn(") || code.contains("thread::Builder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_not_supervised_is_found() {
        let text = "\
use std::thread::{Builder, JoinHandle};
// thread::spawn( is only named here
let a = std::thread::spawn(work);
let b = thread::Builder::new();
#[cfg(test)]
let c = std::thread::spawn(work);
";
        let tree = SourceTree::from_files(&[
            ("crates/serve/src/a.rs", text),
            ("crates/supervisor/src/a.rs", text),
            ("crates/serve/tests/a.rs", text),
            ("crates/serve/src/b/tests.rs", text),
        ]);
        let places: Vec<String> = check(&tree).into_iter().map(|c| c.location).collect();
        let expected = [1, 3, 4].map(|line| format!("crates/serve/src/a.rs:{line}"));
        assert_eq!(places, expected);
    }
}
