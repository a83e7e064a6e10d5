//! The checked-in code of the protobuf messages is that of their definitions.

use std::fs;
use std::path::Path;

use pegel_testkit::{TempDir, assert_golden};

const DEFINITIONS: [&str; 3] = [
    "prometheus.proto",
    "write_v2.proto",
    "opentelemetry/proto/collector/metrics/v1/metrics_service.proto",
];
/// Packages and the files with their code.
const PACKAGES: [(&str, &str); 6] = [
    ("prometheus", "prometheus"),
    ("io.prometheus.write.v2", "io.prometheus.write.v2"),
    (
        "opentelemetry.proto.collector.metrics.v1",
        "otlp_metrics_service",
    ),
    ("opentelemetry.proto.common.v1", "otlp_attributes"),
    ("opentelemetry.proto.metrics.v1", "otlp_metrics"),
    ("opentelemetry.proto.resource.v1", "otlp_resource"),
];
/// References between packages, and what they are between the modules of one file.
const REFERENCES: [(&str, &str); 3] = [
    ("super::super::super::metrics::v1::", "super::metrics::"),
    ("super::super::common::v1::", "super::common::"),
    ("super::super::resource::v1::", "super::resource::"),
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
    for (package, file) in PACKAGES {
        let code = fs::read_to_string(out.join(format!("{package}.rs"))).expect("generated");
        let code = REFERENCES
            .iter()
            .fold(code, |code, (from, to)| code.replace(from, to));
        assert_golden(here.join("generated").join(format!("{file}.rs")), &code);
    }
}
