//! Files that are written, kept and rejected; and access of Grafana's user afterwards.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};

use pegel_testkit::{
    AgentProcess, FinishedProcess, OtherUser, PLANTED_TOKEN, REPOSITORY, TempDir, need_hardware,
    set_mode,
};

use super::pegel;
use crate::PEGEL;

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn provision(dir: &Path, more: &[&str]) -> FinishedProcess {
    let args = ["grafana", "provision", "--dir", text(dir)];
    pegel(&[&args, more].concat(), &[])
}

/// Returns every file below a directory, with inode and contents.
fn files(dir: &Path) -> Vec<(PathBuf, u64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            let about = fs::symlink_metadata(&path).expect("there");
            if about.is_dir() {
                open.push(path);
            } else {
                let contents = fs::read(&path).unwrap_or_default();
                found.push((path, about.ino(), contents));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_second_run_changes_nothing() {
    let dir = TempDir::new();
    let first = provision(dir.path(), &["--prometheus", "http://prometheus:9090"]);
    assert_eq!(first.code(), Some(0), "{first}");
    let names: Vec<String> = files(dir.path())
        .iter()
        .map(|(path, _, _)| text(path.strip_prefix(dir.path()).expect("below")).to_owned())
        .collect();
    let expected = [
        "dashboards/pegel/agent.json",
        "dashboards/pegel/level-1.json",
        "dashboards/pegel/level-2.json",
        "dashboards/pegel/level-3.json",
        "dashboards/pegel/level-4.json",
        "dashboards/pegel/programs.json",
        "dashboards/pegel.yaml",
        "datasources/pegel-prometheus.yaml",
        "datasources/pegel.yaml",
        "pegel-provisioned.txt",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        first.stdout.matches("written   ").count(),
        expected.len() - 1,
        "{first}"
    );
    let before = files(dir.path());
    let second = provision(dir.path(), &["--prometheus", "http://prometheus:9090"]);
    assert_eq!(second.code(), Some(0), "{second}");
    assert_eq!(
        second.stdout.matches("unchanged ").count(),
        expected.len() - 1,
        "{second}"
    );
    assert!(files(dir.path()) == before, "{second}");

    // The files are those for manual import, and the provider has their path.
    for (path, _, held) in before
        .iter()
        .filter(|(path, _, _)| path.extension().is_some_and(|e| e == "json"))
    {
        let name = path.file_name().expect("a name");
        let packaged = Path::new(REPOSITORY)
            .join("packaging/grafana/dashboards/prometheus")
            .join(name);
        assert!(fs::read(&packaged).expect("packaged") == *held, "{name:?}");
    }
    let provider = fs::read_to_string(dir.join("dashboards/pegel.yaml")).expect("there");
    let path = fs::canonicalize(dir.join("dashboards/pegel")).expect("there");
    assert!(
        provider.contains(&format!("path: \"{}\"\n", path.display())),
        "{provider}"
    );
    let seen = provision(dir.path(), &["--seen-as", "/etc/grafana/provisioning"]);
    assert_eq!(seen.code(), Some(0), "{seen}");
    let provider = fs::read_to_string(dir.join("dashboards/pegel.yaml")).expect("there");
    assert!(
        provider.contains("path: \"/etc/grafana/provisioning/dashboards/pegel\"\n"),
        "{provider}"
    );
}

#[test]
fn foreign_files_are_kept() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("datasources")).expect("made");
    let theirs = dir.join("datasources/pegel.yaml");
    fs::write(&theirs, "apiVersion: 1\n").expect("written");
    let before = files(dir.path());
    for more in [&[][..], &["--force"]] {
        let finished = provision(dir.path(), more);
        assert_eq!(finished.code(), Some(1), "{finished}");
        let said = format!(
            "not written by pegel: {}; no file was changed",
            theirs.display()
        );
        assert!(finished.stderr.contains(&said), "{finished}");
        assert!(files(dir.path()) == before, "{finished}");
    }
    // Symlinks to foreign files are not followed.
    fs::rename(&theirs, dir.join("elsewhere")).expect("moved");
    symlink(dir.join("elsewhere"), &theirs).expect("linked");
    let finished = provision(dir.path(), &["--force"]);
    assert_eq!(finished.code(), Some(1), "{finished}");
    assert_eq!(
        fs::read(dir.join("elsewhere")).expect("there"),
        b"apiVersion: 1\n"
    );
    fs::remove_file(&theirs).expect("removed");
    assert_eq!(provision(dir.path(), &[]).code(), Some(0));
}

