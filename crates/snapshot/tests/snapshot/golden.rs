//! Snapshots of fixture trees, compared with `tests/golden/snapshot/`. `PEGEL_BLESS=1` rewrites the
//! golden files.

use pegel_snapshot::Timestamp;
use pegel_testkit::assert_golden;

use crate::support::{fixture, options, repository};

fn compare(machine: &str) {
    let environment = [
        ("OMP_NUM_THREADS", "8"),
        ("PATH", "/usr/bin:/bin"),
        ("PEGEL_TOKEN", "PLANTED"),
    ];
    let snapshot =
        options(&fixture(machine), &environment).read_machine(Timestamp(1_794_775_476_520), None);
    let golden = repository().join("tests/golden/snapshot");
    assert_golden(golden.join(format!("{machine}.json")), &snapshot.json());
    assert_golden(golden.join(format!("{machine}.md")), &snapshot.markdown());
    assert!(!snapshot.json().contains("PLANTED"), "{}", snapshot.json());
    assert!(!snapshot.yaml().contains("PLANTED"));
}

#[test]
fn the_basic_node() {
    compare("basic");
}

#[test]
fn a_recorded_node_with_16_processors() {
    compare("h200");
}

#[test]
fn an_azure_batch_node() {
    compare("azure");
}

#[test]
fn an_amazon_instance() {
    compare("aws");
}

#[test]
fn a_google_instance_with_a_gpu() {
    compare("google");
}

#[test]
fn a_cray_with_amd_gpus_and_slingshot() {
    compare("cray");
}
