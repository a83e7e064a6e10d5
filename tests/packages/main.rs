//! The packages of `cargo xtask dist`, made from the tested binary: what they contain, that they
//! install and can be removed, and that the agent runs from each of them.

mod archive;
mod built_packages;
mod deb;
mod overlay;
mod recipes;
mod reproducible;
mod rpm;
mod sbom;
mod wheel;

use pegel_testkit::PegelBinary;

const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));
