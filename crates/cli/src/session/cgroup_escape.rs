//! Moves this process out of the cgroup of the task that started it. Batch systems end a task by
//! killing its cgroup; an agent that records several tasks must not be in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the cgroup that the agent moves to.
const CGROUP_NAME: &str = "pegel";

/// The result of an attempt to leave the cgroup of the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CgroupPlace {
    /// It was in no cgroup of a task, or it moved.
    Outside,
    /// It is still in this cgroup: the permissions allow no other.
    Inside(String),
}

/// Moves this process to a cgroup that no task owns, where the permissions allow it: below the root
/// (as root), or below the user's own service manager.
pub(super) fn leave_task_cgroup(cgroup_root: &Path) -> CgroupPlace {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut stuck = None;
    for line in own.lines() {
        let Some((hierarchy, path)) = parse_line(line) else {
            continue;
        };
        if path == "/" || path.ends_with(&format!("/{CGROUP_NAME}")) {
            continue;
        }
        let base = match hierarchy {
            "" if cgroup_root.join("cgroup.controllers").exists() => cgroup_root.to_owned(),
            "" => cgroup_root.join("unified"),
            controllers => cgroup_root.join(controllers),
        };
        if base.is_dir()
            && !candidates(&base, path)
                .iter()
                .any(|dir| move_to(dir).is_ok())
        {
            stuck = Some(path.to_owned());
        }
    }
    match stuck {
        None => CgroupPlace::Outside,
        Some(path) => CgroupPlace::Inside(path),
    }
}

/// Parses `ID:CONTROLLERS:PATH`; version 2 has no controllers.
fn parse_line(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    Some((
        controllers.strip_prefix("name=").unwrap_or(controllers),
        path,
    ))
}

/// Returns the cgroups to move to, the best first.
fn candidates(base: &Path, path: &str) -> Vec<PathBuf> {
    let mut candidates = vec![base.join(CGROUP_NAME), base.to_owned()];
    // Below `user@UID.service` the user may create cgroups.
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is_manager = |part: &&str| part.starts_with("user@") && part.ends_with(".service");
    if let Some(at) = parts.iter().position(is_manager) {
        let manager = parts[..=at].iter().collect::<PathBuf>();
        candidates.insert(0, base.join(manager).join(CGROUP_NAME));
    }
    candidates
}

fn move_to(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::write(dir.join("cgroup.procs"), "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_of_users_are_left_for_their_service_manager() {
        assert_eq!(parse_line("0::/a/b"), Some(("", "/a/b")));
        assert_eq!(parse_line("1:name=systemd:/x"), Some(("systemd", "/x")));
        assert_eq!(parse_line("5:cpu,cpuacct:/x"), Some(("cpu,cpuacct", "/x")));
        assert_eq!(parse_line("nonsense"), None);
        let path = "/user.slice/user-7.slice/user@7.service/app.slice/run-1.scope";
        let found = candidates(Path::new("/c"), path);
        let manager = Path::new("/c/user.slice/user-7.slice/user@7.service/pegel");
        assert_eq!(found[0], manager);
        let found = candidates(Path::new("/c"), "/slurm/job_7");
        assert_eq!(found, [Path::new("/c/pegel"), Path::new("/c")]);
    }
}
