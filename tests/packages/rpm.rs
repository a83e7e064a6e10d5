//! The package for Fedora, Enterprise Linux and SUSE.

use std::process::Command;

use pegel_testkit::{TempDir, need};

use crate::built_packages::{check_program, packages, succeed};
use crate::overlay::run_on_a_copy;

#[test]
fn the_rpm_is_intact_and_states_what_it_requires() {
    let Some(packages) = packages() else { return };
    let rpm = packages.find(".rpm");
    // Checks the digests of header and payload; the database of packages is not used.
    let checked = succeed(
        Command::new("rpm")
            .args(["--checksig", "--nosignature"])
            .arg(&rpm),
    );
    assert!(checked.contains("digests OK"), "{checked}");
    let query = |args: &[&str]| succeed(Command::new("rpm").arg("-qp").args(args).arg(&rpm));
    let files = query(&[
        "--qf",
        "[%{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILENAMES}\n]",
    ]);
    for line in [
        "-rwxr-xr-x root:root /usr/bin/pegel",
        "drwxr-x--- root:pegel /etc/pegel",
        "-rw-r----- root:pegel /etc/pegel/pegel.yaml",
        "-rw-r--r-- root:root /usr/lib/systemd/system/pegel.service",
        "-rw-r--r-- root:root /usr/share/zsh/site-functions/_pegel",
        "-rw-r--r-- root:root /usr/share/man/man5/pegel.yaml.5.gz",
        "-rw-r--r-- root:root /usr/share/licenses/pegel/LICENSE-MIT",
    ] {
        assert!(files.lines().any(|found| found == line), "{line}\n{files}");
    }
    let config = query(&["--configfiles"]);
    assert_eq!(config, "/etc/logrotate.d/pegel\n/etc/pegel/pegel.yaml\n");
    // A node with an older C library must refuse the package, not the program at its start.
    let requires = query(&["--requires"]);
    assert!(
        requires.contains("libc.so.6(GLIBC_2.34)(64bit)"),
        "{requires}"
    );
}

#[test]
fn the_rpm_is_unpacked_by_any_user_and_runs() {
    let Some(packages) = packages() else { return };
    if need("rpm2cpio").is_none() || need("cpio").is_none() {
        return;
    }
    let root = TempDir::new();
    let script = "rpm2cpio \"$1\" | cpio --extract --quiet --make-directories";
    let mut unpack = Command::new("sh");
    unpack
        .args(["-c", script, "unpack"])
        .arg(packages.find(".rpm"));
    succeed(unpack.current_dir(root.path()));
    check_program(&root.join("usr/bin/pegel"));
}

#[test]
fn the_rpm_installs_upgrades_and_is_removed() {
    let Some(packages) = packages() else { return };
    let Some(output) = run_on_a_copy(&packages.dir, include_str!("rpm.sh")) else {
        return;
    };
    let marked: Vec<&str> = output
        .lines()
        .filter_map(|line| line.strip_prefix("> "))
        .collect();
    let expected = [
        "/etc/pegel root:pegel 750",
        "/etc/pegel/pegel.yaml root:pegel 640",
        "/run/pegel/lanes pegel:pegel 1733",
        "upgraded: changed configuration kept",
        "removed",
    ];
    assert_eq!(marked, expected, "{output}");
}
