//! Isolated networks for tests.

use std::fs::File;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{ChildProcess, eventually, need, need_hardware};

/// A network namespace without outside connection, with one address that is not loopback.
#[derive(Debug)]
pub struct NetworkNamespace {
    /// Keeps the namespace alive while no other process is in it.
    holder: ChildProcess,
}

impl NetworkNamespace {
    /// Reserved for documentation (RFC 5737): no real machine has it.
    pub const ADDRESS: &str = "192.0.2.7";

    /// Creates a namespace; None, with the skip recorded, if that is not permitted.
    #[track_caller]
    pub fn new() -> Option<NetworkNamespace> {
        need("unshare")?;
        need("ip")?;
        let script = format!(
            "ip link set lo up && ip address add {}/32 dev lo && echo ready && exec sleep 1000",
            NetworkNamespace::ADDRESS
        );
        let mut holder =
            ChildProcess::start(Command::new("unshare").args(["--net", "sh", "-c", &script]));
        let is_there = eventually("the network namespace is ready", || {
            if holder.stdout().contains("ready") {
                return Ok(true);
            }
            if holder.has_ended() {
                Ok(false)
            } else {
                Err(holder.output())
            }
        });
        need_hardware(is_there, "privilege to create a network namespace")?;
        Some(NetworkNamespace { holder })
    }

    /// Returns a process in the namespace, which lives as long as the namespace.
    pub(crate) fn pid(&self) -> u32 {
        self.holder.pid()
    }

    /// Runs `work` in the namespace. Processes started by it stay there.
    pub fn run_inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/{}/ns/net", self.holder.pid());
        let network = File::open(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        // On a separate thread, which never leaves the namespace.
        std::thread::scope(|scope| {
            let visitor = scope.spawn(move || {
                move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&network),
                    Some(LinkNameSpaceType::Network),
                )
                .unwrap_or_else(|e| panic!("{path}: {e}"));
                work()
            });
            visitor
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}
