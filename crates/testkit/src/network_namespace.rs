use std::fs::File;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{ChildProcess, eventually, need, need_hardware};

/// A network of its own that nothing outside can reach, with one address that is not loopback.
#[derive(Debug)]
pub struct NetworkNamespace {
    /// Holds the network while nobody else is in it.
    holder: ChildProcess,
}

impl NetworkNamespace {
    /// Set aside for documentation (RFC 5737): no real machine has it.
    pub const ADDRESS: &str = "192.0.2.7";

    /// None, with the skip noted, where the test may not make one.
    #[track_caller]
    pub fn new() -> Option<NetworkNamespace> {
        need("unshare")?;
        need("ip")?;
        let script = format!(
            "ip link set lo up && ip address add {}/32 dev lo && echo ready && exec sleep 1000",
            NetworkNamespace::ADDRESS
        );
        let mut keeper =
            ChildProcess::start(Command::new("unshare").args(["--net", "sh", "-c", &script]));
        let is_there = eventually("a network of its own", || {
            if keeper.stdout().contains("ready") {
                return Ok(true);
            }
            if keeper.has_ended() {
                Ok(false)
            } else {
                Err(keeper.output())
            }
        });
        need_hardware(is_there, "privilege to make a network of its own")?;
        Some(NetworkNamespace { holder: keeper })
    }

    /// Runs on the island. Processes started meanwhile live there, and stay.
    pub fn run_inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/{}/ns/net", self.holder.pid());
        let network = File::open(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        // A thread of its own: it never comes back.
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
