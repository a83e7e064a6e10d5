//! Gives the shared library its name for the dynamic linker: programs ask for the major version.
#![allow(clippy::print_stdout)] // That is how a build script talks to cargo.

fn main() {
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpegel.so.{major}");
    println!("cargo::rerun-if-changed=build.rs");
}
