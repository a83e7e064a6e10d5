//! The same binary gives the same packages.

use std::fs;
use std::process::Command;

use pegel_testkit::TempDir;

use crate::built_packages::{dist, packages, succeed};

/// Packages are built again in another directory, with another time zone, language, umask and home.
#[test]
fn the_same_binary_gives_the_same_bytes() {
    let Some(packages) = packages() else { return };
    let home = TempDir::new();
    let out = home.join("again");
    let inner = dist(&out, "deb,rpm,wheel,archive,spack");
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$@\"", "again"]);
    command.arg(inner.get_program()).args(inner.get_args());
    command.arg("--client-wheel").arg(client_wheel());
    command
        .current_dir(inner.get_current_dir().expect("the repository"))
        .env("TZ", "Asia/Kathmandu")
        .env("LC_ALL", "C.UTF-8")
        .env(
            "SOURCE_DATE_EPOCH",
            epoch(&fs::read_to_string(packages.find(".cdx.json")).expect("a text")),
        );
    succeed(&mut command);
    let sums = |dir: &std::path::Path| fs::read_to_string(dir.join("SHA256SUMS")).expect("a text");
    assert_eq!(sums(&out), sums(&packages.dir));
}

/// Returns the wheel of the client that the packages were built with.
fn client_wheel() -> std::path::PathBuf {
    let dir = std::path::Path::new(pegel_testkit::REPOSITORY).join("target/python/dev/wheels");
    let mut entries = fs::read_dir(dir).expect("built before");
    entries.next().expect("a wheel").expect("an entry").path()
}

/// Returns the time of the packages: a commit during the tests would change it.
fn epoch(sbom: &str) -> String {
    let (_, rest) = sbom.split_once("\"timestamp\": \"").expect("a time");
    let time = rest.split('"').next().expect("a time");
    let printed = succeed(Command::new("date").args(["--utc", "+%s", "--date", time]));
    printed.trim().to_owned()
}
