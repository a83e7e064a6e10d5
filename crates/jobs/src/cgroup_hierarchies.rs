//! The cgroup hierarchies of a machine.

use std::path::{Path, PathBuf};

use crate::cgroup_paths::HierarchyVersion;

/// The controllers of cgroups v1 whose hierarchies have directories of jobs.
const V1_CONTROLLERS: [&str; 5] = ["memory", "cpuset", "cpuacct", "freezer", "devices"];
/// A hierarchy is a bit of a mask.
pub(crate) const HIERARCHIES_MAX: usize = 8;

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupHierarchy {
    pub version: HierarchyVersion,
    /// The controllers of cgroups v1; empty for v2.
    pub controllers: Vec<&'static str>,
    pub root: PathBuf,
}

/// Finds the hierarchies below `sys/fs/cgroup`, in an order that does not change.
pub(crate) fn find_hierarchies(mount: &Path) -> Vec<CgroupHierarchy> {
    let mut found: Vec<CgroupHierarchy> = Vec::new();
    for root in [mount.to_owned(), mount.join("unified")] {
        if root.join("cgroup.controllers").exists() {
            found.push(CgroupHierarchy {
                version: HierarchyVersion::V2,
                controllers: Vec::new(),
                root,
            });
        }
    }
    for controller in V1_CONTROLLERS {
        // Often a symbolic link: cpuacct is mounted with cpu.
        let Ok(root) = mount.join(controller).canonicalize() else {
            continue;
        };
        match found.iter_mut().find(|known| known.root == root) {
            Some(known) => known.controllers.push(controller),
            None if root.is_dir() => found.push(CgroupHierarchy {
                version: HierarchyVersion::V1,
                controllers: vec![controller],
                root,
            }),
            None => {}
        }
    }
    found.truncate(HIERARCHIES_MAX);
    found
}

/// Returns the directory of a cgroup below the root of a hierarchy.
pub(crate) fn group_directory(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found_once() {
        let dir = TempDir::new();
        assert_eq!(find_hierarchies(dir.path()), []);
        for name in ["unified", "memory", "cpu,cpuacct", "cpuset"] {
            fs::create_dir(dir.join(name)).expect("made");
        }
        fs::write(dir.join("unified/cgroup.controllers"), "").expect("written");
        std::os::unix::fs::symlink("cpu,cpuacct", dir.join("cpuacct")).expect("linked");
        let found = find_hierarchies(dir.path());
        let names: Vec<_> = { found.iter() }
            .map(|one| {
                (
                    one.version,
                    one.root.file_name().expect("a name").to_owned(),
                )
            })
            .collect();
        let v1 = |name: &str| (HierarchyVersion::V1, name.into());
        let v2 = (HierarchyVersion::V2, "unified".into());
        assert_eq!(names, [v2, v1("memory"), v1("cpuset"), v1("cpu,cpuacct")]);
    }
}
