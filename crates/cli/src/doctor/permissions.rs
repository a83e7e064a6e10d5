//! What this user may measure.

use std::io;

use pegel_agent::{CollectorState, CollectorStatus};
use pegel_config::open_plain;
use serde_json::Value;

use super::finding::Finding;
use super::host::{
    BPF, HostFiles, MountInfo, PERFMON, ProcessCapabilities, SYS_ADMIN, SYS_PTRACE, parse_mountinfo,
};
use super::pluralize;

#[derive(Debug, Default)]
pub struct PermissionProbe {
    pub capabilities: ProcessCapabilities,
    pub perf_event_paranoid: Option<i64>,
    pub unprivileged_bpf_disabled: Option<i64>,
    /// The agent counts by BPF for whoever may ask it.
    pub agent_has_ebpf: bool,
    pub ptrace_scope: Option<i64>,
    /// RAPL counters: all there are, and those that could not be opened.
    pub rapl_counters: (u64, u64),
    pub nvidia: Option<CollectorStatus>,
    pub proc: Option<MountInfo>,
}

pub fn probe(
    machine: &HostFiles,
    rights: ProcessCapabilities,
    collectors: &[CollectorStatus],
    status: Option<&Value>,
) -> PermissionProbe {
    let mountinfo = machine.read("/proc/self/mountinfo").unwrap_or_default();
    PermissionProbe {
        capabilities: rights,
        perf_event_paranoid: machine.number("/proc/sys/kernel/perf_event_paranoid"),
        unprivileged_bpf_disabled: machine.number("/proc/sys/kernel/unprivileged_bpf_disabled"),
        agent_has_ebpf: status.is_some_and(|status| status["watching"]["ebpf"] == true),
        ptrace_scope: machine.number("/proc/sys/kernel/yama/ptrace_scope"),
        rapl_counters: count_rapl_counters(machine),
        nvidia: collectors.iter().find(|c| c.name == "nvidia").cloned(),
        proc: parse_mountinfo(&mountinfo)
            .into_iter()
            .rfind(|mount| mount.mountpoint == "/proc"),
    }
}

fn count_rapl_counters(machine: &HostFiles) -> (u64, u64) {
    let zones = machine.list("/sys/class/powercap").unwrap_or_default();
    let mut counts = (0, 0);
    for zone in zones {
        match open_plain(&zone.join("energy_uj")) {
            Ok(_) => counts.0 += 1,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                counts = (counts.0 + 1, counts.1 + 1);
            }
            Err(_) => {}
        }
    }
    counts
}

pub fn evaluate(facts: &PermissionProbe) -> Vec<Finding> {
    let (rights, mut findings) = (&facts.capabilities, Vec::new());
    findings.push(perf(facts.perf_event_paranoid, rights));
    findings.push(bpf(facts, rights));
    findings.push(ptrace(facts.ptrace_scope, rights));
    findings.push(rapl(facts.rapl_counters));
    findings.extend(facts.nvidia.as_ref().map(nvml));
    findings.push(processes(facts.proc.as_ref(), rights));
    findings
}

fn perf(paranoid: Option<i64>, rights: &ProcessCapabilities) -> Finding {
    let is_allowed = rights.has(PERFMON) || rights.has(SYS_ADMIN);
    match paranoid {
        None => Finding::better(
            "perf",
            "this kernel has no hardware counters (perf events)",
            "boot a kernel with CONFIG_PERF_EVENTS",
        ),
        Some(level) if is_allowed => Finding::ok(
            "perf",
            format!("allowed to this process (paranoid level {level})"),
        ),
        Some(level) if level <= 2 => Finding::ok(
            "perf",
            format!("counters of your own programs are allowed (paranoid level {level})"),
        ),
        Some(level) => Finding::better(
            "perf",
            format!("perf_event_paranoid is {level}: no hardware counters without privilege"),
            "sudo sysctl kernel.perf_event_paranoid=2 (weaker: every user may then count events of their own programs)",
        ),
    }
}

fn bpf(facts: &PermissionProbe, rights: &ProcessCapabilities) -> Finding {
    if rights.has(SYS_ADMIN) || (rights.has(BPF) && rights.has(PERFMON)) {
        return Finding::ok(
            "bpf",
            "this process may load BPF programs: `pegel run -s` counts by eBPF",
        );
    }
    if facts.agent_has_ebpf {
        return Finding::ok(
            "bpf",
            "the agent may load BPF programs: `pegel run -s` counts by its eBPF",
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
            "run it as root, or add drop-ins/ebpf.conf to the service and yourself to its allow_users (gives it a view of all users' system calls)",
        ),
    }
}

