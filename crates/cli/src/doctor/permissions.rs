//! Checks the permissions of this user: perf events, BPF, ptrace, RAPL, NVML, other users'
//! processes.

use std::io;

use pegel_agent::{CollectorState, CollectorStatus};
use pegel_machine::{MachineFiles, MountInfo};
use pegel_plain_file::open_plain;
use serde_json::Value;

use super::capabilities::{BPF, PERFMON, ProcessCapabilities, SYS_ADMIN, SYS_PTRACE};
use super::finding::Finding;
use super::pluralize;

#[derive(Debug, Default)]
pub(super) struct PermissionProbe {
    pub capabilities: ProcessCapabilities,
    pub perf_event_paranoid: Option<i64>,
    pub unprivileged_bpf_disabled: Option<i64>,
    /// The agent can load BPF programs and counts on behalf of permitted users.
    pub agent_has_ebpf: bool,
    pub ptrace_scope: Option<i64>,
    /// RAPL counters: the total, and those that could not be opened.
    pub rapl_counters: (u64, u64),
    pub nvidia: Option<CollectorStatus>,
    pub proc: Option<MountInfo>,
}

pub(super) fn probe(
    machine: &MachineFiles,
    capabilities: ProcessCapabilities,
    collectors: &[CollectorStatus],
    status: Option<&Value>,
) -> PermissionProbe {
    let setting = |name: &str| {
        machine
            .text(format!("/proc/sys/kernel/{name}"))?
            .parse()
            .ok()
    };
    PermissionProbe {
        capabilities,
        perf_event_paranoid: setting("perf_event_paranoid"),
        unprivileged_bpf_disabled: setting("unprivileged_bpf_disabled"),
        agent_has_ebpf: status.is_some_and(|status| status["watching"]["ebpf"] == true),
        ptrace_scope: setting("yama/ptrace_scope"),
        rapl_counters: count_rapl_counters(machine),
        nvidia: collectors.iter().find(|c| c.name == "nvidia").cloned(),
        proc: machine
            .mounts()
            .into_iter()
            .rfind(|mount| mount.mountpoint == b"/proc"),
    }
}

fn count_rapl_counters(machine: &MachineFiles) -> (u64, u64) {
    let mut counts = (0, 0);
    for zone in machine.names("/sys/class/powercap") {
        let path = format!("/sys/class/powercap/{zone}/energy_uj");
        match open_plain(&machine.resolve(path)) {
            Ok(_) => counts.0 += 1,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                counts = (counts.0 + 1, counts.1 + 1);
            }
            Err(_) => {}
        }
    }
    counts
}

pub(super) fn evaluate(facts: &PermissionProbe) -> Vec<Finding> {
    let (capabilities, mut findings) = (&facts.capabilities, Vec::new());
    findings.push(perf(facts.perf_event_paranoid, capabilities));
    findings.push(bpf(facts, capabilities));
    findings.push(ptrace(facts.ptrace_scope, capabilities));
    findings.push(rapl(facts.rapl_counters));
    findings.extend(facts.nvidia.as_ref().map(nvml));
    findings.push(processes(facts.proc.as_ref(), capabilities));
    findings
}

fn perf(paranoid: Option<i64>, capabilities: &ProcessCapabilities) -> Finding {
    let is_permitted = capabilities.has(PERFMON) || capabilities.has(SYS_ADMIN);
    match paranoid {
        None => Finding::better(
            "perf",
            "this kernel has no hardware counters (perf events)",
            "boot a kernel with CONFIG_PERF_EVENTS",
        ),
        Some(level) if is_permitted => Finding::ok(
            "perf",
            format!("permitted for this process (perf_event_paranoid={level})"),
        ),
        Some(level) if level <= 2 => Finding::ok(
            "perf",
            format!("permitted for your own programs (perf_event_paranoid={level})"),
        ),
        Some(level) => Finding::better(
            "perf",
            format!("perf_event_paranoid is {level}: hardware counters require privileges"),
            "sudo sysctl kernel.perf_event_paranoid=2 (weaker: every user can then count events of their own programs)",
        ),
    }
}

