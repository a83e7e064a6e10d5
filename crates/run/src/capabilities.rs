//! Reads the effective capabilities of this process.

use crate::process::ProcessStatus;

/// A capability, by its number in `linux/capability.h`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capability(u8);

pub(crate) const SYS_PTRACE: Capability = Capability(19);
pub(crate) const SYS_ADMIN: Capability = Capability(21);
pub(crate) const PERFMON: Capability = Capability(38);
pub(crate) const BPF: Capability = Capability(39);

/// Returns whether the capability is effective in this process.
pub(crate) fn has_capability(capability: Capability) -> bool {
    let effective = ProcessStatus::of_self().mask("CapEff");
    effective.is_some_and(|rights| rights >> capability.0 & 1 == 1)
}
