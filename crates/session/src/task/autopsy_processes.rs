//! The largest processes of a task, with those that have just ended.

use pegel_machine::parse_signed;
use serde_json::{Value, json};

use super::autopsy::object;
use super::process_tree::{LARGEST_COUNT, ProcessTree};
use super::task_process::{STAT_BUFFER, TaskProcess, read_stat};

/// Returns the processes with the most resident memory, the largest first. Live ones are read
/// again; of one that has ended the last reading is shown.
pub(super) fn largest_processes(tree: &ProcessTree) -> Value {
    let members = tree.members().map(|(pid, known)| {
        let now = read_again(tree, pid, known);
        let has_ended = now.is_none();
        (pid, now.unwrap_or_else(|| known.clone()), has_ended)
    });
    let vanished = tree.vanished.iter();
    let vanished = vanished.map(|vanished| (vanished.pid, vanished.process.clone(), true));
    let mut found: Vec<(u32, TaskProcess, bool)> = members.chain(vanished).collect();
    found.sort_by_key(|(_, process, _)| std::cmp::Reverse(process.resident_bytes));
    found.truncate(LARGEST_COUNT);
    let describe = |(pid, mut process, has_ended): (u32, TaskProcess, bool)| {
        if !has_ended {
            process.read_command(&tree.proc, pid);
        }
        describe(tree, pid, &process, has_ended)
    };
    Value::Array(found.into_iter().map(describe).collect())
}

/// Returns `None` if the process has ended.
fn read_again(tree: &ProcessTree, pid: u32, known: &TaskProcess) -> Option<TaskProcess> {
    let mut buffer = STAT_BUFFER;
    let stat = read_stat(&tree.proc, pid, &mut buffer)?;
    (stat.start_ticks == known.start_ticks).then_some(())?;
    let mut process = known.clone();
    process.update(&tree.proc, pid, &stat);
    (!process.is_zombie()).then_some(process)
}

fn describe(tree: &ProcessTree, pid: u32, process: &TaskProcess, has_ended: bool) -> Value {
    let mut oom_score = None;
    if !has_ended {
        let mut text = [0; 32];
        let length = tree.proc.read(pid, "oom_score_adj", &mut text).unwrap_or(0);
        oom_score = parse_signed(text[..length].trim_ascii()).map(|score| score as i64);
    }
    object([
        ("pid", json!(pid)),
        ("name", json!(process.name)),
        ("command", json!(process.command)),
        ("resident_bytes", json!(process.resident_bytes)),
        ("peak_bytes", json!(process.peak_bytes)),
        ("swap_bytes", json!(process.swap_bytes)),
        ("oom_score_adj", json!(oom_score)),
        ("threads", json!(process.threads)),
        ("state", json!(char::from(process.state).to_string())),
        ("has_ended", json!(has_ended.then_some(true))),
    ])
}
