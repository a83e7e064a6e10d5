//! Writes the package for Fedora, Enterprise Linux and SUSE with `rpmbuild`.

use std::fmt::Write;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::package_files::{FileRole, PackageFile, PackageFiles, entries};
use super::release::{DESCRIPTION, LICENCE, Release, SUMMARY};
use super::tool;
use crate::step;

pub(super) fn write(release: &Release, files: &PackageFiles) -> Result<()> {
    let top = release.work.join("rpm");
    let staged = top.join("staged");
    files.stage(&staged, release, |file| Some(file.path.clone()))?;
    let scripts = step::root().join("packaging/rpm/scriptlets.spec");
    let scripts = String::from_utf8(tool::read(&scripts)?).context("scriptlets are not UTF-8")?;
    let spec = top.join("pegel.spec");
    let install = format!("cp -a '{}/.' '%{{buildroot}}'", staged.display());
    tool::write(&spec, spec_file(release, files, &install, &scripts))?;
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild
        .args(["-bb", "--quiet", "--target"])
        .arg(format!("{}-linux", release.arch))
        .env("SOURCE_DATE_EPOCH", release.epoch.to_string())
        // Configuration files of the user could change the package.
        .env("HOME", &top);
    for (name, value) in macros(release, &top.display().to_string()) {
        rpmbuild.arg("--define").arg(format!("{name} {value}"));
    }
    tool::output(rpmbuild.arg(&spec))?;
    let built = entries(&top.join("RPMS").join(release.arch))?;
    ensure!(
        built.len() == 1,
        "rpmbuild wrote {built:?}, expected one package"
    );
    let name = format!("pegel-{}-1.{}.rpm", release.version, release.arch);
    std::fs::rename(&built[0], release.out.join(&name))
        .with_context(|| format!("cannot write {name}"))
}

/// Macros that make a package reproducible, and that leave the files as they are.
fn macros(release: &Release, top: &str) -> Vec<(&'static str, String)> {
    vec![
        ("_topdir", top.to_owned()),
        ("_dbpath", format!("{top}/db")),
        ("_tmppath", top.to_owned()),
        ("_buildhost", "localhost".to_owned()),
        (
            "_binary_payload",
            format!("w{}.xzdio", release.compression.max(1)),
        ),
        ("_build_id_links", "none".to_owned()),
        ("use_source_date_epoch_as_buildtime", "1".to_owned()),
        ("clamp_mtime_to_source_date_epoch", "1".to_owned()),
        ("debug_package", "%{nil}".to_owned()),
        ("__os_install_post", "%{nil}".to_owned()),
    ]
}

fn spec_file(release: &Release, files: &PackageFiles, install: &str, scripts: &str) -> String {
    let list: String = files.files.iter().map(file_line).collect();
    format!(
        "Name: pegel\n\
         Version: {}\n\
         Release: 1\n\
         Summary: {SUMMARY}\n\
         License: {LICENCE}\n\
         Requires(pre): /usr/sbin/groupadd, /usr/sbin/useradd\n\
         \n\
         %description\n{}\n\
         \n\
         %install\n{install}\n\
         \n\
         {scripts}\n\
         %files\n\
         %dir %attr(0750, root, pegel) /etc/pegel\n\
         %dir %attr(0755, root, root) /usr/share/pegel\n\
         %dir %attr(0755, root, root) /usr/share/pegel/drop-ins\n\
         %dir %attr(0755, root, root) /usr/share/doc/pegel\n\
         %dir %attr(0755, root, root) /usr/share/doc/pegel/docs\n\
         %dir %attr(0755, root, root) /usr/share/doc/pegel/docs/start\n\
         %dir %attr(0755, root, root) /usr/share/licenses/pegel\n\
         {list}",
        release.version,
        DESCRIPTION.join("\n")
    )
}

fn file_line(file: &PackageFile) -> String {
    let role = match file.role {
        FileRole::Plain => "",
        FileRole::Configuration => "%config(noreplace) ",
        FileRole::Documentation => "%doc ",
        FileRole::Licence => "%license ",
    };
    // Restricted files are readable by the group of the service.
    let group = if file.mode & 0o004 == 0 {
        "pegel"
    } else {
        "root"
    };
    let mut line = String::new();
    let _ = writeln!(
        line,
        "{role}%attr({:04o}, root, {group}) /{}",
        file.mode, file.path
    );
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_the_service_may_read_restricted_files() {
        let file = |mode, role| PackageFile {
            path: "etc/x".to_owned(),
            role,
            mode,
            contents: Vec::new(),
        };
        assert_eq!(
            file_line(&file(0o640, FileRole::Configuration)),
            "%config(noreplace) %attr(0640, root, pegel) /etc/x\n"
        );
        assert_eq!(
            file_line(&file(0o755, FileRole::Plain)),
            "%attr(0755, root, root) /etc/x\n"
        );
    }
}
