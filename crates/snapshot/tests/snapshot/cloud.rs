//! What is asked of a cloud, and what passes.

use std::fs;
use std::time::{Duration, Instant};

use pegel_snapshot::{CloudInfo, CloudProvider, Timestamp};
use pegel_testkit::TempDir;

use crate::service::{FakeReply, FakeService};
use crate::support::{fixture, subject};

pub fn document(name: &str) -> String {
    fs::read_to_string(fixture("metadata").join(name)).expect("a document")
}

const AZURE: Option<(&str, &str)> = Some(("metadata", "true"));
const GOOGLE: Option<(&str, &str)> = Some(("metadata-flavor", "Google"));
const AWS: Option<(&str, &str)> = Some(("x-aws-ec2-metadata-token", "PLANTED-token"));

pub fn azure(service: &FakeService) {
    let versions = FakeReply::ok(r#"{"apiVersions":["2021-12-13","2023-07-01"]}"#);
    service.set("GET /metadata/versions", AZURE, versions);
    let instance = FakeReply::ok(document("azure-instance.json"));
    service.set(
        "GET /metadata/instance?api-version=2023-07-01",
        AZURE,
        instance,
    );
}

fn aws(service: &FakeService) {
    let ttl = Some(("x-aws-ec2-metadata-token-ttl-seconds", "21600"));
    service.set("PUT /latest/api/token", ttl, FakeReply::ok("PLANTED-token"));
    let path = "GET /latest/dynamic/instance-identity/document";
    service.set(path, AWS, FakeReply::ok(document("aws-document.json")));
    let meta = |path: &str, text: &str| {
        service.set(
            &format!("GET /latest/meta-data/{path}"),
            AWS,
            FakeReply::ok(text),
        )
    };
    meta("instance-life-cycle", "spot");
    meta("placement/availability-zone-id", "euc1-az2");
}

fn google(service: &FakeService) {
    let set = |path: &str, text: &str| {
        service.set(
            &format!("GET /computeMetadata/v1/{path}"),
            GOOGLE,
            FakeReply::ok(text),
        );
    };
    set("instance/id", "1234567890123456789\n");
    set("instance/name", "gpu-1");
    set(
        "instance/machine-type",
        "projects/7/machineTypes/g2-standard-4",
    );
    set("instance/zone", "projects/7/zones/europe-west4-a");
    set("instance/cpu-platform", "Intel Cascade Lake");
    set(
        "instance/scheduling/?recursive=true",
        r#"{"preemptible":"TRUE","automaticRestart":"FALSE"}"#,
    );
}

/// Asks as `pegel snapshot` does.
fn take(machine: &str, service: &FakeService) -> CloudInfo {
    let subject = subject(&fixture(machine), &[("PEGEL_IMDS_URL", &service.url)]);
    let snapshot = subject.take(Timestamp(0));
    let text = [snapshot.json(), snapshot.yaml(), snapshot.markdown()].concat();
    assert!(!text.contains("PLANTED"), "{text}");
    snapshot.cloud.expect("a cloud")
}

fn facts(cloud: &CloudInfo) -> Vec<String> {
    cloud
        .facts
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

#[test]
fn azure_tells_what_is_on_the_list() {
    let service = FakeService::start();
    azure(&service);
    let cloud = take("azure", &service);
    assert_eq!(
        (cloud.provider, cloud.known_by, &cloud.trouble),
        (Some(CloudProvider::Azure), "firmware", &None)
    );
    assert_eq!(
        facts(&cloud),
        [
            "batch_account=account",
            "batch_pool=pool-hb",
            "encryption_at_host=false",
            "environment=AzurePublicCloud",
            "eviction_policy=Deallocate",
            "fault_domain=0",
            "id=02aab8a4-74ef-476e-8182-f6d2ba4166a6",
            "image_offer=ubuntu-hpc",
            "image_publisher=microsoft-dsvm",
            "image_sku=2204",
            "image_version=latest",
            "name=hb-pool_3",
            "os=Linux",
            "os_disk_caching=ReadWrite",
            "os_disk_gb=30",
            "os_disk_type=Premium_LRS",
            "os_disk_write_accelerator=false",
            "priority=Spot",
            "private_ip=10.0.0.7",
            "region=westeurope",
            "resource_disk_mb=491520",
            "resource_group=hpc",
            "resource_id=/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/hpc/providers/Microsoft.Compute/virtualMachines/hb-pool_3",
            "scale_set=hb-pool",
            "secure_boot=true",
            "subscription=00000000-0000-0000-0000-000000000001",
            "type=Standard_HB120rs_v3",
            "update_domain=1",
            "virtual_tpm=true",
            "zone=2",
        ]
    );
}

#[test]
fn amazon_tells_what_is_on_the_list() {
    let service = FakeService::start();
    aws(&service);
    let cloud = take("aws", &service);
    assert_eq!(
        (cloud.provider, &cloud.trouble),
        (Some(CloudProvider::Aws), &None)
    );
    assert_eq!(
        facts(&cloud),
        [
            "account=123456789012",
            "architecture=x86_64",
            "id=i-0123456789abcdef0",
            "image=ami-0123456789abcdef0",
            "life_cycle=spot",
            "private_ip=10.0.1.7",
            "region=eu-central-1",
            "started=2024-01-01T00:01:00Z",
            "type=m7i.large",
            "zone=eu-central-1a",
            "zone_id=euc1-az2",
        ]
    );
    let tokens = service
        .requests()
        .iter()
        .filter(|path| path.starts_with("PUT"))
        .count();
    assert_eq!(tokens, 1, "one token serves all questions");
}

#[test]
fn google_tells_what_is_on_the_list() {
    let service = FakeService::start();
    google(&service);
    let cloud = take("google", &service);
    assert_eq!(
        (cloud.provider, &cloud.trouble),
        (Some(CloudProvider::Google), &None)
    );
    assert_eq!(
        facts(&cloud),
        [
            "automatic_restart=FALSE",
            "cpu_platform=Intel Cascade Lake",
            "id=1234567890123456789",
            "name=gpu-1",
            "preemptible=TRUE",
            "type=g2-standard-4",
            "zone=europe-west4-a",
        ]
    );
    let asked = service.requests().join("\n");
    assert!(
        !asked.contains("attributes") && !asked.contains("token"),
        "{asked}"
    );
}

#[test]
fn an_address_alone_is_enough_to_find_out_which_cloud_it_is() {
    for (make, expected) in [
        (azure as fn(&FakeService), CloudProvider::Azure),
        (aws, CloudProvider::Aws),
        (google, CloudProvider::Google),
    ] {
        let service = FakeService::start();
        make(&service);
        let cloud = take("basic", &service);
        assert_eq!(
            (cloud.provider, cloud.known_by),
            (Some(expected), "address")
        );
    }
}

#[test]
fn nobody_is_asked_without_a_reason() {
    let none = |machine: &str, environment: &[(&str, &str)]| {
        subject(&fixture(machine), environment)
            .take(Timestamp(0))
            .cloud
    };
    assert_eq!(none("basic", &[]), None);
    // A machine made of files has no service of its own, whatever its firmware says.
    assert_eq!(none("azure", &[]), None);
    let service = FakeService::start();
    azure(&service);
    assert_eq!(none("azure", &[("PEGEL_IMDS_URL", "none")]), None);
    let mut subject = subject(&fixture("azure"), &[("PEGEL_IMDS_URL", &service.url)]);
    subject.cloud = false;
    assert_eq!(subject.take(Timestamp(0)).cloud, None);
    assert_eq!(service.requests(), [""; 0]);
}

#[test]
fn a_service_that_does_not_answer_well_is_said_and_waited_for_shortly() {
    let trouble = |url: &str| {
        let started = Instant::now();
        let root = TempDir::new();
        let cloud = subject(root.path(), &[("PEGEL_IMDS_URL", url)])
            .take(Timestamp(0))
            .cloud;
        assert!(started.elapsed() < Duration::from_secs(20));
        cloud.expect("asked").trouble.expect("trouble")
    };
    let service = FakeService::start();
    assert!(
        trouble(&service.url).contains("404"),
        "no cloud is like this"
    );
    for path in [
        "/metadata/versions",
        "/metadata/instance?api-version=2021-12-13",
    ] {
        let large = "x".repeat(300 << 10);
        service.set(&format!("GET {path}"), None, FakeReply::ok(large));
    }
    assert!(trouble(&service.url).contains("404"));
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        format!("http://{}", listener.local_addr().expect("bound"))
    };
    assert!(trouble(&closed).starts_with("cannot connect to 127.0.0.1"));
    assert!(
        trouble("https://u:PLANTED@x").ends_with("is not an address such as http://127.0.0.1:8080")
    );
}
