//! The cgroups of a process, from `/proc/PID/cgroup`.

/// Limits from here on mean no limit: cgroup v1 reports it as a number near 2^63.
pub const CGROUP_UNLIMITED_BYTES: u64 = 1 << 60;

/// Parses lines such as `4:memory:/slurm/uid_1000/job_7` into controllers, separated by commas, and
/// path. Cgroup v2 has no controllers: `0::/path`. Other lines are skipped.
pub fn cgroup_lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_contain_colons() {
        let text = "4:cpu,cpuacct:/a:b\n0::/c\nrubbish\n";
        let lines: Vec<(&str, &str)> = cgroup_lines(text).collect();
        assert_eq!(lines, [("cpu,cpuacct", "/a:b"), ("", "/c")]);
    }
}
