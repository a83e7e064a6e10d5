//! Example answers of `/api/v1/processes` for tests.

use serde_json::{Value, json};

use super::fixture::NOW;
use super::{ProcessList, TopGrouping};

/// A process: name, command line, user, CPUs, GiB of memory, MiB/s read and written, threads, GiB
/// of GPU memory, job.
type FixtureProcess = (
    &'static str,
    Option<&'static str>,
    &'static str,
    f64,
    f64,
    Option<[f64; 2]>,
    u32,
    Option<f64>,
    Option<&'static str>,
);

const JOB: Option<&str> = Some("481516");

const PROCESSES: [FixtureProcess; 16] = [
    (
        "lmp",
        Some("/opt/lammps/bin/lmp -in melt.in -sf gpu -pk gpu 4"),
        "ada",
        15.93,
        42.5,
        Some([0.0, 18.2]),
        33,
        Some(61.2),
        JOB,
    ),
    (
        "lmp",
        Some("/opt/lammps/bin/lmp -in melt.in -sf gpu -pk gpu 4"),
        "ada",
        15.71,
        41.9,
        Some([0.0, 0.4]),
        33,
        Some(60.8),
        JOB,
    ),
    (
        "python3",
        Some("python3 train.py --epochs 90 --data /scratch/imagenet"),
        "grace",
        7.42,
        28.3,
        Some([412.0, 0.1]),
        41,
        Some(22.4),
        Some("481522"),
    ),
    (
        "dataloader",
        None,
        "grace",
        3.05,
        3.1,
        Some([806.0, 0.0]),
        4,
        None,
        Some("481522"),
    ),
    (
        "rsync",
        Some("rsync -a results/ archive:/projects/melt"),
        "ada",
        0.71,
        0.01,
        Some([96.0, 0.0]),
        1,
        None,
        None,
    ),
    ("cc1plus", None, "linus", 0.99, 0.62, None, 1, None, None),
    (
        "ninja",
        Some("ninja -j 8"),
        "linus",
        0.02,
        0.02,
        None,
        1,
        None,
        None,
    ),
    ("lustre_flush", None, "root", 0.12, 0.0, None, 1, None, None),
    (
        "slurmstepd",
        Some("slurmstepd: [481516.0]"),
        "root",
        0.01,
        0.01,
        Some([0.0, 0.0]),
        5,
        None,
        JOB,
    ),
    (
        "pegel",
        Some("/usr/bin/pegel agent"),
        "pegel",
        0.01,
        0.03,
        Some([0.0, 0.02]),
        12,
        None,
        None,
    ),
    (
        "sshd",
        Some("sshd: grace [priv]"),
        "root",
        0.0,
        0.01,
        None,
        1,
        None,
        None,
    ),
    (
        "systemd",
        Some("/usr/lib/systemd/systemd --switched-root"),
        "root",
        0.0,
        0.01,
        Some([0.0, 0.0]),
        1,
        None,
        None,
    ),
    ("dbus-daemon", None, "dbus", 0.0, 0.005, None, 1, None, None),
    (
        "chronyd",
        Some("/usr/sbin/chronyd -F 2"),
        "chrony",
        0.0,
        0.004,
        None,
        1,
        None,
        None,
    ),
    (
        "munged",
        Some("/usr/sbin/munged"),
        "munge",
        0.0,
        0.003,
        None,
        4,
        None,
        None,
    ),
    (
        "evil",
        Some("evil \u{1b}[2J \u{202e}"),
        "mallory",
        0.0,
        0.001,
        None,
        1,
        None,
        None,
    ),
];

const MIB: f64 = (1u64 << 20) as f64;

/// Returns the processes, or their sums by user, cgroup or job.
pub(crate) fn processes(grouping: TopGrouping) -> ProcessList {
    let rows: Vec<Value> = match grouping {
        TopGrouping::Process => (1200..).zip(PROCESSES).map(process).collect(),
        TopGrouping::User => vec![
            group("user", "ada", 3, 32.35),
            group("user", "grace", 2, 10.47),
            group("user", "root", 187, 0.13),
        ],
        TopGrouping::Cgroup => vec![
            group(
                "cgroup",
                "/system.slice/slurmstepd.scope/job_481516",
                3,
                31.65,
            ),
            group("cgroup", "/system.slice/pegel.service", 1, 0.01),
        ],
        TopGrouping::Job => vec![group("job", "481516", 3, 31.65)],
    };
    let total = match grouping {
        TopGrouping::Process => 412,
        _ => rows.len(),
    };
    let answer = json!({"time": NOW * 1000.0, "interval": 5.0, "by": grouping.label(),
        "total": total, "rows": rows});
    ProcessList::parse(&answer).expect("valid")
}

fn process((pid, fixture): (u32, FixtureProcess)) -> Value {
    let (comm, command, user, cpu, memory, io, threads, gpu, job) = fixture;
    let cgroup = match job {
        Some(job) => format!("/system.slice/slurmstepd.scope/job_{job}"),
        None => "/user.slice".to_owned(),
    };
    json!({"pid": pid, "comm": comm, "user": user, "uid": 1000, "threads": threads,
        "state": if cpu > 0.5 { "R" } else { "S" }, "cpu": cpu, "memory": memory * 1024.0 * MIB,
        "read": io.map(|[read, _]| read * MIB), "write": io.map(|[_, written]| written * MIB),
        "gpu_memory": gpu.map(|gib| gib * 1024.0 * MIB), "cgroup": cgroup, "job": job,
        "started": NOW - 5e4, "command": command})
}

fn group(key: &str, name: &str, processes: u32, cpu: f64) -> Value {
    json!({key: name, "processes": processes, "threads": processes * 3, "cpu": cpu,
        "memory": cpu * 3e9, "read": cpu * 1e6, "write": 12_000, "gpu_memory": null})
}