#[test]
fn modified_files_are_kept_unless_forced() {
    let dir = TempDir::new();
    assert_eq!(provision(dir.path(), &[]).code(), Some(0));
    let file = dir.join("dashboards/pegel/level-2.json");
    let ours = fs::read(&file).expect("there");
    fs::write(&file, "{}").expect("changed");
    let finished = provision(dir.path(), &["--url", "http://localhost:7"]);
    assert_eq!(finished.code(), Some(0), "{finished}");
    let file_shown = fs::canonicalize(&file).expect("there");
    assert!(
        finished
            .stdout
            .contains(&format!("kept      {}", file_shown.display())),
        "{finished}"
    );
    assert_eq!(fs::read(&file).expect("there"), b"{}");
    let source = fs::read_to_string(dir.join("datasources/pegel.yaml")).expect("there");
    assert!(
        source.contains("url: \"http://localhost:7\"\n"),
        "our file is rewritten: {source}"
    );
    let finished = provision(dir.path(), &["--force"]);
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert!(fs::read(&file).expect("there") == ours);
}

#[test]
fn invalid_arguments_are_reported() {
    let dir = TempDir::new();
    let file = dir.join("file");
    fs::write(&file, "").expect("written");
    let token = dir.join("token");
    fs::write(&token, PLANTED_TOKEN).expect("written");
    let gone = dir.join("gone");
    for (at, more, code, said) in [
        (&file, &[][..], 1, "is not a directory"),
        (&file.join("below"), &[], 1, "below"),
        (
            &gone,
            &["--url", "localhost:4242"],
            2,
            "does not start with http://",
        ),
        (&gone, &["--url", "http://u:p@x"], 2, "contains credentials"),
        (
            &gone,
            &["--url", "http://nid1:4242", "--token-file", text(&token)],
            2,
            "unencrypted over the network; use https",
        ),
        (
            &gone,
            &["--token-file", text(&gone)],
            1,
            "cannot read the token file",
        ),
        (
            &gone,
            &["--token-file", text(&file)],
            2,
            "expected one line",
        ),
        (&gone, &["--user", "a b"], 2, "is not a valid user name"),
        (&gone, &["--config", text(&gone)], 2, "gone"),
        (
            &dir.path().to_owned(),
            &["--seen-as", "etc"],
            2,
            "must be an absolute path",
        ),
    ] {
        let finished = provision(at, more);
        assert_eq!(finished.code(), Some(code), "{finished}");
        assert!(finished.stderr.contains(said), "{said}: {finished}");
    }
    assert_eq!(files(dir.path()).len(), 2);
}

#[test]
fn an_unwritable_directory_is_reported() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let dir = TempDir::new();
    set_mode(&dir, 0o755);
    let (binary, place) = (dir.join("pegel"), dir.join("place"));
    PEGEL.copy_to(&binary);
    fs::create_dir(&place).expect("made");
    let args = ["grafana", "provision", "--dir", text(&place)];
    let finished = other_user.run(&binary, &args);
    assert_eq!(finished.code(), Some(1), "{finished}");
    assert!(finished.stderr.contains("cannot write "), "{finished}");
    assert!(
        finished.stderr.contains("run as a user with write access"),
        "{finished}"
    );
    assert_eq!(files(&place), []);
}

fn agent(config: &str) -> AgentProcess {
    PEGEL.agent().config(config).start()
}

/// Returns the statuses of "Save & test", a query and a variable, as sent by Grafana's user.
fn statuses(other_user: OtherUser, agent: &AgentProcess, headers: &[&str]) -> [u16; 3] {
    let url = |path: &str| format!("http://{}{path}", agent.http());
    let ask = |more: &[&str]| other_user.curl(&[headers, more].concat()).0;
    let body = r#"{"start":"1m-ago","queries":[{"metric":"pegel_threads","aggregator":"sum"}]}"#;
    let json = ["-H", "Content-Type: application/json", "-d", body];
    [
        ask(&[&url("/api/suggest?q=cpu&type=metrics")]),
        ask(&[&json[..], &[&url("/api/query")]].concat()),
        ask(&[
            "-g",
            &url("/api/search/lookup?m=pegel_threads{host=*}&limit=1000"),
        ]),
    ]
}

