//! Requests to the metadata services of clouds, and the values extracted from their responses.

use std::fs;
use std::time::{Duration, Instant};

use pegel_snapshot::{CloudInfo, CloudProvider, Timestamp};
use pegel_testkit::{FakeReply, FakeService, TempDir};

use crate::support::{fixture, options};

pub(crate) fn document(name: &str) -> String {
    fs::read_to_string(fixture("metadata").join(name)).expect("a document")
}

const AZURE: Option<(&str, &str)> = Some(("metadata", "true"));
const GOOGLE: Option<(&str, &str)> = Some(("metadata-flavor", "Google"));
const AWS: Option<(&str, &str)> = Some(("x-aws-ec2-metadata-token", "PLANTED-token"));

pub(crate) fn azure(service: &FakeService) {
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

/// Takes a snapshot as `pegel snapshot` does.
fn take(machine: &str, service: &FakeService) -> CloudInfo {
    let options = options(&fixture(machine), &[("PEGEL_IMDS_URL", &service.url)]);
    let snapshot = options.take(Timestamp(0));
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
fn only_listed_azure_values_are_extracted() {
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
fn only_listed_amazon_values_are_extracted() {
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
    assert_eq!(tokens, 1, "one token serves all requests");
}

#[test]
fn only_listed_google_values_are_extracted() {
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
    let requests = service.requests().join("\n");
    assert!(
        !requests.contains("attributes") && !requests.contains("token"),
        "{requests}"
    );
}

#[test]
fn the_provider_is_detected_from_the_address_alone() {
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
fn no_service_is_queried_unless_configured() {
    let none = |machine: &str, environment: &[(&str, &str)]| {
        options(&fixture(machine), environment)
            .take(Timestamp(0))
            .cloud
    };
    assert_eq!(none("basic", &[]), None);
    // A fixture tree has no service of its own, even if its firmware names a cloud.
    assert_eq!(none("azure", &[]), None);
    let service = FakeService::start();
    azure(&service);
    assert_eq!(none("azure", &[("PEGEL_IMDS_URL", "none")]), None);
    let mut options = options(&fixture("azure"), &[("PEGEL_IMDS_URL", &service.url)]);
    options.settings.cloud = false;
    assert_eq!(options.take(Timestamp(0)).cloud, None);
    assert_eq!(service.requests(), [""; 0]);
}

#[test]
fn failures_of_the_service_are_reported_within_a_bounded_time() {
    let trouble = |url: &str| {
        let started = Instant::now();
        let root = TempDir::new();
        let cloud = options(root.path(), &[("PEGEL_IMDS_URL", url)])
            .take(Timestamp(0))
            .cloud;
        assert!(started.elapsed() < Duration::from_secs(20));
        cloud.expect("a cloud").trouble.expect("an error")
    };
    let service = FakeService::start();
    assert!(trouble(&service.url).contains("404"), "no provider matches");
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
    assert!(
        trouble(&closed).starts_with("cannot connect to the metadata service at 127.0.0.1"),
        "{}",
        trouble(&closed)
    );
    assert_eq!(
        trouble("https://u:PLANTED@x"),
        "invalid metadata service address \"https://x\"; expected http://IP[:PORT][/PREFIX], \
         such as http://127.0.0.1:8080"
    );
}
