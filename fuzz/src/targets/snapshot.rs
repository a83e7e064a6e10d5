//! The inputs of the snapshot: firmware tables, the log of a batch system, responses of cloud
//! metadata services, and any file of a whole machine.

use std::fs;
use std::path::PathBuf;

use pegel_snapshot::{
    OnceInputs, ProcessEnvironment, SnapshotOptions, SnapshotSettings, Timestamp, fuzzing,
};
use pegel_testkit::TempDir;

use super::Target;
use super::node::fixtures;
use crate::memory::bounded;

pub(super) const SMBIOS: Target = Target {
    name: "smbios",
    run: |input| {
        let count = bounded(16 << 20, || fuzzing::smbios(input));
        assert!(
            count * 23 <= input.len(),
            "{count} modules in {} bytes",
            input.len()
        );
    },
    dictionary: &[
        b"\x11\x5c\x11\x00",
        b"\x10\x0f\x11\x00",
        b"\0\0",
        b"\xff\x7f",
        b"DIMM 0\0",
    ],
    seeds: || {
        vec![
            read("cray/sys/firmware/dmi/tables/DMI"),
            vec![17, 4, 0, 0, 0, 0],
        ]
    },
};

pub(super) const AZURE_BATCH: Target = Target {
    name: "azure_batch",
    run: |input| {
        let found = bounded(64 << 20, || fuzzing::azure_batch(input));
        let count = |key: &str| found[key].as_u64().expect("a number");
        assert!(count("unknown_lines") <= count("lines"), "{found}");
        for key in ["pool", "vm", "log_begins"] {
            is_plain(found[key].as_str().unwrap_or_default());
        }
    },
    dictionary: &[
        "■".as_bytes(),
        b"\"PoolName\":\"",
        b"\"TVMName\":\"",
        b"\"TVMAllocationTime\":\"133485408001234567\"",
        b"'TVMBootTime': '133485408601234567'",
        b"20240101T000000.123Z",
    ],
    seeds: || vec![read("azure/mnt/batch/sys/logs/agent-debug.log")],
};

pub(super) const METADATA: Target = Target {
    name: "metadata",
    run: |input| {
        for text in bounded(64 << 20, || fuzzing::metadata(input)) {
            is_plain(&text);
        }
    },
    dictionary: &[
        b"{\"compute\":{",
        b"\"tagsList\":[{\"name\":\"PoolName\",\"value\":\"",
        b"\"Events\":[{\"EventType\":\"",
        b"\"action\":\"terminate\"",
        b"\"noticeTime\":\"",
        b"[{\"State\":\"active\",\"Code\":\"",
    ],
    seeds: || {
        let names = [
            "azure-instance",
            "azure-events",
            "aws-document",
            "aws-maintenance",
        ];
        let documents = names
            .iter()
            .map(|name| read(&format!("metadata/{name}.json")));
        documents.chain([b"TRUE".to_vec()]).collect()
    },
};

pub(super) const SNAPSHOT: Target = Target {
    name: "snapshot",
    run: whole_machine,
    dictionary: &[
        b"\n", b"0x", b"max\n", b": ", b"K\n", b" - ", b"[none]", b"0-3,8\n",
    ],
    seeds: || {
        let seed = |file: &&str| {
            let text = read(&format!("cray/{file}"));
            [file.as_bytes(), b"\n", &text[..text.len().min(1_500)]].concat()
        };
        FILES.iter().map(seed).collect()
    },
};

/// One file of each kind that the snapshot reads.
const FILES: &[&str] = &[
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/cmdline",
    "proc/stat",
    "proc/self/mountinfo",
    "proc/self/cgroup",
    "etc/os-release",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu0/cache/index0/size",
    "sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list",
    "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
    "sys/devices/system/node/node0/meminfo",
    "sys/devices/system/node/node0/distance",
    "sys/bus/pci/devices/0000:c1:00.0/device",
    "sys/bus/pci/devices/0000:c1:00.0/mem_info_vram_total",
    "sys/class/dmi/id/product_name",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    "sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/memory.max",
    "sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/step_0/user/cpu.max",
];

thread_local! {
    /// A machine made of files, private to this thread.
    static ROOT: TempDir = TempDir::copy_of(fixtures().join("cray"));
}

fn read(path: &str) -> Vec<u8> {
    fs::read(fixtures().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Checks that a text is one line of readable length without control characters.
fn is_plain(text: &str) {
    assert!(!text.contains(char::is_control), "{text:?}");
    assert!(
        text.chars().count() <= 256,
        "{} characters",
        text.chars().count()
    );
}

/// The first line names a file, the rest is its content. Nothing panics, every output format is
/// produced, and the page is safe to print.
fn whole_machine(input: &[u8]) {
    let end = input
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(input.len());
    let common = |file: &&&str| {
        file.bytes()
            .zip(&input[..end])
            .take_while(|(a, b)| a == *b)
            .count()
    };
    let file = FILES.iter().max_by_key(common).expect("there are files");
    ROOT.with(|root| {
        let (path, good) = (root.join(file), read(&format!("cray/{file}")));
        fs::write(&path, input.get(end + 1..).unwrap_or_default()).expect("written");
        let subject = SnapshotOptions {
            root: root.path().to_owned(),
            node: "n1".to_owned(),
            version: "0".to_owned(),
            environment: ProcessEnvironment::default(),
            configuration: None,
            once_inputs: OnceInputs::default(),
            settings: SnapshotSettings {
                azure_batch_log: PathBuf::from("/absent"),
                cloud: false,
                ..SnapshotSettings::default()
            },
        };
        let (json, yaml, page) = bounded(64 << 20, || {
            let snapshot = subject.read_machine(Timestamp(0), None);
            (snapshot.json(), snapshot.yaml(), snapshot.markdown())
        });
        fs::write(&path, good).expect("written");
        assert!(json.len() > 100 && !yaml.is_empty());
        let is_obeyed = |c: char| c.is_control() && c != '\n';
        assert!(!page.contains(is_obeyed), "{page:?}");
    });
}
