//! Checks the directory of lanes, the shared memory through which programs count.

use std::path::Path;

use pegel_machine::MachineFiles;

use super::finding::Finding;
use super::pluralize;

/// The space for a thousand lanes of 64 KiB, which a node full of programs needs.
const SHM_FREE_BYTES_MIN: u64 = 64 << 20;

#[derive(Debug, Clone, Default)]
pub(super) struct LaneDirProbe {
    /// `$PEGEL_LANES`, and whether it is a directory.
    pub env_dir: Option<(String, bool)>,
    /// Whether the system service provides a directory for all users.
    pub has_system_dir: bool,
    pub shm: Option<SharedMemory>,
    /// The container runtime, if this is a container.
    pub container: Option<&'static str>,
}

/// `/dev/shm`.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedMemory {
    pub size: u64,
    pub free: u64,
    pub is_tmpfs: bool,
}

/// Files that exist only in containers, by runtime.
const CONTAINER_MARKERS: [(&str, &str); 3] = [
    ("/.dockerenv", "Docker"),
    ("/run/.containerenv", "Podman"),
    ("/.singularity.d", "Apptainer"),
];

pub(crate) fn probe(machine: &MachineFiles, env_dir: Option<String>) -> LaneDirProbe {
    let mut mounts = machine.mounts().into_iter();
    let is_tmpfs = mounts.any(|mount| mount.mountpoint == b"/dev/shm" && mount.fs_type == b"tmpfs");
    // A fixture tree has no /dev/shm of its own.
    let volume = machine
        .is_local()
        .then(|| rustix::fs::statvfs("/dev/shm").ok())
        .flatten();
    let shm = volume.map(|found| SharedMemory {
        size: found.f_blocks * found.f_frsize,
        free: found.f_bavail * found.f_frsize,
        is_tmpfs,
    });
    let container = CONTAINER_MARKERS
        .iter()
        .find(|(path, _)| machine.exists(path))
        .map(|(_, name)| *name);
    LaneDirProbe {
        env_dir: env_dir.map(|path| (path.clone(), Path::new(&path).is_dir())),
        has_system_dir: machine.exists("/run/pegel/lanes"),
        shm,
        container,
    }
}

pub(super) fn evaluate(facts: &LaneDirProbe) -> Vec<Finding> {
    if let Some((path, is_dir)) = &facts.env_dir {
        return vec![if *is_dir {
            Finding::ok("lanes", format!("lanes are in {path} ($PEGEL_LANES)"))
        } else {
            Finding::broken(
                "lanes",
                format!("$PEGEL_LANES is {path}, which is not a directory"),
                format!("mkdir -p {path}, or bind-mount it into the container"),
            )
        }];
    }
    let mut findings = vec![shared_memory(facts.shm.as_ref(), facts.has_system_dir)];
    if let Some(container) = facts.container.filter(|_| !facts.has_system_dir) {
        findings.push(Finding::better(
            "container",
            format!("the /dev/shm of {container} is private: an agent outside cannot see programs in this container"),
            "start the container with -v /run/pegel/lanes:/run/pegel/lanes",
        ));
    }
    findings
}

fn shared_memory(shm: Option<&SharedMemory>, has_system_dir: bool) -> Finding {
    if has_system_dir {
        return Finding::ok("lanes", "lanes are in /run/pegel/lanes");
    }
    let Some(shm) = shm else {
        return Finding::better(
            "lanes",
            "no /dev/shm: programs cannot share counters with the agent",
            "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm, or set $PEGEL_LANES",
        );
    };
    let (size, free) = (
        pluralize::format_bytes(shm.size),
        pluralize::format_bytes(shm.free),
    );
    if !shm.is_tmpfs {
        return Finding::better(
            "lanes",
            "/dev/shm is not a tmpfs: counting would write to a disk",
            "set $PEGEL_LANES to a directory on a tmpfs",
        );
    }
    if shm.free >= SHM_FREE_BYTES_MIN {
        Finding::ok("lanes", format!("/dev/shm has {free} of {size} free"))
    } else {
        Finding::better(
            "lanes",
            format!("/dev/shm has only {free} of {size} free"),
            "sudo mount -o remount,size=1G /dev/shm (in Docker: --shm-size=1g)",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::FindingState;

    fn shm(free: u64, is_tmpfs: bool) -> Option<SharedMemory> {
        Some(SharedMemory {
            size: 1 << 30,
            free,
            is_tmpfs,
        })
    }

    #[test]
    fn shared_memory_requires_a_tmpfs_with_free_space() {
        for (shm, has_system_dir, state) in [
            (shm(1 << 30, true), false, FindingState::Ok),
            (shm(1 << 20, true), false, FindingState::Better),
            (shm(1 << 30, false), false, FindingState::Better),
            (None, false, FindingState::Better),
            (None, true, FindingState::Ok),
            (shm(1 << 20, true), true, FindingState::Ok),
        ] {
            let facts = LaneDirProbe {
                shm,
                has_system_dir,
                ..LaneDirProbe::default()
            };
            let findings = evaluate(&facts);
            assert_eq!((findings.len(), findings[0].state), (1, state), "{facts:?}");
        }
    }

    #[test]
    fn a_container_requires_a_bind_mount() {
        let mut facts = LaneDirProbe {
            shm: shm(1 << 30, true),
            container: Some("Docker"),
            ..LaneDirProbe::default()
        };
        let findings = evaluate(&facts);
        assert_eq!(findings[1].state, FindingState::Better);
        assert!(
            findings[1]
                .fix
                .as_deref()
                .expect("a fix")
                .contains("/run/pegel/lanes")
        );
        facts.has_system_dir = true;
        assert_eq!(evaluate(&facts).len(), 1);
        facts.env_dir = Some(("/lanes".to_owned(), true));
        assert_eq!(evaluate(&facts)[0].state, FindingState::Ok);
        facts.env_dir = Some(("/lanes".to_owned(), false));
        assert_eq!(evaluate(&facts)[0].state, FindingState::Broken);
    }
}
