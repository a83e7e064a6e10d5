//! An OOM kill in a real cgroup, where this machine permits one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pegel_machine::{MachineFiles, cgroup_lines, cgroup_v1_mount, cgroup_v2_mount};
use pegel_session::task::{AutopsyCause, PeakSource, TaskLife, TaskScope, TaskWatch};
use pegel_testkit::{TempDir, eventually, need_hardware};

use crate::task_processes::{ShellTree, wait_for_event};

const LIMIT: u64 = 48 << 20;

/// A cgroup with a memory limit; removed on drop.
struct LimitedCgroup {
    folder: PathBuf,
    is_v2: bool,
}

impl LimitedCgroup {
    /// Creates a group below that of this process, else below the root; `None` if that is not
    /// permitted or the memory controller is off.
    fn new(test: &str) -> Option<LimitedCgroup> {
        let machine = MachineFiles::at("/");
        let text = machine.text("proc/self/cgroup")?;
        let lines: Vec<(&str, &str)> = cgroup_lines(&text).collect();
        let name = format!("pegel-test-{}-{test}", std::process::id());
        let of_v2 = cgroup_v2_mount(&machine).and_then(|mount| {
            let path = lines.iter().find(|(names, _)| names.is_empty())?.1;
            Some((mount, path.to_owned()))
        });
        let of_v1 = cgroup_v1_mount(&machine, &lines, "memory");
        let parents = [(of_v2, true), (of_v1, false)].into_iter();
        let parents = parents.filter_map(|(found, is_v2)| Some((found?, is_v2)));
        let parents = parents.flat_map(|((mount, path), is_v2)| {
            [
                (format!("/{mount}{path}"), is_v2),
                (format!("/{mount}"), is_v2),
            ]
        });
        parents
            .map(|(parent, is_v2)| (Path::new(&parent).join(&name), is_v2))
            .find_map(|(folder, is_v2)| LimitedCgroup::create(folder, is_v2))
    }

    fn create(folder: PathBuf, is_v2: bool) -> Option<LimitedCgroup> {
        fs::create_dir(&folder).ok()?;
        let group = LimitedCgroup { folder, is_v2 };
        let write = |file: &str, value: u64| {
            let path = group.folder.join(file);
            fs::OpenOptions::new().write(true).open(&path).ok()?;
            fs::write(path, value.to_string()).ok()
        };
        if is_v2 {
            write("memory.max", LIMIT)?;
            write("memory.swap.max", 0);
        } else {
            write("memory.limit_in_bytes", LIMIT)?;
            write("memory.memsw.limit_in_bytes", LIMIT);
        }
        Some(group)
    }

    /// Starts a shell in this group that runs `script` once the file `go` exists.
    fn start(&self, dir: &TempDir, script: &str) -> (ShellTree, PathBuf) {
        let go = dir.join("go");
        let procs = self.folder.join("cgroup.procs");
        let child = ShellTree::start(&format!(
            "echo $$ > {procs} && while [ ! -e {go} ]; do sleep 0.01; done; {script}",
            procs = procs.display(),
            go = go.display(),
        ));
        let line = child.pid().to_string();
        eventually("the shell is in the group", || {
            let text = fs::read_to_string(&procs).unwrap_or_default();
            text.lines()
                .any(|found| found == line)
                .then_some(())
                .ok_or(text)
        });
        (child, go)
    }
}

