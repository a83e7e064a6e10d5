//! The kernel's command line. Boot loaders and installers put passwords, keys and addresses there,
//! so only parameters on an allow-list are shown.

use serde::Serialize;

/// Parameters that affect how the machine runs and never hold secrets.
#[rustfmt::skip]
const ALLOWED: &[&str] = &[
    "acpi_pad.disable", "amd_iommu", "amd_pstate", "audit", "cgroup_enable", "cgroup_disable", "cgroup_no_v1",
    "clocksource", "console", "cpufreq.default_governor", "cpuidle.governor", "cpuidle.off", "crashkernel",
    "default_hugepagesz", "elevator", "fips", "hpet", "hugepages", "hugepagesz", "idle", "init_on_alloc",
    "init_on_free", "intel_idle.max_cstate", "intel_iommu", "intel_pstate", "iommu", "iommu.passthrough",
    "irqaffinity", "isolcpus", "kpti", "l1tf", "maxcpus", "mce", "mds", "mem", "mem_encrypt", "mitigations",
    "movable_node", "nmi_watchdog", "nohz", "nohz_full", "noibrs", "noibpb", "nokaslr", "nopti", "nosmt",
    "nosoftlockup", "nospec_store_bypass_disable", "nospectre_v1", "nospectre_v2", "nowatchdog", "nr_cpus",
    "numa", "numa_balancing", "panic", "pci", "pcie_acs_override", "pcie_aspm", "pci.realloc", "preempt",
    "processor.max_cstate", "psi", "quiet", "rcu_nocbs", "retbleed", "ro", "rw", "selinux", "skew_tick",
    "spec_store_bypass_disable", "spectre_v2", "swapaccount", "systemd.unified_cgroup_hierarchy", "tsc", "tsx",
    "tsx_async_abort", "transparent_hugepage", "vsyscall", "zswap.enabled",
];
const VALUE_BYTES_MAX: usize = 256;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KernelCommandLine {
    pub parameters: Vec<String>,
    /// Number of parameters that are not shown.
    pub left_out: usize,
}

pub(crate) fn read(text: &str) -> KernelCommandLine {
    let mut line = KernelCommandLine::default();
    // Parameters after ` -- ` are passed to init.
    let (kernel, init) = text.split_once(" -- ").unwrap_or((text, ""));
    for word in kernel.split_whitespace() {
        let name = word.split('=').next().unwrap_or(word);
        let is_known = ALLOWED.contains(&name) && word.len() <= VALUE_BYTES_MAX;
        // These characters may attach credentials to an allowed parameter.
        if is_known && !word.contains(['@', ';', '"']) {
            line.parameters.push(word.to_owned());
        } else {
            line.left_out += 1;
        }
    }
    line.left_out += init.split_whitespace().count();
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_parameters_are_shown() {
        let text = "BOOT_IMAGE=/vmlinuz root=live:https://u:PLANTED@h/ ro quiet isolcpus=2-7 \
                    mitigations=off inst.ks=http://h/?PLANTED PLANTED rootpw=PLANTED -- --key PLANTED";
        let line = read(text);
        assert_eq!(
            line.parameters,
            ["ro", "quiet", "isolcpus=2-7", "mitigations=off"]
        );
        assert_eq!(line.left_out, 7);
        assert!(!format!("{line:?}").contains("PLANTED"));
        assert_eq!(read(""), KernelCommandLine::default());
    }
}
