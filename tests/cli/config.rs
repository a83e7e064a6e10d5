//! Configuration files: the valid ones are accepted, each invalid one gets the message in
//! `NAME.txt` (`PEGEL_BLESS=1` rewrites it).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pegel_testkit::{ChildProcess, FinishedProcess, REPOSITORY, TempDir, assert_golden, set_mode};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::PEGEL;

/// Runs in `dir`, so that messages contain relative paths.
fn pegel(dir: &Path, args: &[&str], variables: &[(&str, &str)]) -> FinishedProcess {
    let home = TempDir::new();
    let mut command = PEGEL.command(&home);
    command.args(args).envs(variables.iter().copied());
    ChildProcess::start(command.current_dir(dir)).wait(Duration::from_secs(30))
}

fn cases(kind: &str) -> Vec<PathBuf> {
    let dir = Path::new(REPOSITORY).join("tests/cases/config").join(kind);
    let entries = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    paths.sort();
    assert!(paths.len() > 3, "{} has cases", dir.display());
    paths
}

fn name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .expect("UTF-8")
}

#[test]
fn valid_files_are_accepted() {
    for path in cases("valid") {
        let dir = path.parent().expect("a directory");
        // They name files that do not exist here.
        let finished = pegel(dir, &["config", "check", "--text-only", name(&path)], &[]);
        assert_eq!(finished.code(), Some(0), "{}: {finished}", path.display());
        assert_eq!(finished.stdout, format!("{}: no errors\n", name(&path)));
        assert_eq!(
            pegel(dir, &["config", "show", "--config", name(&path)], &[]).code(),
            Some(0)
        );
    }
}

#[test]
fn each_error_has_its_message() {
    for path in cases("invalid") {
        let dir = path.parent().expect("a directory");
        for args in [
            ["config", "check", name(&path)].as_slice(),
            &["agent", "--config", name(&path)],
        ] {
            let finished = pegel(dir, args, &[]);
            assert_eq!(finished.code(), Some(2), "{}: {finished}", path.display());
            assert_eq!(finished.stdout, "");
            assert_golden(path.with_extension("txt"), &finished.stderr);
        }
        // File, line and column, unless the message is about the whole file.
        let message = fs::read_to_string(path.with_extension("txt")).expect("the message");
        let place = message.strip_prefix("pegel: ").expect("our name");
        let mut parts = place.split(':');
        assert!(
            parts.next().is_some_and(|file| file.ends_with(".yaml")),
            "{message}"
        );
        let numbers: Vec<bool> = parts
            .take(2)
            .map(|part| part.parse::<u32>().is_ok())
            .collect();
        assert_eq!(numbers, [true, true], "{message}");
    }
}

#[test]
fn the_default_file_is_what_init_writes() {
    let home = TempDir::new();
    let printed = pegel(home.path(), &["config", "init"], &[]);
    assert_eq!(printed.code(), Some(0), "{printed}");
    assert_golden(
        Path::new(REPOSITORY).join("config/pegel.yaml"),
        &printed.stdout,
    );

    let dash = pegel(home.path(), &["config", "init", "-"], &[]);
    assert_eq!((dash.code(), &dash.stdout), (Some(0), &printed.stdout));
    assert!(!home.join("-").exists());

    assert_eq!(
        pegel(home.path(), &["config", "init", "pegel.yaml"], &[]).code(),
        Some(0)
    );
    assert_eq!(
        fs::read_to_string(home.join("pegel.yaml")).expect("written"),
        printed.stdout
    );
    let again = pegel(home.path(), &["config", "init", "pegel.yaml"], &[]);
    assert_eq!(
        again.code(),
        Some(1),
        "an existing file is left alone: {again}"
    );
    assert_eq!(
        pegel(home.path(), &["config", "check", "pegel.yaml"], &[]).code(),
        Some(0)
    );
}