impl Drop for LimitedCgroup {
    fn drop(&mut self) {
        // Processes that were killed leave the group a little later.
        for _ in 0..200 {
            if fs::remove_dir(&self.folder).is_ok() || !self.folder.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn limited(test: &str) -> Option<LimitedCgroup> {
    let group = LimitedCgroup::new(test);
    need_hardware(
        group.is_some(),
        "cgroup in which this user may limit memory",
    )?;
    group
}

#[test]
fn an_oom_kill_is_seen_at_once_and_described() {
    let Some(group) = limited("oom") else {
        return;
    };
    let dir = TempDir::new();
    // The shell goes on after the kill: only the cgroup's descriptor can report it.
    let end = dir.join("end");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", end.display());
    let dd = "dd if=/dev/zero of=/dev/null bs=300M count=1; code=$?";
    let (mut child, go) = group.start(&dir, &format!("{dd}; {wait}; exit $code"));
    let machine = MachineFiles::at("/");
    let scope = TaskScope::of_process(&machine, child.pid()).expect("a process");
    let name = group.folder.file_name().expect("a name").to_str();
    let own = scope.own_cgroup().expect("its own group");
    assert_eq!(own.rsplit('/').next(), name);
    let mut watch = TaskWatch::start(machine, scope, 0).expect("a watch");
    assert_eq!(watch.check().new_oom_kills, 0);
    fs::write(go, "").expect("written");
    wait_for_event(&watch);
    let kills = eventually("an OOM kill", || match watch.check().new_oom_kills {
        0 => Err("none"),
        kills => Ok(kills),
    });
    let autopsy = watch.autopsy(AutopsyCause::OomKill { kills });
    assert_eq!(autopsy["cause"]["kind"], "oom-kill");
    let limit = &autopsy["limits"]["memory"][0];
    assert_eq!(limit["max_bytes"], LIMIT, "{autopsy}");
    let peak = autopsy["memory"]["peak_bytes"].as_u64().expect("a peak");
    assert!(
        (LIMIT * 9 / 10..=LIMIT).contains(&peak),
        "{peak} of {LIMIT}"
    );
    assert!(autopsy["memory"]["events"]["oom_kill"].as_u64() >= Some(1));
    assert!(autopsy["node"]["MemTotal"].as_u64() > Some(LIMIT));
    assert_eq!(watch.life(), TaskLife::Running);
    fs::write(end, "").expect("written");
    eventually("the end", || {
        watch.has_ended().then_some(()).ok_or("running")
    });
    let peaks = watch.sample(1).clone();
    let source = match group.is_v2 {
        true => PeakSource::CgroupPeak,
        false => PeakSource::CgroupPeakV1,
    };
    assert_eq!(peaks.memory_source, Some(source));
    assert!(peaks.memory_bytes >= Some(LIMIT * 9 / 10), "{peaks:?}");
    assert_eq!(peaks.oom_kills, Some(kills));
    assert_eq!(watch.check().new_oom_kills, 0, "reported once");
    assert_eq!(child.wait(), Some(137));
}

#[test]
fn a_peak_between_two_samples_is_exact() {
    let Some(group) = limited("peak") else {
        return;
    };
    let dir = TempDir::new();
    let (mut child, go) = group.start(&dir, "dd if=/dev/zero of=/dev/null bs=30M count=1");
    let machine = MachineFiles::at("/");
    let scope = TaskScope::of_process(&machine, child.pid()).expect("a process");
    let mut watch = TaskWatch::start(machine, scope, 0).expect("a watch");
    assert!(watch.peaks().memory_bytes < Some(20 << 20));
    fs::write(go, "").expect("written");
    eventually("the end", || match watch.life() {
        TaskLife::Ended => Ok(()),
        life => Err(life),
    });
    let peaks = watch.sample(1).clone();
    assert!(peaks.memory_bytes >= Some(30 << 20), "{peaks:?}");
    assert!(peaks.memory_bytes <= Some(LIMIT) && peaks.oom_kills == Some(0));
    assert!(peaks.processes >= Some(1) && peaks.samples == 2);
    child.wait();
    // A second task in the same group: the peak of the first does not count.
    let (child, go) = group.start(&TempDir::new(), "true");
    let machine = MachineFiles::at("/");
    let scope = TaskScope::of_process(&machine, child.pid()).expect("a process");
    let mut watch = TaskWatch::start(machine, scope, 0).expect("a watch");
    assert!(
        watch.sample(1).memory_bytes < Some(30 << 20),
        "{:?}",
        watch.peaks()
    );
    drop((child, go));
}
