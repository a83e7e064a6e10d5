//! The cgroups of a process, from `/proc/PID/cgroup`, and their directories.

use crate::MachineFiles;

/// Where cgroups are mounted.
pub const CGROUP_MOUNT: &str = "sys/fs/cgroup";
/// Maximum depth of the hierarchy that is followed.
const DEPTH_MAX: usize = 64;

/// Limits from here on mean no limit: cgroup v1 reports it as a number near 2^63.
pub const CGROUP_UNLIMITED_BYTES: u64 = 1 << 60;

/// Parses lines such as `4:memory:/slurm/uid_1000/job_7` into controllers, separated by commas,
/// and path. Cgroup v2 has no controllers: `0::/path`. Other lines are skipped.
pub fn cgroup_lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    })
}

/// Returns the directory of the hierarchy of cgroups v2: `sys/fs/cgroup`, or in the directory
/// `unified` next to the hierarchies of v1; `None` if it is not mounted.
pub fn cgroup_v2_mount(machine: &MachineFiles) -> Option<String> {
    let mounts = [CGROUP_MOUNT.to_owned(), format!("{CGROUP_MOUNT}/unified")];
    let is_v2 = |mount: &String| machine.exists(format!("{mount}/cgroup.controllers"));
    mounts.into_iter().find(is_v2)
}

/// Returns the directory of a controller of cgroups v1 and the process's path in it, from the
/// lines of `/proc/PID/cgroup`.
pub fn cgroup_v1_mount(
    machine: &MachineFiles,
    lines: &[(&str, &str)],
    controller: &str,
) -> Option<(String, String)> {
    let has = |(names, _): &&(&str, &str)| names.split(',').any(|name| name == controller);
    let (names, path) = lines.iter().find(has)?;
    // Several controllers may share a hierarchy, mounted under each name or under the joined
    // names.
    let each = format!("{CGROUP_MOUNT}/{controller}");
    let mount = if machine.exists(&each) {
        each
    } else {
        format!("{CGROUP_MOUNT}/{names}")
    };
    Some((mount, (*path).to_owned()))
}

/// Returns the directories from a cgroup up to the root of its hierarchy, `mount`.
pub fn cgroup_ancestors(mount: &str, path: &str) -> Vec<String> {
    let mut folders = Vec::new();
    let mut path = path.trim_end_matches('/');
    while folders.len() < DEPTH_MAX {
        folders.push(format!("{mount}{path}"));
        match path.rfind('/') {
            Some(slash) => path = &path[..slash],
            None => break,
        }
    }
    folders
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
