//! Installs the C library where compilers and pkg-config look for it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::step;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `--prefix P`, and `--debug` for a library that was not optimised.
pub fn run(args: &[&str]) -> Result<()> {
    let (prefix, is_debug) = match args {
        ["--prefix", prefix] => (prefix, false),
        ["--prefix", prefix, "--debug"] => (prefix, true),
        _ => bail!("expected: install --prefix DIR [--debug]"),
    };
    let prefix = std::path::absolute(prefix).context("the prefix is not a path")?;
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
    let described = lib.join("pkgconfig/pegel.pc");
    make_parent(&described)?;
    fs::write(&described, pkg_config(&prefix)).with_context(|| described.display().to_string())?;
    println!("libpegel {VERSION} is in {}", prefix.display());
    Ok(())
}

fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => step::root().join("target"),
    }
}

/// What the static library needs beside itself is what Rust's standard library asks for.
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
    // A program may have the old one mapped: it keeps it, and finds the new one at its next start.
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    fs::rename(&fresh, to).with_context(|| to.display().to_string())
}

fn link(to: &str, at: &Path) -> Result<()> {
    let _ = fs::remove_file(at);
    symlink(to, at).with_context(|| at.display().to_string())
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).with_context(|| parent.display().to_string())
}