#[test]
fn the_examples_in_the_default_file_are_valid() {
    let home = TempDir::new();
    let text = pegel(home.path(), &["config", "init"], &[]).stdout;
    let is_key = |line: &str| {
        line.trim_start()
            .strip_prefix('#')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    let uncommented: String = text
        .lines()
        // The two keys of a pair with the same meaning exclude each other.
        .filter(|line| {
            let excluded = [
                "#default_tmdb_dir",
                "#collector_rate",
                "  #bearer_token_file",
            ];
            !excluded.iter().any(|key| line.starts_with(key))
        })
        .map(|line| {
            if is_key(line) {
                line.replacen('#', "", 1)
            } else {
                line.to_owned()
            }
        })
        .map(|line| line + "\n")
        .collect();
    assert!(
        uncommented.contains("\ndir: /var/lib/pegel\n"),
        "{uncommented}"
    );
    assert!(uncommented.contains("\n  bytes: 1GiB\n"), "{uncommented}");
    fs::write(home.join("all.yaml"), &uncommented).expect("written");
    let finished = pegel(
        home.path(),
        &["config", "check", "--text-only", "all.yaml"],
        &[],
    );
    assert_eq!(finished.code(), Some(0), "{finished}\n{uncommented}");
}

#[test]
fn show_reports_the_origin_of_each_value() {
    let home = TempDir::new();
    fs::write(
        home.join("f.yaml"),
        "rate: 2\nlevel: 1\nkeep: {disk: 1d}\nnode: 007\n",
    )
    .expect("written");
    let variables = [("PEGEL_LEVEL", "2"), ("PEGEL_CONFIG", "f.yaml")];
    let shown = pegel(
        home.path(),
        &["config", "show", "--rate", "100ms"],
        &variables,
    );
    assert_eq!(shown.code(), Some(0), "{shown}");
    let line = |key: &str| {
        let line = shown
            .stdout
            .lines()
            .find(|line| line.trim_start().starts_with(key));
        line.unwrap_or_else(|| panic!("no {key}: {shown}"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("rate:"), "rate: 100ms # --rate");
    assert_eq!(line("level:"), "level: 2 # $PEGEL_LEVEL");
    assert_eq!(line("disk:"), "disk: 1d # f.yaml:3:14");
    assert_eq!(line("memory: 5m"), "memory: 5m # default");
    assert_eq!(line("node:"), "node: 007 # f.yaml:4:7");
    assert_eq!(
        line("listen:"),
        "listen: [\"127.0.0.1:1337\", \"127.0.0.1:4242\"] # default"
    );
    // The output is a valid configuration file.
    fs::write(home.join("shown.yaml"), &shown.stdout).expect("written");
    assert_eq!(
        pegel(home.path(), &["config", "check", "shown.yaml"], &[]).code(),
        Some(0),
        "{shown}"
    );
}

/// Checks a file with the given text.
fn check_one(home: &TempDir, line: &str) -> FinishedProcess {
    fs::write(home.join("one.yaml"), format!("{line}\n")).expect("written");
    pegel(home.path(), &["config", "check", "one.yaml"], &[])
}

#[test]
fn named_files_and_directories_are_checked() {
    let home = TempDir::new();
    let at = |name: &str| home.join(name).display().to_string();
    fs::write(home.join("plain"), "text").expect("written");
    fs::write(home.join("open"), "0123456789abcdef").expect("written");
    set_mode(home.join("open"), 0o644);
    fs::create_dir(home.join("wide")).expect("made");
    let rights = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, home.join("pipe"), FileType::Fifo, rights, 0).expect("a pipe");
    set_mode(home.join("wide"), 0o777);
    for (line, message) in [
        (
            format!("token_file: {}", at("none")),
            format!(
                "1:13: token_file: cannot read the token file {}: No such file",
                at("none")
            ),
        ),
        (
            format!("token_file: {}", at("open")),
            format!(
                "1:13: token_file: the token file {} has mode 0644",
                at("open")
            ),
        ),
        (
            format!("tls: {{cert: {}, key: {}}}", at("none"), at("plain")),
            format!("tls: cannot read {}: No such file", at("none")),
        ),
        (
            format!("tls: {{cert: {}, key: {}}}", at("plain"), at("plain")),
            format!("tls: {} holds no certificate", at("plain")),
        ),
        (
            format!("tls: {{cert: {}, key: {}}}", at("pipe"), at("plain")),
            format!("tls: cannot read {}: not a regular file", at("pipe")),
        ),
        (
            "allow_users: [nobody-of-that-name]".to_owned(),
            "allow_users: there is no user".to_owned(),
        ),
        (
            format!("socket: {}", at("plain")),
            format!("1:9: socket: {} is not a socket", at("plain")),
        ),
        (
            format!("socket: {}", at("wide/push.sock")),
            format!(
                "socket: the directory {} can be written by others",
                at("wide")
            ),
        ),
        (
            format!("socket: {}", at("no/such/push.sock")),
            format!(
                "socket: cannot use the socket {}: No such file",
                at("no/such")
            ),
        ),
        (
            format!("statsd: {{unix: {}}}", at("plain")),
            format!("statsd.unix: {} is not a socket", at("plain")),
        ),
        (
            format!("dir: {}", at("plain")),
            format!("1:6: dir: {} is not a directory", at("plain")),
        ),
        (
            format!("dir: {}", at("wide")),
            format!("dir: {} can be written by every user", at("wide")),
        ),
    ] {
        let finished = check_one(&home, &line);
        assert_eq!(finished.code(), Some(2), "{line}: {finished}");
        assert!(
            finished.stderr.starts_with("pegel: one.yaml:1:") && finished.stderr.contains(&message),
            "{line}: {finished}\nexpected: {message}"
        );
    }
    // Valid paths, paths that would be created, and several errors at once.
    set_mode(home.join("open"), 0o600);
    let good = [
        format!("token_file: {}", at("open")),
        format!("socket: {}", at("new/push.sock")),
        format!("dir: {}", at("new/a/b")),
    ];
    let finished = check_one(&home, &good.join("\n"));
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert!(!home.join("new").exists(), "nothing is made");
    let bad = format!("token_file: {}\ndir: {}", at("none"), at("plain"));
    let stderr = check_one(&home, &bad).stderr;
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
}

#[test]
fn arguments_and_variables_are_checked_too() {
    let home = TempDir::new();
    for (args, variables, message) in [
        (
            vec!["agent", "--rate", "fast"],
            vec![],
            "pegel: --rate: rate: \"fast\" is not a length of time\n  accepted: ",
        ),
        (
            vec!["agent", "--level", "9"],
            vec![],
            "pegel: --level: level: \"9\" is not a level\n  accepted: 0 (off), ",
        ),
        (
            vec!["agent", "--listen", "nowhere"],
            vec![],
            "pegel: --listen: listen[0]: \"nowhere\" is not an address with a port\n",
        ),
        (
            vec!["agent"],
            vec![("PEGEL_RATE", "0")],
            "pegel: $PEGEL_RATE: rate: \"0\" is not greater than 0\n",
        ),
        (
            vec!["agent", "--config", "none.yaml"],
            vec![],
            "pegel: none.yaml: cannot read the file: No such file or directory",
        ),
        (
            vec!["config", "check"],
            vec![],
            "pegel: no file to check: pass FILE or set $PEGEL_CONFIG\n",
        ),
    ] {
        let finished = pegel(home.path(), &args, &variables);
        assert_eq!(finished.code(), Some(2), "{args:?}: {finished}");
        assert!(finished.stderr.starts_with(message), "{args:?}: {finished}");
    }
}

#[test]
fn includes_have_limits() {
    let home = TempDir::new();
    let write = |name: &str, text: &str| fs::write(home.join(name), text).expect("written");
    let check = |name: &str| pegel(home.path(), &["config", "check", name], &[]);

    write("self.yaml", "include: self.yaml\n");
    let finished = check("self.yaml");
    assert_eq!(
        finished.stderr,
        "pegel: self.yaml:1:10: include: self.yaml: the file includes itself\n"
    );

    for depth in 0..12 {
        write(
            &format!("d{depth}.yaml"),
            &format!("include: [d{}.yaml]\n", depth + 1),
        );
    }
    write("d12.yaml", "rate: 1s\n");
    let finished = check("d0.yaml");
    assert_eq!(finished.code(), Some(2));
    assert!(
        finished.stderr.contains("includes nest more than 8 deep"),
        "{finished}"
    );
    assert_eq!(
        check("d4.yaml").code(),
        Some(0),
        "eight are allowed: {}",
        check("d4.yaml")
    );

    write("big.yaml", &format!("# {}\n", "x".repeat(1 << 20)));
    assert_eq!(
        check("big.yaml").stderr,
        "pegel: big.yaml: the file exceeds 1 MiB\n"
    );
    fs::write(home.join("latin.yaml"), b"rate: 1s\n# caf\xe9\n").expect("written");
    assert_eq!(
        check("latin.yaml").stderr,
        "pegel: latin.yaml: line 2 is not UTF-8\n"
    );
    fs::create_dir(home.join("dir.yaml")).expect("made");
    assert_eq!(
        check("dir.yaml").stderr,
        "pegel: dir.yaml: not a regular file\n"
    );
}

#[test]
fn dragons_configuration_file_is_accepted() {
    let home = TempDir::new();
    let dragon = "aggregator_port: 5242\ncollector_rate: 0.25\ndefault_tmdb_window: 300\ndefault_tmdb_dir: /tmp\ndelete_tmdb: 1\n";
    fs::write(home.join("t.yaml"), dragon).expect("written");
    let variables = [
        ("DRAGON_TELEMETRY_CONFIG", "t.yaml"),
        ("DRAGON_TELEMETRY_LEVEL", "5"),
    ];
    let shown = pegel(home.path(), &["config", "show"], &variables);
    assert_eq!(shown.code(), Some(0), "{shown}");
    assert!(shown.stdout.contains("collector_rate: 0.25"), "{shown}");
    assert!(shown.stdout.contains("level: 4"), "{shown}");
}
