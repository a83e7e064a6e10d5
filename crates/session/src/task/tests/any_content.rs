//! No content of the machine's files causes a panic, and the description stays bounded.

use std::fs;
use std::path::{Path, PathBuf};

use pegel_testkit::Rng;

use super::fake_machine::{FakeMachine, FakeProcess};
use crate::task::{AutopsyCause, TaskScope, TaskWatch};

fn all_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        match entry.path() {
            path if path.is_dir() => all_files(&path, found),
            path => found.push(path),
        }
    }
}

/// Returns a text with a few bytes changed, a number of another size, or random bytes.
fn mutated(rng: &mut Rng, text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    match rng.below(4) {
        0 => (0..rng.below(300)).map(|_| rng.next_u64() as u8).collect(),
        1 => {
            text.truncate(rng.below(text.len() as u64 + 1) as usize);
            text
        }
        2 => {
            let text = String::from_utf8_lossy(&text).into_owned();
            let number = *rng.pick(&["18446744073709551615", "-1", "99999999999999999999", ""]);
            let digit = *rng.pick(&["1", "0", "5"]);
            text.replacen(digit, number, 3).into_bytes()
        }
        _ => {
            for _ in 0..4 {
                if !text.is_empty() {
                    let at = rng.below(text.len() as u64) as usize;
                    text[at] = *rng.pick(b"\n\0 :/().-09aZ\xff");
                }
            }
            text
        }
    }
}

#[test]
fn any_content_is_accepted() {
    let mut rng = Rng::from_env();
    let machine = FakeMachine::new();
    machine.add_task_cgroup("50\n60\n");
    let child = FakeProcess {
        parent: 50,
        ..FakeProcess::default()
    };
    machine.process(60, child);
    let pressure = "full avg10=1.50 avg60=0.00 avg300=0.00 total=2000000\n";
    machine.write("sys/fs/cgroup/task/memory.pressure", pressure);
    machine.write("proc/meminfo", "MemTotal:  1000 kB\n");
    machine.write("proc/loadavg", "0.00 0.01 0.05 1/100 60\n");
    let mut files = Vec::new();
    all_files(machine.dir.path(), &mut files);
    files.sort_unstable();
    let originals: Vec<Vec<u8>> = files
        .iter()
        .map(|file| fs::read(file).expect("read"))
        .collect();
    let mut watch = machine.watch();
    for round in 0..1500 {
        let index = rng.below(files.len() as u64) as usize;
        fs::write(&files[index], mutated(&mut rng, &originals[index])).expect("written");
        watch.sample(round);
        watch.check();
        let text = watch
            .autopsy(AutopsyCause::OomKill { kills: 1 })
            .to_string();
        assert!(text.len() <= 256 << 10);
        if let Some(scope) = TaskScope::of_process(&machine.files(), 50) {
            let fresh = TaskWatch::start(machine.files(), scope, round).expect("a watch");
            let saved = serde_json::to_string(&fresh.checkpoint()).expect("JSON");
            let saved = serde_json::from_str(&saved).expect("a checkpoint");
            TaskWatch::resume(machine.files(), saved).expect("resumed");
        }
        if rng.chance(2) {
            fs::write(&files[index], &originals[index]).expect("written");
        }
    }
}
