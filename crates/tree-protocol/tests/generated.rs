//! The checked-in code of the protobuf messages is that of their definitions.

use std::fs;
use std::path::Path;

use pegel_testkit::{TempDir, assert_golden};

const DEFINITIONS: [&str; 2] = ["tree.proto", "select.proto"];
const CODE: &str = "pegel.tree.v1.rs";

#[test]
fn the_code_of_the_messages_is_that_of_their_definitions() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = protox::compile(DEFINITIONS, [here.join("proto")]).expect("valid definitions");
    let out = TempDir::new();
    let mut config = prost_build::Config::new();
    config.out_dir(out.path());
    config.bytes(["."]);
    config.compile_fds(compiled).expect("generated");
    let code = fs::read_to_string(out.join(CODE)).expect("generated");
    assert_golden(here.join("generated").join(CODE), &code);
}
