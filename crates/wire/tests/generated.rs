//! The checked-in code of the protobuf messages is that of their definitions.

use std::fs;
use std::path::Path;

use pegel_testkit::{TempDir, assert_golden};

const DEFINITIONS: [&str; 3] = [
    "prometheus.proto",
    "write_v2.proto",
    "opentelemetry/proto/collector/metrics/v1/metrics_service.proto",
];
const PACKAGES: [&str; 6] = [
    "prometheus",
    "io.prometheus.write.v2",
    "opentelemetry.proto.collector.metrics.v1",
    "opentelemetry.proto.common.v1",
    "opentelemetry.proto.metrics.v1",
    "opentelemetry.proto.resource.v1",
];

#[test]
fn the_code_of_the_messages_is_that_of_their_definitions() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = protox::compile(DEFINITIONS, [here.join("proto")]).expect("valid definitions");
    let out = TempDir::new();
    let mut config = prost_build::Config::new();
    config.out_dir(out.path());
    config.disable_comments([".opentelemetry"]);
    config.compile_fds(compiled).expect("generated");
    for package in PACKAGES {
        let file = format!("{package}.rs");
        let code = fs::read_to_string(out.join(&file)).expect("generated");
        assert_golden(here.join("generated").join(&file), &code);
    }
}
