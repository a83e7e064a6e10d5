//! Reads the effective capabilities of this process.

/// A capability, by its number in `linux/capability.h`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capability(u8);

pub(crate) const SYS_PTRACE: Capability = Capability(19);
pub(crate) const SYS_ADMIN: Capability = Capability(21);
pub(crate) const PERFMON: Capability = Capability(38);
pub(crate) const BPF: Capability = Capability(39);

/// Returns whether the capability is effective in this process.
pub(crate) fn has_capability(capability: Capability) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let rights = lines.find_map(|line| line.strip_prefix("CapEff:"));
    rights
        .and_then(|rights| u64::from_str_radix(rights.trim(), 16).ok())
        .is_some_and(|rights| rights >> capability.0 & 1 == 1)
}
