//! Where programs leave their counters: memory that they and the agent share.

use std::path::Path;

use super::finding::Finding;
use super::host::{HostFiles, parse_mountinfo};
use super::pluralize;

/// Below this, a node full of programs runs out of room: a thousand lanes of 64 KiB.
const SHM_FREE_BYTES_MIN: u64 = 64 << 20;

#[derive(Debug, Clone, Default)]
pub struct LaneDirProbe {
    /// `$PEGEL_LANES`, and whether it is a directory.
    pub env_dir: Option<(String, bool)>,
    /// Whether the system's daemon has a place for everyone.
    pub has_system_dir: bool,
    pub shm: Option<SharedMemory>,
    /// What makes us think that this is a container.
    pub container: Option<&'static str>,
}

/// `/dev/shm`.
#[derive(Debug, Clone, Default)]
pub struct SharedMemory {
    pub size: u64,
    pub free: u64,
    pub is_tmpfs: bool,
}

/// Files that only containers have.
const CONTAINER_MARKERS: [(&str, &str); 3] = [
    ("/.dockerenv", "Docker"),
    ("/run/.containerenv", "Podman"),
    ("/.singularity.d", "Apptainer"),
];

pub fn probe(machine: &HostFiles, named: Option<String>) -> LaneDirProbe {
    let mountinfo = machine.read("/proc/self/mountinfo").unwrap_or_default();
    let mounts = parse_mountinfo(&mountinfo);
    let is_memory = mounts
        .iter()
        .any(|mount| mount.mountpoint == "/dev/shm" && mount.fs_type == "tmpfs");
    // A machine made of files has none of its own.
    let volume = machine
        .is_local()
        .then(|| rustix::fs::statvfs("/dev/shm").ok())
        .flatten();
    let shm = volume.map(|found| SharedMemory {
        size: found.f_blocks * found.f_frsize,
        free: found.f_bavail * found.f_frsize,
        is_tmpfs: is_memory,
    });
    let container = CONTAINER_MARKERS
        .iter()
        .find(|(path, _)| machine.exists(path))
        .map(|(_, name)| *name);
    LaneDirProbe {
        env_dir: named.map(|path| (path.clone(), Path::new(&path).is_dir())),
        has_system_dir: machine.exists("/run/pegel/lanes"),
        shm,
        container,
    }
}

pub fn evaluate(facts: &LaneDirProbe) -> Vec<Finding> {
    if let Some((path, is_there)) = &facts.env_dir {
        return vec![match is_there {
            true => Finding::ok(
                "lanes",
                format!("programs' counters go to {path} ($PEGEL_LANES)"),
            ),
            false => Finding::broken(
                "lanes",
                format!("$PEGEL_LANES names {path}, which is no directory"),
                format!("mkdir -p {path}, or bind-mount it into the container"),
            ),
        }];
    }
    let mut findings = vec![shared_memory(facts.shm.as_ref(), facts.has_system_dir)];
    if let Some(container) = facts.container.filter(|_| !facts.has_system_dir) {
        findings.push(Finding::better(
            "container",
            format!("inside {container} /dev/shm is its own: an agent outside does not see programs here"),
            "start the container with -v /run/pegel/lanes:/run/pegel/lanes",
        ));
    }
    findings
}

fn shared_memory(shm: Option<&SharedMemory>, has_system_place: bool) -> Finding {
    if has_system_place {
        return Finding::ok("lanes", "programs' counters go to /run/pegel/lanes");
    }
    let Some(shm) = shm else {
        return Finding::better(
            "lanes",
            "no /dev/shm: programs' own counters cannot be shared",
            "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm, or set $PEGEL_LANES",
        );
    };
    let (size, free) = (pluralize::bytes(shm.size), pluralize::bytes(shm.free));
    if !shm.is_tmpfs {
        return Finding::better(
            "lanes",
            "/dev/shm is not in memory (tmpfs): counting would write to a disk",
            "set $PEGEL_LANES to a directory on a tmpfs",
        );
    }
    match shm.free >= SHM_FREE_BYTES_MIN {
        true => Finding::ok("lanes", format!("/dev/shm has {free} of {size} free")),
        false => Finding::better(
            "lanes",
            format!("/dev/shm has only {free} of {size} free"),
            "sudo mount -o remount,size=1G /dev/shm (in Docker: --shm-size=1g)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::FindingState;

    fn shm(free: u64, is_memory: bool) -> Option<SharedMemory> {
        Some(SharedMemory {
            size: 1 << 30,
            free,
            is_tmpfs: is_memory,
        })
    }

    #[test]
    fn shared_memory_needs_to_be_there_in_memory_and_with_room() {
        for (shm, has_system_place, state) in [
            (shm(1 << 30, true), false, FindingState::Ok),
            (shm(1 << 20, true), false, FindingState::Better),
            (shm(1 << 30, false), false, FindingState::Better),
            (None, false, FindingState::Better),
            (None, true, FindingState::Ok),
            (shm(1 << 20, true), true, FindingState::Ok),
        ] {
            let facts = LaneDirProbe {
                shm,
                has_system_dir: has_system_place,
                ..LaneDirProbe::default()
            };
            let findings = evaluate(&facts);
            assert_eq!((findings.len(), findings[0].state), (1, state), "{facts:?}");
        }
    }

    #[test]
    fn a_container_is_told_how_to_be_seen() {
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
