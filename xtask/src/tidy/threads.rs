//! Checks that threads of the agent are started by the supervisor, so that an unexpected end is
//! always noticed. Exceptions are listed here with their reason.

use super::TidyIssue;
use super::tree::SourceTree;

/// Path prefixes where threads may be started without the supervisor, and the reason.
const EXCEPTIONS: [(&str, &str); 12] = [
    ("crates/supervisor/src/", "the supervisor itself"),
    ("crates/testkit/src/", "not in the agent"),
    ("crates/ingest/src/pull/tests/", "servers of tests"),
    ("crates/cli/src/top/", "not in the agent"),
    (
        "crates/cli/src/job/",
        "mostly not in the agent; their ends are events of the job",
    ),
    (
        "crates/cli/src/agent.rs",
        "ends the process when a thread hangs",
    ),
    (
        "crates/agent/src/signals.rs",
        "not in the agent: for commands that block",
    ),
    ("crates/agent/src/stop_condition.rs", "its end is awaited"),
    (
        "crates/collect/src/collectors/mount_prober.rs",
        "may hang in a file system; the collector counts them and continues",
    ),
    (
        "crates/snapshot/src/mounts.rs",
        "may hang in a file system; the snapshot waits for it with a timeout",
    ),
    (
        "crates/run/src/ptrace/exit_hold.rs",
        "reports its end to the thread that counts the program",
    ),
    ("crates/run/src/ebpf/program_set.rs", "joined at once"),
];

pub(super) fn check(tree: &SourceTree) -> Vec<TidyIssue> {
    let mut issues = Vec::new();
    let is_allowed = |path: &str| {
        EXCEPTIONS
            .iter()
            .any(|(prefix, _)| path.starts_with(prefix))
    };
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
            let text = format!(
                "unsupervised thread; use Supervisor::thread: {}",
                line.trim()
            );
            issues.push(TidyIssue::at(file, index, text));
        }
    }
    issues
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
    fn an_unsupervised_thread_is_found() {
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
        let locations: Vec<String> = check(&tree)
            .into_iter()
            .map(|issue| issue.location)
            .collect();
        let expected = [1, 3, 4].map(|line| format!("crates/serve/src/a.rs:{line}"));
        assert_eq!(locations, expected);
    }
}
