//! Makes builds independent of the machine: its paths are replaced by fixed ones.

use std::path::PathBuf;
use std::process::Command;

use crate::step;

/// Separates flags in `CARGO_ENCODED_RUSTFLAGS`, so that paths may contain spaces.
const SEPARATOR: &str = "\u{1f}";

/// Sets the environment of a cargo process: every path of the source tree and of cargo's registry
/// that the compilers would write into the program is remapped. `flags` are further flags of rustc.
pub(crate) fn apply(cargo: &mut Command, flags: &[&str]) {
    let remaps = [
        (step::root().to_owned(), "/usr/src/pegel"),
        (cargo_home(), "/usr/src/cargo"),
    ];
    let rust: Vec<String> = remaps
        .iter()
        .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
        .collect();
    let c: Vec<String> = remaps
        .iter()
        .map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()))
        .collect();
    let all: Vec<&str> = rust
        .iter()
        .map(String::as_str)
        .chain(flags.iter().copied())
        .collect();
    cargo
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", all.join(SEPARATOR))
        // The library that counts MPI calls is built by a second cargo, see crates/preload.
        .env("PEGEL_MPI_RUSTFLAGS", rust.join(SEPARATOR))
        .env("CFLAGS", c.join(" "))
        .env("CARGO_INCREMENTAL", "0");
}

fn cargo_home() -> PathBuf {
    if let Some(dir) = std::env::var_os("CARGO_HOME") {
        return PathBuf::from(dir);
    }
    let home = std::env::var_os("HOME").unwrap_or_default();
    PathBuf::from(home).join(".cargo")
}
