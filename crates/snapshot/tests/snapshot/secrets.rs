//! Secrets planted in every source must not appear in any output.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pegel_config::ConfigValue;
use pegel_snapshot::{RedactedConfig, Timestamp};
use pegel_testkit::{FakeService, OtherUser, TempDir};

use crate::cloud::azure;
use crate::support::{fixture, options};

#[test]
fn planted_secrets_appear_in_no_output() {
    let root = TempDir::copy_of(fixture("azure"));
    let service = FakeService::start();
    azure(&service);
    let environment = [
        ("PEGEL_IMDS_URL", service.url.as_str()),
        ("AZ_BATCH_AUTHENTICATION_TOKEN", "PLANTED"),
        ("AZ_BATCH_JOB_ID", "job-1"),
        ("AWS_SECRET_ACCESS_KEY", "PLANTED"),
        ("SLURM_JWT", "PLANTED"),
        ("PEGEL_TOKEN", "PLANTED"),
        ("LD_PRELOAD", "/x?password=PLANTED"),
        ("https_proxy", "http://u:PLANTED@p"),
    ];
    let mut options = options(root.path(), &environment);
    let scalar = |text: &str| ConfigValue::Scalar(text.to_owned());
    let values = ConfigValue::map([
        ("auth_key".to_owned(), scalar("PLANTED")),
        ("to".to_owned(), scalar("https://x/c?sig=PLANTED")),
    ]);
    options.configuration = Some(RedactedConfig::new(
        Some(Path::new("/etc/pegel.yaml")),
        &values,
    ));
    let snapshot = options.take(Timestamp(0));
    assert!(
        snapshot
            .cloud
            .as_ref()
            .is_some_and(|cloud| cloud.trouble.is_none())
    );
    let texts = [
        snapshot.json(),
        snapshot.yaml(),
        snapshot.markdown(),
        format!("{snapshot:?} {options:?}"),
    ];
    for text in texts {
        assert!(!text.contains("PLANTED"), "{text}");
    }
    // The secrets are present in the sources.
    for file in [
        "proc/cmdline",
        "proc/self/mountinfo",
        "mnt/batch/sys/logs/agent-debug.log",
        "sys/block/sda/device/serial",
    ] {
        let text = fs::read_to_string(root.join(file)).expect("a file");
        assert!(text.contains("PLANTED"), "{file}");
    }
}

#[test]
fn files_that_only_root_may_read_are_listed() {
    let root = TempDir::copy_of(fixture("cray"));
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    };
    set_mode(root.path(), 0o755);
    set_mode(&root.join("sys/firmware/dmi/tables/DMI"), 0o000);
    let options = options(root.path(), &[]);
    let read = || options.read_machine(Timestamp(0), None);
    // Permissions do not apply to root.
    let snapshot = if rustix::process::geteuid().is_root() {
        OtherUser.run_as(read)
    } else {
        read()
    };
    assert_eq!(snapshot.memory.dimms.len(), 0);
    assert_eq!(snapshot.cpu.threads, 4, "other parts are complete");
    let unreadable: Vec<&Path> = snapshot.unreadable.iter().map(|one| &*one.path).collect();
    assert_eq!(unreadable, [Path::new("/sys/firmware/dmi/tables/DMI")]);
    let page = snapshot.markdown();
    assert!(
        page.contains("| /sys/firmware/dmi/tables/DMI | permission denied |"),
        "{page}"
    );
}