#[test]
fn the_printed_line_gives_grafanas_user_access() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let dir = TempDir::new();
    let finished = provision(
        dir.path(),
        &["--user", OtherUser::NAME, "--user", "no-such-user"],
    );
    assert_eq!(finished.code(), Some(0), "{finished}");
    let lines = finished.stdout.lines();
    let line = lines
        .filter(|line| line.starts_with("allow_users:"))
        .collect::<Vec<_>>();
    assert_eq!(line, ["allow_users: [nobody]"], "{finished}");
    assert!(
        finished.stdout.contains("no user no-such-user"),
        "{finished}"
    );
    assert_eq!(
        statuses(other_user, &agent("level: 2\n"), &[]),
        [401; 3],
        "without it"
    );
    let config = format!("level: 2\n{}\n", line[0]);
    assert_eq!(
        statuses(other_user, &agent(&config), &[]),
        [200; 3],
        "with it"
    );
    // A configuration with the line is recognised.
    let file = dir.join("agent.yaml");
    fs::write(&file, &config).expect("written");
    let finished = provision(
        dir.path(),
        &["--user", OtherUser::NAME, "--config", text(&file)],
    );
    assert!(
        finished.stdout.contains("already permits nobody"),
        "{finished}"
    );
}

#[test]
fn the_written_token_gives_grafanas_user_access() {
    let dir = TempDir::new();
    let token = dir.join("token");
    fs::write(&token, format!("{PLANTED_TOKEN}\n")).expect("written");
    set_mode(&token, 0o600);
    let place = dir.join("provisioning");
    fs::create_dir(&place).expect("made");
    // The token comes from the agent's configuration; the testkit checks that no output contains
    // it.
    let config = dir.join("agent.yaml");
    fs::write(
        &config,
        format!(
            "token_file: {}\nlisten: [\"127.0.0.1:1\"]\n",
            token.display()
        ),
    )
    .expect("written");
    let finished = provision(&place, &["--config", text(&config)]);
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert!(!finished.stdout.contains("allow_users"), "{finished}");
    let file = place.join("datasources/pegel.yaml");
    assert_eq!(fs::metadata(&file).expect("there").mode() & 0o7777, 0o600);
    let yaml = fs::read_to_string(&file).expect("there");
    assert!(
        yaml.contains("url: \"http://localhost:1\"\n"),
        "the agent has no 4242"
    );
    assert!(yaml.contains("      httpHeaderName1: Authorization\n    secureJsonData:\n"));
    let value = yaml
        .lines()
        .find_map(|line| line.trim().strip_prefix("httpHeaderValue1: "));
    let value = value.and_then(|value| value.strip_prefix('"')?.strip_suffix('"'));
    let header = format!("Authorization: {}", value.expect("a value"));
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let agent = agent("level: 2\n");
    assert_eq!(statuses(other_user, &agent, &["-H", &header]), [200; 3]);
}

#[test]
fn only_the_group_of_grafanas_directory_can_read_the_token() {
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to give files to a group").is_none() {
        return;
    }
    let dir = TempDir::new();
    chown(dir.path(), None, Some(OtherUser::UID)).expect("root");
    // First written without a token: the world-readable file becomes secret.
    assert_eq!(provision(dir.path(), &[]).code(), Some(0));
    let about = |name: &str| {
        let found = fs::metadata(dir.join(name)).expect("there");
        (found.mode() & 0o7777, found.gid())
    };
    assert_eq!(about("datasources/pegel.yaml").0, 0o644);
    let args = ["grafana", "provision", "--dir", text(dir.path())];
    let finished = pegel(&args, &[("PEGEL_TOKEN", PLANTED_TOKEN)]);
    assert_eq!(finished.code(), Some(0), "{finished}");
    for name in ["datasources/pegel.yaml", "pegel-provisioned.txt"] {
        assert_eq!(about(name), (0o640, OtherUser::UID), "{name}");
    }
    set_mode(dir.join("datasources/pegel.yaml"), 0o644);
    let finished = pegel(&args, &[("PEGEL_TOKEN", PLANTED_TOKEN)]);
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert_eq!(
        about("datasources/pegel.yaml"),
        (0o640, OtherUser::UID),
        "mended"
    );
}
