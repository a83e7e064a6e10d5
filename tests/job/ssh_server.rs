//! A real sshd on addresses of loopback: each address stands for a node.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pegel_testkit::{ChildProcess, TempDir, eventually, need, set_mode};

const PORT: u16 = 2022;

#[derive(Debug)]
pub(crate) struct SshServer {
    dir: TempDir,
    addresses: Vec<Ipv4Addr>,
    _server: ChildProcess,
}

/// Returns addresses that no other test uses.
fn loopback_addresses(count: u8) -> Vec<Ipv4Addr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let unique = (std::process::id() % (1 << 13)) << 3 | (number % 8);
    let [_, _, high, low] = unique.to_be_bytes();
    (2..2 + count)
        .map(|last| Ipv4Addr::new(127, high / 2 + 64, low, last))
        .collect()
}

impl SshServer {
    /// Starts a server that admits the current user; `None`, with the skip recorded, without sshd.
    #[track_caller]
    pub(crate) fn start(nodes: u8) -> Option<SshServer> {
        let sshd = need("sshd")?;
        need("ssh-keygen")?;
        let dir = TempDir::new();
        for name in ["host", "key"] {
            let mut command = Command::new("ssh-keygen");
            command
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(dir.join(name));
            assert!(command.status().expect("it starts").success());
        }
        fs::copy(dir.join("key.pub"), dir.join("authorized")).expect("copied");
        set_mode(dir.join("authorized"), 0o600);
        let addresses = loopback_addresses(nodes);
        let mut listen = String::new();
        for address in &addresses {
            listen.push_str(&format!("ListenAddress {address}\n"));
        }
        let path = |name: &str| dir.join(name).display().to_string();
        let server = format!(
            "Port {PORT}\n{listen}HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nPermitRootLogin yes\nMaxStartups 100\nSetEnv PEGEL_IMDS_URL=none\n",
            path("host"),
            path("authorized"),
        );
        fs::write(dir.join("sshd.conf"), server).expect("written");
        let client = format!(
            "Host *\n Port {PORT}\n IdentityFile {}\n IdentitiesOnly yes\n UserKnownHostsFile {}\n \
             StrictHostKeyChecking no\n LogLevel ERROR\n",
            path("key"),
            path("known"),
        );
        fs::write(dir.join("config"), client).expect("written");
        if rustix::process::geteuid().is_root() {
            // The directory in which sshd confines its unprivileged part; a service manager
            // creates it on other machines.
            let _ = fs::create_dir("/run/sshd");
        }
        let mut command = Command::new(sshd);
        command.args(["-D", "-e", "-f"]).arg(dir.join("sshd.conf"));
        let mut started = ChildProcess::start(&mut command);
        eventually("sshd listens", || {
            assert!(!started.has_ended(), "{}", started.output());
            TcpStream::connect((addresses[0], PORT))
        });
        Some(SshServer {
            dir,
            addresses,
            _server: started,
        })
    }

    /// Returns ssh with its options, as `--launcher` takes it.
    pub(crate) fn ssh(&self) -> String {
        format!("ssh -F {}", self.dir.join("config").display())
    }

    /// Returns ssh with its options as a command.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("ssh");
        command.arg("-F").arg(self.dir.join("config"));
        command
    }

    /// Returns the nodes: this machine, and one for each address.
    pub(crate) fn hosts(&self) -> String {
        let others: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        format!("localhost,{}", others.join(","))
    }

    pub(crate) fn address(&self, index: usize) -> String {
        self.addresses[index].to_string()
    }

    /// Returns the text that the command lines of all clients of this server contain.
    pub(crate) fn mark(&self) -> String {
        self.dir.join("config").display().to_string()
    }
}

/// The time within which a job on a loaded machine ends.
pub(crate) const JOB_TIME: Duration = Duration::from_secs(90);
