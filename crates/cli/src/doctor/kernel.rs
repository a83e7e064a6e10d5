//! Checks the features of the kernel: version, PSI, cgroups, sock_diag, BTF, tracing.

use std::io;

use pegel_machine::{CGROUP_UNLIMITED_BYTES, MachineFiles, cgroup_lines};

use super::finding::Finding;
use super::pluralize;

#[derive(Debug)]
pub(super) struct KernelProbe {
    pub release: Option<String>,
    pub pressure: FeatureAvailability,
    pub cgroup: CgroupSupport,
    pub sock_diag: Option<bool>,
    pub btf: bool,
    pub tracing: FeatureAvailability,
}

/// Availability of a kernel feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeatureAvailability {
    Available,
    /// Present, but disabled or not permitted for this user.
    Denied,
    Missing,
}

/// The cgroup version, and the memory limit of this process's cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CgroupSupport {
    /// `memory` is `None` without a memory controller.
    V2 {
        memory: Option<String>,
    },
    V1 {
        memory: Option<String>,
    },
    None,
}

pub(crate) fn probe(machine: &MachineFiles) -> KernelProbe {
    KernelProbe {
        release: machine.read_text("/proc/sys/kernel/osrelease").ok(),
        pressure: availability(
            machine
                .read_text("/proc/pressure/cpu")
                .map(|text| !text.is_empty()),
        ),
        cgroup: probe_cgroup(machine),
        sock_diag: machine
            .is_local()
            .then(pegel_agent::is_sock_diag_available)
            .flatten(),
        btf: machine.exists("/sys/kernel/btf/vmlinux"),
        tracing: availability(
            machine
                .read_names("/sys/kernel/tracing")
                .map(|entries| !entries.is_empty()),
        ),
    }
}

fn availability(found: io::Result<bool>) -> FeatureAvailability {
    match found {
        Ok(true) => FeatureAvailability::Available,
        Err(error) if error.kind() != io::ErrorKind::NotFound => FeatureAvailability::Denied,
        _ => FeatureAvailability::Missing,
    }
}

