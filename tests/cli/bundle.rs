//! `pegel bundle`: the archive, and its start script on a node.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pegel_testkit::{ChildProcess, TempDir};

use crate::PEGEL;
use crate::fake_pegel::{FakePegel, finish, succeed};

/// Writes a small file that looks like a program, and returns the options that bundle it: the built
/// program takes seconds to compress.
fn small_program(dir: &TempDir) -> [&'static str; 2] {
    let program = b"\x7fELF\x02\x01 a program".repeat(100);
    fs::write(dir.join("program"), program).expect("written");
    ["--binary", "program"]
}

/// Makes a bundle in `dir` and extracts it below `to`.
fn extracted(dir: &TempDir, to: &Path, args: &[&str]) {
    let program = small_program(dir);
    succeed(
        PEGEL
            .command(dir)
            .args(["bundle", "--out", "b.tar.gz"])
            .args(program)
            .args(args),
    );
    fs::create_dir_all(to).expect("created");
    succeed(
        std::process::Command::new("tar")
            .arg("-xzf")
            .arg(dir.join("b.tar.gz"))
            .arg("-C")
            .arg(to),
    );
}

#[test]
fn the_same_input_gives_the_same_archive_of_three_files() {
    let dir = TempDir::new();
    fs::write(dir.join("node.yaml"), "# planted\nrate: 1s # planted\n").expect("written");
    small_program(&dir);
    let bundle = |out: &str| {
        let args = ["--binary", "program", "--config", "node.yaml"];
        succeed(
            PEGEL
                .command(&dir)
                .args(["bundle", "--out", out])
                .args(args),
        )
    };
    let report = bundle("a.tar.gz").stdout;
    bundle("b.tar.gz");
    let archive = fs::read(dir.join("a.tar.gz")).expect("read");
    assert!(archive == fs::read(dir.join("b.tar.gz")).expect("read"));
    let tar = |args: &[&str]| {
        let mut command = std::process::Command::new("tar");
        succeed(command.args(args).current_dir(dir.path())).stdout
    };
    let listed = tar(&["--numeric-owner", "--utc", "-tvzf", "a.tar.gz"]);
    let listed: Vec<Vec<&str>> = listed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let columns = |column: usize| -> Vec<&str> { listed.iter().map(|line| line[column]).collect() };
    assert_eq!(
        columns(5),
        [
            "pegel-bundle/",
            "pegel-bundle/pegel",
            "pegel-bundle/pegel.yaml",
            "pegel-bundle/start.sh"
        ]
    );
    assert_eq!(
        columns(0),
        ["drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x"]
    );
    assert!(columns(1).iter().all(|owner| *owner == "0/0"));
    assert!(columns(3).iter().all(|date| *date == "2000-01-01"));
    let config = tar(&["-xzOf", "a.tar.gz", "pegel-bundle/pegel.yaml"]);
    assert_eq!(config, "rate: 1s\n");
    let sum = succeed(std::process::Command::new("sha256sum").arg(dir.join("a.tar.gz")));
    let sum = sum.stdout.split(' ').next().expect("a checksum").to_owned();
    assert!(report.contains(&sum), "{report}");
    assert!(
        report.contains(&format!("({} bytes)", archive.len())),
        "{report}"
    );
}

#[test]
fn secrets_are_refused() {
    let dir = TempDir::new();
    fs::write(dir.join("node.yaml"), "auth_key: planted\n").expect("written");
    for args in [
        &["--config", "node.yaml"][..],
        &["--to", "azblob://acct/c?sig=planted"],
        &["--upload", "https://u:planted@host/x"],
        &["--config", "missing.yaml"],
        &["--binary", "node.yaml"],
    ] {
        let command = &mut PEGEL.command(&dir);
        let refused = finish(command.args(["bundle", "--out", "b.tar.gz"]).args(args));
        assert_ne!(refused.code(), Some(0), "{refused}");
        assert!(!refused.stderr.contains("planted"), "{refused}");
        assert!(!dir.join("b.tar.gz").exists());
    }
}

