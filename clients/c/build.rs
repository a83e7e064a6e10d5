//! Sets the soname of the shared library: programs depend on the major version.
#![allow(clippy::print_stdout)] // Build scripts pass instructions to cargo on stdout.

fn main() {
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpegel.so.{major}");
    println!("cargo::rerun-if-changed=build.rs");
}