fn probe_cgroup(machine: &MachineFiles) -> CgroupSupport {
    let text = machine.text("/proc/self/cgroup").unwrap_or_default();
    let path_of = |controller: &str| {
        let mut lines = cgroup_lines(&text);
        let (_, path) = lines.find(|(names, _)| names.split(',').any(|name| name == controller))?;
        Some(path.trim_end_matches('/').to_owned())
    };
    if let Some(path) = path_of("memory") {
        // Inside a container the path is the host's; the container's own cgroup is mounted at the
        // top.
        let file = |path: &str| {
            machine.read_text(format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"))
        };
        return CgroupSupport::V1 {
            memory: file(&path).or_else(|_| file("")).ok(),
        };
    }
    if let Some(path) = path_of("").filter(|_| machine.exists("/sys/fs/cgroup/cgroup.controllers"))
    {
        let file = |path: &str| machine.read_text(format!("/sys/fs/cgroup{path}/memory.max"));
        return CgroupSupport::V2 {
            memory: file(&path).or_else(|_| file("")).ok(),
        };
    }
    CgroupSupport::None
}

pub(super) fn evaluate(facts: &KernelProbe) -> Vec<Finding> {
    let mut findings = vec![version(facts.release.as_deref()), pressure(facts.pressure)];
    findings.push(cgroup_finding(&facts.cgroup));
    findings.extend(facts.sock_diag.map(sock_diag));
    findings.push(if facts.btf {
        Finding::ok("bpf", "the kernel has type information (BTF)")
    } else {
        Finding::better(
            "bpf",
            "the kernel has no type information (BTF), which BPF programs need",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF",
        )
    });
    findings.push(match facts.tracing {
        FeatureAvailability::Available => Finding::ok("tracing", "/sys/kernel/tracing is readable"),
        FeatureAvailability::Denied => {
            Finding::ok("tracing", "/sys/kernel/tracing is readable by root only")
        }
        FeatureAvailability::Missing => Finding::better(
            "tracing",
            "/sys/kernel/tracing is not mounted: no tracepoints",
            "sudo mount -t tracefs tracefs /sys/kernel/tracing",
        ),
    });
    findings
}

fn version(release: Option<&str>) -> Finding {
    let Some(release) = release else {
        return Finding::better(
            "version",
            "unknown: /proc is not readable",
            "mount -t proc proc /proc",
        );
    };
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    let version = (
        numbers.next().and_then(Result::ok).unwrap_or(0),
        numbers.next().and_then(Result::ok).unwrap_or(0),
    );
    if version >= (5, 4) {
        Finding::ok("version", format!("Linux {release}"))
    } else {
        Finding::better(
            "version",
            format!("Linux {release} lacks some counters"),
            "boot Linux 5.4 or newer",
        )
    }
}

fn pressure(source: FeatureAvailability) -> Finding {
    let fix = "add psi=1 to the kernel command line and reboot";
    match source {
        FeatureAvailability::Available => {
            Finding::ok("pressure", "pressure stall information (PSI) is available")
        }
        FeatureAvailability::Denied => Finding::better(
            "pressure",
            "no pressure stall information: PSI is disabled",
            fix,
        ),
        FeatureAvailability::Missing => Finding::better(
            "pressure",
            "no pressure stall information: /proc/pressure is missing",
            format!("{fix} (requires Linux 4.20 with CONFIG_PSI)"),
        ),
    }
}

fn cgroup_finding(cgroup: &CgroupSupport) -> Finding {
    let limit = |memory: &str| match memory.parse::<u64>() {
        Ok(bytes) if bytes < CGROUP_UNLIMITED_BYTES => {
            format!("memory limit {}", pluralize::format_bytes(bytes))
        }
        _ => "no memory limit".to_owned(),
    };
    match cgroup {
        CgroupSupport::V2 {
            memory: Some(memory),
        } => Finding::ok("cgroup", format!("version 2, {}", limit(memory))),
        CgroupSupport::V2 { memory: None } => {
            Finding::ok("cgroup", "version 2; this process's cgroup has no limits")
        }
        CgroupSupport::V1 { memory } => Finding::better(
            "cgroup",
            format!(
                "version 1, {}: no pressure and no memory peak per task",
                memory
                    .as_deref()
                    .map_or("limits not visible".to_owned(), limit)
            ),
            "add systemd.unified_cgroup_hierarchy=1 to the kernel command line and reboot",
        ),
        CgroupSupport::None => Finding::better(
            "cgroup",
            "no cgroups visible: no metrics per task or container",
            "sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup",
        ),
    }
}

fn sock_diag(is_available: bool) -> Finding {
    if is_available {
        Finding::ok(
            "sock_diag",
            "the kernel reports the user of each connection",
        )
    } else {
        Finding::better(
            "sock_diag",
            "the kernel does not report the user of a connection: all clients on loopback need the token",
            "sudo modprobe -a inet_diag tcp_diag",
        )
    }
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;
    use std::fs;

    use super::*;
    use crate::doctor::finding::FindingState;

    fn states(facts: &KernelProbe) -> Vec<(&'static str, FindingState)> {
        let findings = evaluate(facts);
        assert!(
            findings
                .iter()
                .all(|f| (f.state == FindingState::Ok) == f.fix.is_none())
        );
        findings.iter().map(|f| (f.check, f.state)).collect()
    }

    fn good() -> KernelProbe {
        KernelProbe {
            release: Some("6.1.0-18-amd64".to_owned()),
            pressure: FeatureAvailability::Available,
            cgroup: CgroupSupport::V2 {
                memory: Some("max".to_owned()),
            },
            sock_diag: Some(true),
            btf: true,
            tracing: FeatureAvailability::Denied,
        }
    }

    #[test]
    fn a_new_kernel_is_ok() {
        assert!(
            states(&good())
                .iter()
                .all(|(_, state)| *state == FindingState::Ok)
        );
    }

    #[test]
    fn an_old_kernel_could_be_better_in_every_check() {
        let facts = KernelProbe {
            release: Some("3.10.0-1160.el7.x86_64".to_owned()),
            pressure: FeatureAvailability::Missing,
            cgroup: CgroupSupport::V1 {
                memory: Some("9223372036854771712".to_owned()),
            },
            sock_diag: Some(false),
            btf: false,
            tracing: FeatureAvailability::Missing,
        };
        let states = states(&facts);
        assert_eq!(states.len(), 6);
        assert!(
            states
                .iter()
                .all(|(_, state)| *state == FindingState::Better)
        );
        assert!(evaluate(&facts)[2].message.contains("no memory limit"));
        assert_eq!(version(None).state, FindingState::Better);
        let (off, none) = (
            pressure(FeatureAvailability::Denied),
            cgroup_finding(&CgroupSupport::None),
        );
        assert!(off.message.contains("disabled") && none.message.contains("no cgroups"));
    }

    #[test]
    fn limits_are_read_from_the_cgroups_path_or_from_the_root() {
        let root = TempDir::new();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        let machine = MachineFiles::at(root.path());
        assert_eq!(probe_cgroup(&machine), CgroupSupport::None);
        put("proc/self/cgroup", "0::/a/b\n");
        put("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        assert_eq!(probe_cgroup(&machine), CgroupSupport::V2 { memory: None });
        put("sys/fs/cgroup/memory.max", "max\n");
        put("sys/fs/cgroup/a/b/memory.max", "1048576\n");
        let memory = Some("1048576".to_owned());
        assert_eq!(
            probe_cgroup(&machine),
            CgroupSupport::V2 {
                memory: memory.clone()
            }
        );
        assert!(
            cgroup_finding(&probe_cgroup(&machine))
                .message
                .ends_with("memory limit 1 MiB")
        );
        put("proc/self/cgroup", "4:memory:/host/path\n0::/\n");
        put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
        assert_eq!(probe_cgroup(&machine), CgroupSupport::V1 { memory });
    }
}
