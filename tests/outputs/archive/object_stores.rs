//! The archive in object stores: moto for S3, azurite for Azure, gcp-storage-emulator for Google.
//! pyarrow's own clients read S3 and Azure.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{ChildProcess, TempDir, eventually_within, need, need_peer};

use super::{BOUND, assert_rows, count, hours_ago, points, read_archive, rows_of, send};
use crate::PEGEL;

/// Planted: it must not appear in any output.
const AZURE_KEY: &str = "UExBTlRFRC1BWlVSRS1LRVktMDEyMzQ1Njc4OQ==";

/// Prints its port, which the emulator's own command line does not do. It has the bucket already.
const GOOGLE_EMULATOR: &str = "
from gcp_storage_emulator.server import create_server
server = create_server('127.0.0.1', 0, in_memory=True, default_bucket='samples')
server.start()
print('at http://127.0.0.1:%d' % server._api._httpd.server_address[1], flush=True)
";

/// Makes the bucket or container, or copies its content to a directory.
const CLIENT: &str = r#"
import json, os, sys, urllib.parse, urllib.request
from pyarrow import fs
kind, url, action = sys.argv[1:4]

def copy_google(objects, dir):
    page = ""
    while page is not None:
        with urllib.request.urlopen(f"{objects}?prefix=sub%2F{page}") as answer:
            listed = json.load(answer)
        for name in [item["name"] for item in listed.get("items", [])]:
            path = os.path.join(dir, name.removeprefix("sub/"))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            source = f"{objects}/{urllib.parse.quote(name, safe='')}?alt=media"
            with urllib.request.urlopen(source) as content, open(path, "wb") as file:
                file.write(content.read())
        token = listed.get("nextPageToken")
        page = token and "&pageToken=" + urllib.parse.quote(token, safe="")

if kind == "gs":
    if action == "copy":
        copy_google(url + "/storage/v1/b/samples/o", sys.argv[4])
    sys.exit()
authority = url.split("://")[1].rstrip("/")
if kind == "s3":
    store = fs.S3FileSystem(access_key="id", secret_key="PLANTED-SECRET", region="us-east-1",
        endpoint_override=url, allow_bucket_creation=True)
else:
    store = fs.AzureFileSystem("pegeltest", account_key=sys.argv[5], blob_storage_authority=authority,
        dfs_storage_authority=authority, blob_storage_scheme="http", dfs_storage_scheme="http")
if action == "create":
    store.create_dir("samples")
else:
    fs.copy_files("samples/sub", sys.argv[4], source_filesystem=store,
        destination_filesystem=fs.LocalFileSystem())
"#;

fn client(python: &Path, kind: &str, url: &str, action: &str, dir: &Path) {
    let output = Command::new(python)
        .args(["-c", CLIENT, kind, url, action])
        .arg(dir)
        .arg(AZURE_KEY)
        .output()
        .expect("started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}

/// Waits until a server prints its URL after `mark`.
fn server_url(process: &mut ChildProcess, mark: &str) -> String {
    eventually_within(Duration::from_secs(120), "the server starts", || {
        let output = process.output();
        assert!(!process.has_ended(), "{output}");
        let url = output.lines().find_map(|line| {
            let (_, url) = line.split_once(mark)?;
            url.starts_with("http").then(|| url.trim().to_owned())
        });
        url.ok_or(output)
    })
}

/// Archives points to a place at a server, exports them too, and reads both back.
fn check(python: &Path, kind: &str, place: &str, url: &str, environment: &[(&str, &str)]) {
    let home = TempDir::new();
    client(python, kind, url, "create", home.path());
    let config = format!(
        "node: n1\nkeep: {{memory: 1s, disk: 20d}}\n\
         archive: {{to: \"{place}/sub/archive\", endpoint: \"{url}\", \
         credentials_file: \"{}\"}}\n",
        home.join("credentials").display()
    );
    let lines = environment
        .iter()
        .map(|(name, value)| format!("{name}={value}\n"));
    std::fs::write(home.join("credentials"), lines.collect::<String>()).expect("written");
    let agent = PEGEL
        .agent()
        .dir(home.join("store"))
        .config(&config)
        .start();
    let sent = points((0..50).map(|n| hours_ago(30) + n * 600_011));
    assert!(send(&agent, &sent));
    eventually_within(BOUND, "the points are archived", || {
        let status = agent.status()["archive"].clone();
        let is_done = count(&agent, "samples") == sent.len() as u64;
        is_done.then_some(()).ok_or(status)
    });
    let mut export = PEGEL.command(&home);
    agent.connect(&mut export);
    export.envs(environment.iter().copied());
    export.env("PEGEL_STORAGE_ENDPOINT", url);
    export
        .args(["export", "--match", "queue*", "--to"])
        .arg(format!("{place}/sub/export"));
    let done = ChildProcess::start(&mut export).wait(BOUND);
    assert_eq!(done.code(), Some(0), "{done}");
    client(python, kind, url, "copy", &home.join("copy"));
    for part in ["archive", "export"] {
        let rows = read_archive(&home.join("copy").join(part)).expect("the readers are there");
        assert_rows(&rows, &rows_of(&sent));
    }
    let shown = format!("{}{}{}", agent.output(), agent.status(), done.stdout);
    assert!(
        !shown.contains("PLANTED") && !shown.contains(AZURE_KEY),
        "{shown}"
    );
}

#[test]
fn an_archive_in_s3_is_complete() {
    let Some(python) = need_peer("analysis/bin/python3") else {
        return;
    };
    let Some(program) = need_peer("moto/bin/moto_server") else {
        return;
    };
    let mut command = Command::new(program);
    command.args(["-H", "127.0.0.1", "-p", "0"]);
    let mut server = ChildProcess::start(&mut command);
    let url = server_url(&mut server, "Running on ");
    let environment = [
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "PLANTED-SECRET"),
        ("AWS_REGION", "us-east-1"),
    ];
    check(&python, "s3", "s3://samples", &url, &environment);
}

#[test]
fn an_archive_in_azure_is_complete() {
    let Some(python) = need_peer("analysis/bin/python3") else {
        return;
    };
    if need("node").is_none() {
        return;
    }
    let Some(program) = need_peer("azurite/node_modules/.bin/azurite-blob") else {
        return;
    };
    let home = TempDir::new();
    let mut command = Command::new(program);
    command
        .args([
            "--blobPort",
            "0",
            "--inMemoryPersistence",
            "--disableTelemetry",
        ])
        .args(["--skipApiVersionCheck"])
        .env("AZURITE_ACCOUNTS", format!("pegeltest:{AZURE_KEY}"))
        .current_dir(home.path());
    let mut server = ChildProcess::start(&mut command);
    let url = server_url(&mut server, "successfully listens on ");
    let environment = [
        ("AZURE_STORAGE_ACCOUNT", "pegeltest"),
        ("AZURE_STORAGE_KEY", AZURE_KEY),
    ];
    check(
        &python,
        "azure",
        "azblob://pegeltest/samples",
        &url,
        &environment,
    );
}

#[test]
fn an_archive_in_google_storage_is_complete() {
    let Some(python) = need_peer("analysis/bin/python3") else {
        return;
    };
    let Some(program) = need_peer("gcp-storage-emulator/bin/python3") else {
        return;
    };
    let home = TempDir::new();
    let mut command = Command::new(program);
    command
        .args(["-c", GOOGLE_EMULATOR])
        .current_dir(home.path());
    let mut server = ChildProcess::start(&mut command);
    let url = server_url(&mut server, "at ");
    // An emulator needs no credentials.
    check(&python, "gs", "gs://samples", &url, &[]);
}
