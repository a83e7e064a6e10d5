//! Attributes that a program inherits from its parent pass through the wrapper unchanged.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use pegel_testkit::{
    ChildProcess, FinishedProcess, OtherUser, TempDir, copy_program, now_millis, set_mode,
};

use crate::PEGEL;
use crate::run_mode::{BOUND, RunMode, compile, isolate};

/// A program that sets unusual attributes, and one that prints them.
struct InheritancePair {
    home: TempDir,
    gives: PathBuf,
    finds: PathBuf,
}

impl InheritancePair {
    #[track_caller]
    fn new() -> Option<InheritancePair> {
        let home = TempDir::new();
        let gives = compile(&home, "gives", &[])?;
        let finds = compile(&home, "finds", &[])?;
        Some(InheritancePair { home, gives, finds })
    }

    fn command(&self, what: &str, words: &[String]) -> Command {
        let mut command = Command::new(&self.gives);
        command.arg(what).args(words).arg(&self.finds);
        isolate(&mut command, &self.home);
        command
    }

    fn run(&self, way: RunMode, what: &str) -> FinishedProcess {
        ChildProcess::start(&mut self.command(what, &way.prefix())).wait(BOUND)
    }
}

/// Attributes set before the wrapper starts, each with the line printed if it was inherited.
const GIVEN: [(&str, &str); 11] = [
    ("usual", "blocked 0, pending 0, "),
    ("signals", ", pending 1000000800, "),
    ("no-signals", "blocked fffffffe7ffbfeff"),
    ("descriptors", " type 100000 at 5\n"),
    ("no-descriptors", "limit 7: 4 4"),
    ("small-files", "limit 1: 2000 2000"),
    ("limits", "limit 7: 40 40"),
    ("odds", "nice 5, policy 3 0, processors 1, first 1"),
    ("session", "session: leader"),
    ("no-directory", "directory: No such file or directory"),
    ("variables", "variable: B="),
];

#[test]
fn every_attribute_is_inherited() {
    let Some(pair) = InheritancePair::new() else {
        return;
    };
    for (what, line) in GIVEN {
        let plain = pair.run(RunMode::Plain, what);
        assert_eq!(plain.code(), Some(42), "{what}: {plain}");
        assert!(plain.stdout.contains(line), "{what}: {plain}");
        for way in RunMode::wrapped() {
            let found = pair.run(way, what);
            assert_eq!(found.stdout, plain.stdout, "{way:?} {what}");
            assert_eq!(found.status, plain.status, "{way:?} {what}");
            assert_eq!(found.stderr, plain.stderr, "{way:?} {what}");
        }
    }
}

/// Leaves out the variables of the library for MPI, and of the summary that `-v` prints.
fn without_library(text: &str) -> String {
    let is_other = |line: &&str| {
        let names = ["variable: LD_PRELOAD=", "variable: PEGEL_LANE_LIST="];
        !names.iter().any(|name| line.starts_with(name))
    };
    let lines: Vec<&str> = text.lines().filter(is_other).collect();
    lines.join("\n")
}

#[test]
fn the_library_for_mpi_adds_one_variable_and_nothing_else() {
    let Some(pair) = InheritancePair::new() else {
        return;
    };
    for (what, _) in GIVEN {
        let plain = pair.run(RunMode::Plain, what);
        let words = [PEGEL.path(), "run", "-m", "-s", "--"].map(str::to_owned);
        let found = ChildProcess::start(&mut pair.command(what, &words)).wait(BOUND);
        assert_eq!(found.code(), Some(42), "{what}: {found}");
        let found = &found.stdout;
        assert_eq!(
            without_library(found),
            without_library(&plain.stdout),
            "{what}"
        );
        assert!(found.contains("variable: LD_PRELOAD="), "{what}: {found}");
    }
}

/// Copies the binary with another file name for its MPI library: a library that was installed on
/// this machine before must not be found.
fn copy_without_installed_library(pair: &InheritancePair) -> String {
    const PREFIX: &[u8] = b"libpegel_mpi-";
    let new_hash = format!("{:016x}", now_millis());
    let mut bytes = std::fs::read(PEGEL.path()).expect("the binary");
    let mut renamed = 0;
    for start in PREFIX.len()..bytes.len() - new_hash.len() {
        let (before, hash) = bytes.split_at_mut(start);
        let hash = &mut hash[..new_hash.len()];
        if before.ends_with(PREFIX) && hash.iter().all(u8::is_ascii_hexdigit) {
            hash.copy_from_slice(new_hash.as_bytes());
            renamed += 1;
        }
    }
    assert!(renamed > 0, "the binary contains the name of its library");
    // Not `pegel`, which is the directory of the library.
    let (patched, binary) = (pair.home.join("patched"), pair.home.join("wrapper"));
    std::fs::write(&patched, bytes).expect("written");
    copy_program(&patched, &binary);
    set_mode(&binary, 0o755);
    binary.display().to_string()
}

/// Without resources for the counting process, the lane or the library, the program still runs.
#[test]
fn without_descriptors_or_file_space_the_program_runs() {
    for what in ["no-descriptors", "small-files"] {
        let Some(pair) = InheritancePair::new() else {
            return;
        };
        let plain = pair.run(RunMode::Plain, what);
        let mpi = ["run", "-v", "-m", "-s", "--"].map(str::to_owned);
        let words = [&[copy_without_installed_library(&pair)][..], &mpi].concat();
        let found = ChildProcess::start(&mut pair.command(what, &words)).wait(BOUND);
        assert_eq!(found.code(), Some(42), "{what}: {found}");
        assert_eq!(
            without_library(&found.stdout),
            without_library(&plain.stdout),
            "{what}"
        );
        assert!(
            found.stderr.contains(" not counted: "),
            "{what}: it is said with -v: {found}"
        );
    }
}

/// Root has no such limit.
#[test]
fn without_permission_to_fork_the_program_runs() {
    let (Some(pair), Some(_)) = (InheritancePair::new(), OtherUser::new()) else {
        return;
    };
    let binary = pair.home.join("pegel");
    PEGEL.copy_to(&binary);
    set_mode(&pair.home, 0o755);
    let lanes = pair.home.join("lanes");
    std::fs::create_dir(&lanes).expect("made");
    set_mode(&lanes, 0o1777);
    // The limit counts all processes of a user: use one without any.
    let uid = 300_000_000 + std::process::id();
    let run = |way: RunMode, more: &[&str]| {
        let mut words = way.prefix_with(&binary);
        if let Some(run) = words.get(1) {
            assert_eq!(run, "run");
            words.splice(2..2, more.iter().map(|word| (*word).to_owned()));
        }
        let mut command = pair.command("no-processes", &words);
        command.uid(uid).gid(uid).current_dir("/");
        ChildProcess::start(&mut command).wait(BOUND)
    };
    let plain = run(RunMode::Plain, &[]);
    assert!(plain.stdout.contains("limit 6: 1 1\n"), "{plain}");
    for way in [RunMode::Wrapped, RunMode::Ptrace] {
        let found = run(way, &[]);
        assert_eq!(found.stdout, plain.stdout, "{way:?}");
        assert_eq!((found.code(), found.stderr.as_str()), (Some(42), ""));
    }
    let told = run(RunMode::Ptrace, &["-v"]);
    assert_eq!(told.stdout, plain.stdout);
    assert!(
        told.stderr.contains("system calls are not counted: "),
        "{told}"
    );
}
