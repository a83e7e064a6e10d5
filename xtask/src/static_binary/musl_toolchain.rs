//! Finds or prepares what a build for musl requires: the standard library for the target, a linker,
//! and the unwinder.
//!
//! Where rustup has no standard library for musl, it is compiled together with the program
//! (`-Zbuild-std`) from its sources: those of rustup's component `rust-src`, else those of Debian's
//! package of the same version. Debian's `musl-tools` have the C library and the linker.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{built, output};
use crate::dist::reproducible;
use crate::step;

const FIND_OBJECT: &str = include_str!("find_object.c");
/// Of Debian's package musl-dev.
const MUSL_FILES: [&str; 5] = ["crt1.o", "rcrt1.o", "crti.o", "crtn.o", "libc.a"];
const GCC_FILES: [&str; 4] = ["crtbegin.o", "crtbeginS.o", "crtend.o", "crtendS.o"];

/// Downloads the sources of Rust $2 from Debian to $1. Backports keep the versions of some months.
const FETCH_SOURCES: &str = r#"
set -e
mkdir -p "$1"
trap 'rm -f "$1/packages" "$1/package.deb"' EXIT
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | sed -n '1s/^http:/https:/;1p')
for suite in sid trixie-backports; do
    curl -sfL "$mirror/dists/$suite/main/binary-$(dpkg --print-architecture)/Packages.xz" | xz -dc |
        awk -v RS= -v version="$2" '/^Package: rust-src\n/ && index($0, "\nVersion: " version "+")' > "$1/packages"
    if [ -s "$1/packages" ]; then break; fi
done
test -s "$1/packages"
curl -sfL -o "$1/package.deb" "$mirror/$(sed -n 's/^Filename: //p' "$1/packages" | tail -n 1)"
echo "$(sed -n 's/^SHA256: //p' "$1/packages" | tail -n 1)  $1/package.deb" | sha256sum -c --quiet
dpkg-deb -x "$1/package.deb" "$1"
"#;

/// What a build for musl uses.
#[derive(Debug)]
pub(super) struct MuslToolchain {
    target: String,
    /// The folder `library` of Rust's sources; `None` if the standard library is installed.
    sources: Option<PathBuf>,
    sysroot: PathBuf,
}

impl MuslToolchain {
    /// Returns the toolchain for a target, if this machine has one or can get it.
    pub(super) fn find(target: &str) -> Result<Option<MuslToolchain>> {
        let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
        let sysroot = PathBuf::from(sysroot.trim());
        let of = |sources: Option<PathBuf>| MuslToolchain {
            target: target.to_owned(),
            sources,
            sysroot: sysroot.clone(),
        };
        if sysroot
            .join("lib/rustlib")
            .join(target)
            .join("lib")
            .exists()
        {
            return Ok(Some(of(None)));
        }
        if Command::new("musl-gcc").arg("--version").output().is_err() {
            return Ok(None);
        }
        let installed = sysroot.join("lib/rustlib/src/rust/library");
        if installed.join("Cargo.lock").exists() {
            return Ok(Some(of(Some(installed))));
        }
        Ok(fetch_sources()?.map(|sources| of(Some(sources))))
    }

    pub(super) fn description(&self) -> String {
        match &self.sources {
            None => format!("{}, as rustup installed it", self.target),
            Some(path) => format!(
                "{}, standard library compiled from {}",
                self.target,
                path.display()
            ),
        }
    }

    /// Builds the program and returns its path.
    pub(super) fn build(&self) -> Result<PathBuf> {
        let mut cargo = step::cargo_command();
        cargo
            .args(["build", "--locked", "--release", "--package", "pegel"])
            .args(["--target", &self.target]);
        reproducible::apply(&mut cargo, &[]);
        // For the C code of dependencies.
        let variable = format!("CC_{}", self.target.replace('-', "_"));
        cargo.env(variable, "musl-gcc");
        if let Some(sources) = &self.sources {
            let dir = step::root().join("target/static");
            cargo
                .arg("-Zbuild-std=std,panic_unwind")
                // The compiler is a stable one, whose sources these are.
                .env("RUSTC_BOOTSTRAP", "1")
                .env("RUSTC", self.write_compiler(&dir, sources)?);
        }
        let status = cargo.status().context("cannot start cargo")?;
        ensure!(status.success(), "the build for {} failed", self.target);
        Ok(built(&self.target))
    }

