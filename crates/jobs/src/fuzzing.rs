//! Entry points for the fuzz targets.

use crate::cgroup_paths::{HierarchyVersion, directory_kind, job_of_path, uid_of_path};
use crate::cpu_ranges::CpuRanges;
use crate::job_file::{parse_file, to_line};

/// Reads a file of jobs; what was read is written and read again without a difference.
pub fn job_file(bytes: &[u8]) {
    let contents = parse_file(bytes);
    assert!(contents.whole_bytes <= bytes.len());
    let mut lines = Vec::new();
    for (number, job) in &contents.jobs {
        lines.extend(to_line(*number, job));
    }
    let again = parse_file(&lines);
    assert_eq!(again.malformed, 0);
    assert_eq!(again.jobs.len(), contents.jobs.len());
}

/// Reads the path of a cgroup and a list of CPUs.
pub fn cgroup_path(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for version in [HierarchyVersion::V1, HierarchyVersion::V2] {
        directory_kind(version, &text);
    }
    job_of_path(&text);
    uid_of_path(&text);
    if let Some(cpus) = CpuRanges::parse(&text) {
        assert_eq!(CpuRanges::parse(&cpus.to_string()).as_ref(), Some(&cpus));
    }
}

/// Returns inputs to start from.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let job = crate::JobInterval::new("17", "slurm", crate::JobOrigin::Cgroup, 1_700_000_000_000);
    let mut torn = to_line(2, &job);
    torn.truncate(40);
    vec![
        ("job", to_line(1, &job)),
        ("torn", [to_line(1, &job), torn].concat()),
    ]
}
