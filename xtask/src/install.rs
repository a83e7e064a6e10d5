//! Installs the C library: shared and static library, header, pkg-config file; and the Fortran
//! module.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::step;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Accepts `--prefix DIR`, and `--debug` for an unoptimised build.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let (prefix, is_debug) = match args {
        ["--prefix", prefix] => (prefix, false),
        ["--prefix", prefix, "--debug"] => (prefix, true),
        _ => bail!("expected: install --prefix DIR [--debug]"),
    };
    let prefix = std::path::absolute(prefix).context("--prefix is not a valid path")?;
    let mut build = vec!["build", "--quiet", "--locked", "--package", "pegel-c"];
    if !is_debug {
        build.push("--release");
    }
    step::cargo(&build)?;
    let built = target_dir().join(if is_debug { "debug" } else { "release" });
    let lib = prefix.join("lib");
    let shared = format!("libpegel.so.{VERSION}");
    let major = VERSION.split('.').next().unwrap_or(VERSION);
    copy(&built.join("libpegel.so"), &lib.join(&shared))?;
    link(&shared, &lib.join(format!("libpegel.so.{major}")))?;
    link(&shared, &lib.join("libpegel.so"))?;
    copy(&built.join("libpegel.a"), &lib.join("libpegel.a"))?;
    let header = step::root().join("clients/c/include/pegel.h");
    copy(&header, &prefix.join("include/pegel.h"))?;
    let module = step::root().join("clients/fortran/pegel.f90");
    copy(&module, &prefix.join("share/pegel/pegel.f90"))?;
    let description = lib.join("pkgconfig/pegel.pc");
    make_parent(&description)?;
    fs::write(&description, pkg_config(&prefix))
        .with_context(|| format!("cannot write {}", description.display()))?;
    println!("installed libpegel {VERSION} in {}", prefix.display());
    Ok(())
}

fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => step::root().join("target"),
    }
}

/// Renders the pkg-config file. `Libs.private` lists what Rust's standard library requires for
/// static linking.
fn pkg_config(prefix: &Path) -> String {
    format!(
        "prefix={}\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: pegel\n\
         Description: Counters, gauges, timers and histograms for the Pegel agent on the node\n\
         Version: {VERSION}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lpegel\n\
         Libs.private: -lgcc_s -lpthread -ldl -lm\n",
        prefix.display()
    )
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    make_parent(to)?;
    // Replaced by rename: running programs that have the old library mapped keep it.
    let temporary = to.with_extension("new");
    fs::copy(from, &temporary)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::rename(&temporary, to).with_context(|| format!("cannot write {}", to.display()))
}

fn link(target: &str, path: &Path) -> Result<()> {
    let _ = fs::remove_file(path);
    symlink(target, path).with_context(|| format!("cannot create symlink {}", path.display()))
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))
}
