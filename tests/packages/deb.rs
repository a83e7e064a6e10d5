//! The Debian package.

use std::collections::BTreeMap;
use std::process::Command;

use pegel_testkit::{REPOSITORY, TempDir, need};

use crate::built_packages::{check_program, packages, succeed};
use crate::overlay::run_on_a_copy;

/// Returns `mode owner/group` of every path in the package.
fn contents(listing: &str) -> BTreeMap<String, String> {
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let path = words[5].trim_start_matches('.').to_owned();
        (path, format!("{} {}", words[0], words[1]))
    };
    listing.lines().map(entry).collect()
}

#[test]
fn the_deb_has_unit_manual_completions_and_licences() {
    let Some(packages) = packages() else { return };
    let deb = packages.find(".deb");
    let listing = succeed(Command::new("dpkg-deb").arg("--contents").arg(&deb));
    let contents = contents(&listing);
    for (path, mode) in [
        ("/usr/bin/pegel", "-rwxr-xr-x"),
        ("/etc/pegel/", "drwxr-x---"),
        ("/etc/pegel/pegel.yaml", "-rw-r-----"),
        ("/etc/logrotate.d/pegel", "-rw-r--r--"),
        ("/usr/lib/systemd/system/pegel.service", "-rw-r--r--"),
        ("/usr/lib/systemd/user/pegel.service", "-rw-r--r--"),
        ("/usr/lib/sysusers.d/pegel.conf", "-rw-r--r--"),
        ("/usr/lib/tmpfiles.d/pegel.conf", "-rw-r--r--"),
        ("/usr/share/man/man1/pegel.1.gz", "-rw-r--r--"),
        ("/usr/share/man/man1/pegel-agent.1.gz", "-rw-r--r--"),
        ("/usr/share/man/man5/pegel.yaml.5.gz", "-rw-r--r--"),
        ("/usr/share/bash-completion/completions/pegel", "-rw-r--r--"),
        ("/usr/share/zsh/vendor-completions/_pegel", "-rw-r--r--"),
        (
            "/usr/share/fish/vendor_completions.d/pegel.fish",
            "-rw-r--r--",
        ),
        ("/usr/share/doc/pegel/copyright", "-rw-r--r--"),
        ("/usr/share/doc/pegel/docs/remote-write.md", "-rw-r--r--"),
        (
            "/usr/share/licenses/pegel/THIRD-PARTY-LICENSES.txt",
            "-rw-r--r--",
        ),
    ] {
        let expected = format!("{mode} root/root");
        assert_eq!(contents.get(path), Some(&expected), "{path}\n{listing}");
    }
    // A drop-in that is active by default would grant privileges without a decision of the
    // administrator.
    assert!(!listing.contains("pegel.service.d"), "{listing}");
}

#[test]
fn the_deb_is_unpacked_by_any_user_and_runs() {
    let Some(packages) = packages() else { return };
    let root = TempDir::new();
    let deb = packages.find(".deb");
    succeed(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(&deb)
            .arg(root.path()),
    );
    check_program(&root.join("usr/bin/pegel"));
    let mut check = Command::new(root.join("usr/bin/pegel"));
    check
        .args(["config", "check"])
        .arg(root.join("etc/pegel/pegel.yaml"));
    succeed(&mut check);
}

#[test]
fn the_deb_installs_runs_as_its_user_upgrades_and_is_purged() {
    let Some(packages) = packages() else { return };
    if need("apt-get").is_none() || need("systemd-analyze").is_none() || need("setpriv").is_none() {
        return;
    }
    let Some(output) = run_on_a_copy(&packages.dir, include_str!("deb.sh")) else {
        return;
    };
    let expected = format!(
        "user pegel:pegel\n\
         /etc/pegel root:pegel 750\n\
         /etc/pegel/pegel.yaml root:pegel 640\n\
         /run/pegel/lanes pegel:pegel 1733\n\
         enabled\n\
         running {}\n\
         node_load1\n\
         upgraded: changed configuration kept\n\
         removed: configuration and samples kept\n\
         purged\n",
        env!("CARGO_PKG_VERSION")
    );
    let marked: String = output
        .lines()
        .filter_map(|line| line.strip_prefix("> "))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(marked, expected, "{output}");
}

#[test]
fn shellcheck_accepts_the_maintainer_scripts() {
    let Some(shellcheck) = need("shellcheck") else {
        return;
    };
    let scripts = ["postinst", "postrm", "prerm"].map(|name| format!("packaging/deb/{name}"));
    succeed(
        Command::new(shellcheck)
            .args(scripts)
            .current_dir(REPOSITORY),
    );
}
