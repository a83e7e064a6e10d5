//! Storage servers of others: azurite, moto and gcp-storage-emulator, each on a free port.

use std::process::Command;

use pegel_testkit::{ChildProcess, TempDir, eventually_within, need, need_peer};

/// The account of azurite, with a key of our own.
pub(crate) const ACCOUNT: &str = "pegeltest";
/// Planted: it must not appear in any output.
pub(crate) const ACCOUNT_KEY: &str = "UExBTlRFRC1BWlVSRS1LRVktMDEyMzQ1Njc4OQ==";

/// Prints its port, which its own command line does not do.
const GOOGLE_EMULATOR: &str = "
from gcp_storage_emulator.server import create_server
server = create_server('127.0.0.1', 0, in_memory=True, default_bucket='records')
server.start()
print('http://127.0.0.1:%d' % server._api._httpd.server_address[1], flush=True)
";

/// A running server.
#[derive(Debug)]
pub(crate) struct PeerServer {
    pub(crate) url: String,
    _process: ChildProcess,
    _home: TempDir,
}

impl PeerServer {
    /// Starts azurite; with a certificate and its key it accepts tokens.
    #[track_caller]
    pub(crate) fn azurite(certificate: Option<(&str, &str)>) -> Option<PeerServer> {
        need("node")?;
        let program = need_peer("azurite/node_modules/.bin/azurite-blob")?;
        let mut command = Command::new(program);
        command
            .args([
                "--blobPort",
                "0",
                "--inMemoryPersistence",
                "--disableTelemetry",
            ])
            .env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{ACCOUNT_KEY}"));
        if let Some((certificate, key)) = certificate {
            command.args(["--oauth", "basic", "--cert", certificate, "--key", key]);
        }
        Some(PeerServer::start(command, "successfully listens on "))
    }

    /// Starts moto. After this many requests it checks every signature, slowly.
    #[track_caller]
    pub(crate) fn moto(unchecked_requests: u32) -> Option<PeerServer> {
        // The interpreter of the script; another user may have no access to it.
        need_peer("moto/bin/python3")?;
        let program = need_peer("moto/bin/moto_server")?;
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", "0"]).env(
            "INITIAL_NO_AUTH_ACTION_COUNT",
            unchecked_requests.to_string(),
        );
        Some(PeerServer::start(command, "Running on "))
    }

    #[track_caller]
    pub(crate) fn google_emulator() -> Option<PeerServer> {
        let program = need_peer("gcp-storage-emulator/bin/python3")?;
        let mut command = Command::new(program);
        command.args(["-c", GOOGLE_EMULATOR]);
        Some(PeerServer::start(command, ""))
    }

    /// Waits until the server prints its URL after `mark`.
    #[track_caller]
    fn start(mut command: Command, mark: &str) -> PeerServer {
        let home = TempDir::new();
        let mut process = ChildProcess::start(command.current_dir(home.path()));
        // Interpreted programs take seconds on a busy machine.
        let bound = std::time::Duration::from_secs(120);
        let url = eventually_within(bound, "the server prints its address", || {
            let output = process.output();
            assert!(!process.has_ended(), "{output}");
            let found = output.lines().find_map(|line| {
                let (_, url) = line
                    .split_once(mark)
                    .filter(|(_, url)| url.starts_with("http"))?;
                Some(url.trim().to_owned())
            });
            found.ok_or(output)
        });
        PeerServer {
            url,
            _process: process,
            _home: home,
        }
    }
}