fn ptrace(scope: Option<i64>, rights: &ProcessCapabilities) -> Finding {
    match scope {
        Some(3) => Finding::better(
            "ptrace",
            "ptrace_scope is 3: no program can be traced until the next boot",
            "boot with kernel.yama.ptrace_scope=1 in sysctl.d (weaker: programs may then trace those they start)",
        ),
        _ if rights.has(SYS_PTRACE) => {
            Finding::ok("ptrace", "this process may trace every program")
        }
        Some(2) => Finding::better(
            "ptrace",
            "ptrace_scope is 2: only root can trace programs",
            "sudo sysctl kernel.yama.ptrace_scope=1 (weaker: programs may then trace those they start)",
        ),
        Some(1) => Finding::ok(
            "ptrace",
            "programs that you start can be traced, running ones only by root",
        ),
        _ => Finding::ok("ptrace", "your own programs can be traced"),
    }
}

fn rapl((all, refused): (u64, u64)) -> Finding {
    match (all, refused) {
        (0, _) => Finding::ok("energy", "no RAPL counters here"),
        (all, 0) => Finding::ok(
            "energy",
            format!(
                "{} (RAPL) can be read",
                pluralize::pluralized(all, "counter")
            ),
        ),
        (all, refused) => Finding::better(
            "energy",
            format!("{refused} of {all} RAPL counters can be read by root only"),
            "add drop-ins/rapl.conf to the service (weaker: from energy others' work can be guessed at)",
        ),
    }
}

fn nvml(status: &CollectorStatus) -> Finding {
    match status.state {
        CollectorState::Active => Finding::ok("nvml", "the NVIDIA driver answers"),
        CollectorState::Absent => Finding::ok("nvml", "no NVIDIA driver here (libnvidia-ml.so.1)"),
        CollectorState::Disabled => Finding::ok("nvml", "switched off by the configuration"),
        CollectorState::Failed => Finding::broken(
            "nvml",
            format!(
                "the NVIDIA driver: {}",
                status.error.as_deref().unwrap_or("no answer")
            ),
            "nvidia-smi (if that fails, too, load the driver anew or reboot)",
        ),
    }
}

/// Which `/proc/PID` there are, by the mount's option `hidepid`.
fn processes(proc: Option<&MountInfo>, rights: &ProcessCapabilities) -> Finding {
    let hidden = proc.and_then(|mount| {
        let option = mount
            .options
            .iter()
            .find_map(|option| option.strip_prefix("hidepid="))?;
        (!matches!(option, "0" | "off")).then(|| option.to_owned())
    });
    match hidden {
        None => Finding::ok("processes", "those of all users are visible"),
        Some(_) if rights.uid == 0 || rights.has(SYS_PTRACE) => {
            Finding::ok("processes", "hidden from users, but not from this process")
        }
        Some(option) => Finding::better(
            "processes",
            format!("those of other users are hidden (hidepid={option}): only yours are counted"),
            format!(
                "sudo mount -o remount,hidepid={option},gid=$(id -g pegel) /proc (shows them to the group pegel)"
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
            mountpoint: "/proc".to_owned(),
            fs_type: "proc".to_owned(),
            options: options.split(',').map(str::to_owned).collect(),
        }
    }

    #[test]
    fn what_a_user_may_not_root_may() {
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
            // Whatever opens something says so.
            let fix = finding.fix.expect("a fix");
            assert!(
                ["weaker", "gives it", "shows"]
                    .iter()
                    .any(|word| fix.contains(word)),
                "{fix}"
            );
        }
    }

    #[test]
    fn settings_that_let_users_measure_are_fine() {
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
    fn energy_is_absent_readable_or_for_root() {
        assert_eq!(rapl((0, 0)).state, FindingState::Ok);
        assert_eq!(rapl((4, 0)).message, "4 counters (RAPL) can be read");
        assert_eq!(rapl((4, 4)).state, FindingState::Better);
        let machine = TempDir::new();
        let zone = machine.join("sys/class/powercap/intel-rapl:0");
        std::fs::create_dir_all(&zone).expect("made");
        std::fs::create_dir(machine.join("sys/class/powercap/intel-rapl")).expect("made");
        std::fs::write(zone.join("energy_uj"), "1\n").expect("written");
        assert_eq!(
            count_rapl_counters(&HostFiles::at(machine.path().to_owned())),
            (1, 0)
        );
    }

    #[test]
    fn a_driver_that_does_not_answer_is_broken() {
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
