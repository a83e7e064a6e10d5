//! Runs programs of the Prometheus family for comparison.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::http::{self, AgentAddress, TestResponse};
use crate::poll::eventually;
use crate::{ChildProcess, TempDir};

/// A running program of the Prometheus family, on a free port.
#[derive(Debug)]
pub struct PrometheusProcess {
    process: ChildProcess,
    pub address: AgentAddress,
    _home: TempDir,
}

impl PrometheusProcess {
    /// Starts a program. Its data belongs in the directory that `args` receives.
    #[track_caller]
    pub fn start(program: &Path, args: impl FnOnce(&TempDir) -> Vec<String>) -> PrometheusProcess {
        let home = TempDir::new();
        let mut command = Command::new(program);
        command
            .arg("--web.listen-address=127.0.0.1:0")
            .args(args(&home))
            .current_dir(home.path());
        let mut process = ChildProcess::start(&mut command);
        let address = eventually("the program logs its listen address", || {
            if process.has_ended() {
                panic!("{} ended:\n{}", program.display(), process.output());
            }
            parse_listen_address(&process.stderr()).ok_or_else(|| process.output())
        });
        PrometheusProcess {
            process,
            address: AgentAddress::Tcp(address),
            _home: home,
        }
    }

    /// Waits until it answers queries: a Prometheus listens before that.
    #[track_caller]
    pub fn until_ready(self) -> PrometheusProcess {
        eventually("the program is ready", || {
            let answer = http::get(&self.address, "/-/ready").map_err(|e| e.to_string())?;
            (answer.status == 200)
                .then_some(())
                .ok_or_else(|| answer.text().to_owned())
        });
        self
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends a GET request, which must be answered with 200.
    #[track_caller]
    pub fn get(&self, path: &str) -> TestResponse {
        let answer = http::get(&self.address, path)
            .unwrap_or_else(|e| panic!("GET {path}: {e}\n{}", self.process.output()));
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.text());
        answer
    }
}

/// Parses `… msg="Listening on" address=127.0.0.1:40123`.
fn parse_listen_address(log: &str) -> Option<SocketAddr> {
    let line = log
        .lines()
        .find(|line| line.contains("msg=\"Listening on\""))?;
    line.split("address=")
        .nth(1)?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_log() {
        let log = "ts=1 level=info msg=\"Starting\"\n\
                   ts=2 caller=x.go:1 level=info component=web msg=\"Listening on\" address=127.0.0.1:4321\n";
        assert_eq!(
            parse_listen_address(log),
            Some(([127, 0, 0, 1], 4321).into())
        );
        assert_eq!(
            parse_listen_address("ts=1 msg=\"Start listening\" address=127.0.0.1:0"),
            None
        );
    }
}
