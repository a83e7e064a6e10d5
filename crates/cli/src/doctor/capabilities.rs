//! The user and the capabilities of this process.

use std::fs;

/// Capabilities by their numbers, see capabilities(7).
pub(crate) const SYS_PTRACE: u32 = 19;
pub(crate) const SYS_ADMIN: u32 = 21;
pub(crate) const PERFMON: u32 = 38;
pub(crate) const BPF: u32 = 39;

/// The user and the effective capabilities of this process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProcessCapabilities {
    pub uid: u32,
    capabilities: u64,
}

impl ProcessCapabilities {
    pub(crate) fn current() -> ProcessCapabilities {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        ProcessCapabilities::new(rustix::process::geteuid().as_raw(), &status)
    }

    pub(crate) fn new(uid: u32, status: &str) -> ProcessCapabilities {
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        ProcessCapabilities {
            uid,
            capabilities: effective.unwrap_or(0),
        }
    }

    pub(crate) fn has(&self, capability: u32) -> bool {
        self.capabilities & (1 << capability) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_bits() {
        let process = ProcessCapabilities::new(7, "Name:\tx\nCapEff:\t000000c000000000\n");
        assert!(process.has(PERFMON) && process.has(BPF) && !process.has(SYS_PTRACE));
        assert!(!ProcessCapabilities::new(7, "").has(BPF));
    }
}