#[test]
fn the_printed_line_extracts_an_uploaded_bundle_and_starts_a_session() {
    let fake = FakePegel::new();
    let task = fake.home.join("task");
    fs::create_dir(&task).expect("created");
    let place = format!("file://{}/store", fake.home.path().display());
    let args = [
        "bundle",
        "--out",
        "b.tar.gz",
        "--to",
        "file:///it's here",
        "--upload",
        &place,
    ];
    let report = succeed(PEGEL.command(&fake.home).args(args)).stdout;
    let line = report.lines().last().expect("a line").trim().to_owned();
    assert!(line.starts_with("tar -xzf "), "{report}");
    // The program is replaced by one that records its arguments.
    let fake_path = fake.path();
    let line = line.replace(
        " && sh ",
        &format!(" && cp '{}' pegel-bundle/pegel && sh ", fake_path.display()),
    );
    let node_dir = fake.home.join("node");
    let script = format!("{line}\necho $$\n");
    let mut command = fake.command("sh");
    command
        .args(["-c", &script])
        .env("PEGEL_NODE_DIR", &node_dir)
        .current_dir(&task);
    let finished = succeed(&mut command);
    let pid = finished.stdout.trim();
    let expected = format!(
        "[session][start][--pid][{pid}][--to][file:///it's here] in {}",
        task.display()
    );
    assert_eq!(fake.calls(), [expected], "{finished}");
    assert_eq!(fs::metadata(&node_dir).expect("made").mode() & 0o777, 0o700);
}

#[test]
fn tasks_that_start_at_the_same_time_share_the_installed_program() {
    let fake = FakePegel::new();
    fs::write(fake.home.join("node.yaml"), "rate: 1s\n").expect("written");
    let tasks: Vec<_> = (0..4)
        .map(|number| fake.home.join(format!("task{number}")))
        .collect();
    for task in &tasks {
        extracted(&fake.home, task, &["--config", "node.yaml"]);
        fs::copy(fake.path(), task.join("pegel-bundle/pegel")).expect("copied");
    }
    let start = |task: &Path| {
        let mut command = fake.command("sh");
        command
            .arg(task.join("pegel-bundle/start.sh"))
            .args(["--to", "file:///x", "--pid=1"])
            .env("AZ_BATCH_NODE_SHARED_DIR", fake.home.path())
            .current_dir(task);
        command
    };
    let running: Vec<ChildProcess> = tasks
        .iter()
        .map(|task| ChildProcess::start(&mut start(task)))
        .collect();
    for child in running {
        let finished = child.wait(std::time::Duration::from_secs(60));
        assert_eq!(finished.code(), Some(0), "{finished}");
        assert_eq!(finished.stderr, "", "{finished}");
    }
    let mut calls = fake.calls();
    calls.sort();
    let expected: Vec<String> = tasks
        .iter()
        .map(|task| {
            format!(
                "[session][start][--to][file:///x][--pid=1] in {}",
                task.display()
            )
        })
        .collect();
    assert_eq!(calls, expected);
    // A task's directory may be deleted, and nothing temporary is left.
    let uid = rustix::process::getuid().as_raw();
    let installed = fake.home.join(format!("pegel-{uid}"));
    let mut names: Vec<_> = fs::read_dir(installed)
        .expect("installed")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["pegel", "pegel.yaml"]);
}

#[test]
fn a_start_script_that_fails_does_not_fail_the_task() {
    let fake = FakePegel::new();
    let task = fake.home.join("task");
    extracted(&fake.home, &task, &[]);
    fs::copy(fake.path(), task.join("pegel-bundle/pegel")).expect("copied");
    let foreign = fake.home.join("link");
    std::os::unix::fs::symlink(fake.home.path(), &foreign).expect("a link");
    for (name, value) in [
        ("FAKE_PEGEL_STATUS", "1"),
        ("PEGEL_NODE_DIR", foreign.to_str().expect("UTF-8")),
        ("PEGEL_NODE_DIR", "/proc/none"),
    ] {
        let mut command = fake.command("sh");
        command
            .arg(task.join("pegel-bundle/start.sh"))
            .env("AZ_BATCH_NODE_SHARED_DIR", fake.home.path())
            .env(name, value)
            .current_dir(&task);
        let finished = succeed(&mut command);
        assert!(
            finished.stderr.contains("this task has no record"),
            "{finished}"
        );
    }
}