fn bpf(facts: &PermissionProbe, capabilities: &ProcessCapabilities) -> Finding {
    if capabilities.has(SYS_ADMIN) || (capabilities.has(BPF) && capabilities.has(PERFMON)) {
        return Finding::ok(
            "bpf",
            "this process can load BPF programs: `pegel run -s` uses eBPF",
        );
    }
    if facts.agent_has_ebpf {
        return Finding::ok(
            "bpf",
            "the agent can load BPF programs: `pegel run -s` uses eBPF through the agent",
        );
    }
    match facts.unprivileged_bpf_disabled {
        None => Finding::better(
            "bpf",
            "this kernel has no bpf(2)",
            "boot a kernel with CONFIG_BPF_SYSCALL",
        ),
        Some(_) => Finding::better(
            "bpf",
            "no CAP_BPF and CAP_PERFMON: system calls are counted by ptrace, which slows programs down",
            "run as root, or add drop-ins/ebpf.conf to the service and your user to its allow_users (weaker: the agent can then see all users' system calls)",
        ),
    }
}

fn ptrace(scope: Option<i64>, capabilities: &ProcessCapabilities) -> Finding {
    match scope {
        Some(3) => Finding::better(
            "ptrace",
            "ptrace_scope is 3: tracing is disabled until the next boot",
            "boot with kernel.yama.ptrace_scope=1 in sysctl.d (weaker: programs can then trace those they start)",
        ),
        _ if capabilities.has(SYS_PTRACE) => {
            Finding::ok("ptrace", "this process can trace all programs")
        }
        Some(2) => Finding::better(
            "ptrace",
            "ptrace_scope is 2: only root can trace programs",
            "sudo sysctl kernel.yama.ptrace_scope=1 (weaker: programs can then trace those they start)",
        ),
        Some(1) => Finding::ok(
            "ptrace",
            "you can trace programs that you start; only root can attach to running ones",
        ),
        _ => Finding::ok("ptrace", "you can trace your own programs"),
    }
}

fn rapl((all, denied): (u64, u64)) -> Finding {
    match (all, denied) {
        (0, _) => Finding::ok("energy", "no RAPL counters on this machine"),
        (all, 0) => Finding::ok(
            "energy",
            format!("{} readable", pluralize::pluralized(all, "RAPL counter")),
        ),
        (all, denied) => Finding::better(
            "energy",
            format!("{denied} of {all} RAPL counters are readable by root only"),
            "add drop-ins/rapl.conf to the service (weaker: energy readings are a side channel to other users' work)",
        ),
    }
}

fn nvml(status: &CollectorStatus) -> Finding {
    match status.state {
        CollectorState::Active => Finding::ok("nvml", "the NVIDIA driver responds"),
        CollectorState::Absent => Finding::ok("nvml", "no NVIDIA driver (libnvidia-ml.so.1)"),
        CollectorState::Disabled => Finding::ok("nvml", "disabled by the configuration"),
        CollectorState::Failed => Finding::broken(
            "nvml",
            format!(
                "the NVIDIA driver: {}",
                status.error.as_deref().unwrap_or("no response")
            ),
            "run nvidia-smi; if it fails too, reload the driver or reboot",
        ),
    }
}

