//! The tunnel from the head to a login host: `ssh -NR`. The port there is open to every user of
//! that host, so it leads to an address of the head that requires the token.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use super::launched_agents::OutputTail;
use crate::end_with_parent::end_with_parent;
use anyhow::Context;
use parking_lot::Mutex;

#[derive(Debug)]
pub(super) struct ReverseTunnel {
    child: Child,
    errors: Arc<Mutex<OutputTail>>,
}

impl ReverseTunnel {
    pub(super) fn start(words: &[String]) -> anyhow::Result<ReverseTunnel> {
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        end_with_parent(&mut command);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", words[0]))?;
        let stderr = child.stderr.take().context("no pipe from ssh")?;
        let errors = OutputTail::read_in_background(stderr)?;
        Ok(ReverseTunnel { child, errors })
    }

    /// Returns why the tunnel ended; `None` while it is open.
    pub(super) fn end_reason(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let text = self.errors.lock().text();
        Some(match text.is_empty() {
            true => format!("the tunnel to the login host ended with {status}"),
            false => format!("the tunnel to the login host ended: {text}"),
        })
    }
}

impl Drop for ReverseTunnel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
