//! VictoriaMetrics, if it is installed.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{AgentAddress, ChildProcess, TempDir, eventually_within, get, need};

pub(crate) struct Victoria {
    process: ChildProcess,
    pub(crate) address: SocketAddr,
    _dir: TempDir,
}

impl Victoria {
    /// Starts it with an empty directory; `None` if it is not installed.
    pub(crate) fn start() -> Option<Victoria> {
        let program = need("victoria-metrics")?;
        // It does not report a port that it selected itself, so a free one is selected here.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let dir = TempDir::new();
        let mut command = Command::new(program);
        command
            .arg(format!("-storageDataPath={}", dir.join("data").display()))
            .arg(format!("-httpListenAddr={address}"));
        let process = ChildProcess::start(&mut command);
        eventually_within(Duration::from_secs(30), "VictoriaMetrics starts", || {
            let answer = get(&AgentAddress::Tcp(address), "/health");
            let is_up = answer.is_ok_and(|answer| answer.status == 200);
            is_up.then_some(()).ok_or_else(|| process.output())
        });
        Some(Victoria {
            process,
            address,
            _dir: dir,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }
}