    /// Writes a compiler whose sysroot has the sources, where cargo searches for them, and the
    /// files that the compiler links for musl. The installed toolchain is not changed.
    fn write_compiler(&self, dir: &Path, sources: &Path) -> Result<PathBuf> {
        let shadow = dir.join("sysroot");
        if shadow.exists() {
            fs::remove_dir_all(&shadow).context("cannot remove the old sysroot")?;
        }
        let rustlib = shadow.join("lib/rustlib");
        fs::create_dir_all(rustlib.join("src/rust")).context("cannot write the sysroot")?;
        link_all(&self.sysroot.join("lib"), &shadow.join("lib"))?;
        link_all(&self.sysroot.join("lib/rustlib"), &rustlib)?;
        symlink(sources, rustlib.join("src/rust/library"))?;
        write_linked_files(&rustlib.join(&self.target).join("lib/self-contained"))?;
        let compiler = dir.join("rustc");
        let text = format!(
            "#!/bin/sh\nexec '{}/bin/rustc' --sysroot '{}' \"$@\"\n",
            self.sysroot.display(),
            shadow.display()
        );
        fs::write(&compiler, text)?;
        fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755))?;
        Ok(compiler)
    }
}

/// Links everything in a folder of the toolchain, except the folders that [`MuslToolchain`] writes.
fn link_all(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if name != "rustlib" && name != "src" {
            symlink(&path, to.join(name))?;
        }
    }
    Ok(())
}

/// Downloads the sources of this compiler's standard library. Returns `None` if there are none.
fn fetch_sources() -> Result<Option<PathBuf>> {
    let version = output(Command::new("rustc").arg("--version"))?;
    let version = version.split(' ').nth(1).unwrap_or_default().to_owned();
    let dir = step::root().join("target/static/rust-src");
    let library = dir.join(format!("usr/src/rustc-{version}/library"));
    if !library.join("Cargo.lock").exists() {
        let status = Command::new("sh")
            .args(["-c", FETCH_SOURCES, "fetch"])
            .arg(&dir)
            .arg(&version)
            .status();
        if !status.is_ok_and(|status| status.success()) {
            println!("static-binary: no sources of Rust {version} in Debian");
            return Ok(None);
        }
    }
    Ok(Some(library))
}

/// Writes the files that the compiler links by itself: C library and start files of musl, those of
/// GCC, and the unwinder. `libunwind.a` is GCC's, and the function that it expects of glibc.
fn write_linked_files(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let copy = |from: &str, to: &str| -> Result<()> {
        let path = output(Command::new("musl-gcc").arg(format!("-print-file-name={from}")))?;
        let copied = fs::copy(path.trim(), dir.join(to));
        copied.with_context(|| format!("cannot copy {from}"))?;
        Ok(())
    };
    for name in MUSL_FILES {
        let path = musl_dir()?.join(name);
        let copied = fs::copy(&path, dir.join(name));
        copied.with_context(|| format!("cannot copy {}", path.display()))?;
    }
    for name in GCC_FILES {
        copy(name, name)?;
    }
    copy("libgcc_eh.a", "libunwind.a")?;
    fs::write(dir.join("find_object.c"), FIND_OBJECT)?;
    let compile = ["-O2", "-fPIC", "-Wall", "-Werror", "-c", "find_object.c"];
    output(Command::new("musl-gcc").args(compile).current_dir(dir))?;
    let add = ["rcs", "libunwind.a", "find_object.o"];
    output(Command::new("ar").args(add).current_dir(dir))?;
    Ok(())
}

/// Returns the folder of musl's libraries: `/usr/lib/ARCH-linux-musl` in Debian.
fn musl_dir() -> Result<PathBuf> {
    let dir = format!("/usr/lib/{}-linux-musl", std::env::consts::ARCH);
    let dir = PathBuf::from(dir);
    ensure!(dir.exists(), "{} does not exist", dir.display());
    Ok(dir)
}