/// Reports which `/proc/PID` are visible, by the mount option `hidepid`.
fn processes(proc: Option<&MountInfo>, capabilities: &ProcessCapabilities) -> Finding {
    let hidden = proc.and_then(|mount| {
        let option = mount
            .options()
            .find_map(|option| option.strip_prefix(b"hidepid="))?;
        (!matches!(option, b"0" | b"off")).then(|| String::from_utf8_lossy(option).into_owned())
    });
    match hidden {
        None => Finding::ok("processes", "processes of all users are visible"),
        Some(_) if capabilities.uid == 0 || capabilities.has(SYS_PTRACE) => Finding::ok(
            "processes",
            "hidden from other users, visible to this process",
        ),
        Some(option) => Finding::better(
            "processes",
            format!(
                "processes of other users are hidden (hidepid={option}): only yours are counted"
            ),
            format!(
                "sudo mount -o remount,hidepid={option},gid=$(id -g pegel) /proc (weaker: shows them to the group pegel)"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;
    use crate::doctor::finding::FindingState;

    const USER: &str = "CapEff:\t0000000000000000\n";
    const ROOT: &str = "CapEff:\t000001ffffffffff\n";

    fn user() -> ProcessCapabilities {
        ProcessCapabilities::new(1000, USER)
    }

    fn root() -> ProcessCapabilities {
        ProcessCapabilities::new(0, ROOT)
    }

    fn disabled() -> PermissionProbe {
        PermissionProbe {
            unprivileged_bpf_disabled: Some(2),
            ..PermissionProbe::default()
        }
    }

    fn proc(options: &str) -> MountInfo {
        MountInfo {
            mountpoint: b"/proc".to_vec(),
            options: options.as_bytes().to_vec(),
            ..MountInfo::default()
        }
    }

    #[test]
    fn root_has_the_permissions_that_a_user_lacks() {
        for (finding, of_root) in [
            (perf(Some(3), &user()), perf(Some(3), &root())),
            (bpf(&disabled(), &user()), bpf(&disabled(), &root())),
            (ptrace(Some(2), &user()), ptrace(Some(2), &root())),
            (
                processes(Some(&proc("rw,hidepid=2")), &user()),
                processes(Some(&proc("rw,hidepid=2")), &root()),
            ),
        ] {
            assert_eq!(finding.state, FindingState::Better, "{finding:?}");
            assert_eq!(of_root.state, FindingState::Ok, "{of_root:?}");
            // A fix that weakens security states it.
            let fix = finding.fix.expect("a fix");
            assert!(fix.contains("weaker"), "{fix}");
        }
    }

    #[test]
    fn permissive_settings_are_ok() {
        for finding in [
            perf(Some(2), &user()),
            perf(Some(-1), &user()),
            ptrace(Some(1), &user()),
            ptrace(Some(0), &user()),
            ptrace(None, &user()),
            processes(Some(&proc("rw,relatime")), &user()),
            processes(Some(&proc("rw,hidepid=off")), &user()),
            processes(None, &user()),
        ] {
            assert_eq!((finding.state, finding.fix), (FindingState::Ok, None));
        }
        let partly = ProcessCapabilities::new(1000, "CapEff:\t000000c000000000\n");
        assert_eq!(bpf(&disabled(), &partly).state, FindingState::Ok);
        let by_agent = PermissionProbe {
            agent_has_ebpf: true,
            ..disabled()
        };
        assert_eq!(bpf(&by_agent, &user()).state, FindingState::Ok);
        assert_eq!(ptrace(Some(3), &root()).state, FindingState::Better);
        assert_eq!(perf(None, &root()).state, FindingState::Better);
        assert_eq!(
            bpf(&PermissionProbe::default(), &user()).state,
            FindingState::Better
        );
    }

    #[test]
    fn rapl_counters_are_absent_readable_or_denied() {
        assert_eq!(rapl((0, 0)).state, FindingState::Ok);
        assert_eq!(rapl((4, 0)).message, "4 RAPL counters readable");
        assert_eq!(rapl((4, 4)).state, FindingState::Better);
        let machine = TempDir::new();
        let zone = machine.join("sys/class/powercap/intel-rapl:0");
        std::fs::create_dir_all(&zone).expect("made");
        std::fs::create_dir(machine.join("sys/class/powercap/intel-rapl")).expect("made");
        std::fs::write(zone.join("energy_uj"), "1\n").expect("written");
        assert_eq!(
            count_rapl_counters(&MachineFiles::at(machine.path())),
            (1, 0)
        );
    }

    #[test]
    fn a_failing_driver_is_broken() {
        let status = |state, error: Option<&str>| CollectorStatus {
            name: "nvidia",
            state,
            error: error.map(str::to_owned),
            since: 0,
            looked_for: None,
            cost: 0.0,
            series: 0,
            failures: 0,
        };
        let failed = nvml(&status(
            CollectorState::Failed,
            Some("Driver/library version mismatch"),
        ));
        assert_eq!(failed.state, FindingState::Broken);
        assert_eq!(
            failed.message,
            "the NVIDIA driver: Driver/library version mismatch"
        );
        for state in [
            CollectorState::Active,
            CollectorState::Absent,
            CollectorState::Disabled,
        ] {
            assert_eq!(nvml(&status(state, None)).state, FindingState::Ok);
        }
    }
}
