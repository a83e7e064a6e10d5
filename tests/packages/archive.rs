//! The archive and the checksums.

use std::path::Path;
use std::process::Command;

use pegel_testkit::TempDir;

use crate::built_packages::{check_program, packages, succeed};

#[test]
fn the_archive_has_its_checksum_and_runs() {
    let Some(packages) = packages() else { return };
    let mut verify = Command::new("sha256sum");
    verify.args(["--check", "--strict", "SHA256SUMS"]);
    let verified = succeed(verify.current_dir(&packages.dir));
    // deb, rpm, wheel, archive, sources and SBOM.
    assert_eq!(verified.lines().count(), 6, "{verified}");
    let archive = packages.find("-linux-gnu.tar.xz");
    let home = TempDir::new();
    let mut unpack = Command::new("tar");
    unpack.arg("--extract").arg("--file").arg(&archive);
    succeed(unpack.current_dir(home.path()));
    let name = archive
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let root = home.join(name.trim_end_matches(".tar.xz"));
    for file in [
        "README.md",
        "docs/remote-write.md",
        "docs/start/site.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "THIRD-PARTY-LICENSES.txt",
        "pegel.cdx.json",
        "config/pegel.yaml",
        "packaging/systemd/pegel.service",
        "packaging/systemd/pegel.sysusers.conf",
        "packaging/systemd/drop-ins/rapl.conf",
        "share/man/man1/pegel.1.gz",
        "share/bash-completion/completions/pegel",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
    check_program(&root.join("bin/pegel"));
    check_notices(&root.join("THIRD-PARTY-LICENSES.txt"));
}

/// Every listed library has a licence, and the texts are there.
fn check_notices(path: &Path) {
    let notices = std::fs::read_to_string(path).expect("a text");
    let (list, texts) = notices.split_once("\n======== text 1\n").expect("texts");
    assert!(list.contains("\nrustls 0."), "{list}");
    assert!(texts.contains("Permission is hereby granted"));
    assert!(texts.contains("Apache License"));
    // Our own crates are under the licences beside it.
    assert!(!list.contains("\npegel"), "{list}");
}
