//! Clients and servers of others that the tests and benches meet, from the public registries: below `target/peers`,
//! so that nothing of the system changes.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::step;

/// What to install in a folder, by which command, and a file that says that it is there.
struct PeerPackage {
    folder: &'static str,
    marker_file: &'static str,
    /// Run by `sh`, with the folder as `$1`.
    install: &'static str,
}

const PEERS: [PeerPackage; 2] = [
    PeerPackage {
        folder: "python",
        marker_file: "bin/statsd-clients",
        install: "python3 -m venv \"$1\" && \"$1/bin/pip\" install --quiet statsd datadog && touch \"$1/bin/statsd-clients\"",
    },
    PeerPackage {
        folder: "node",
        marker_file: "node_modules/statsd/stats.js",
        install: "npm install --silent --no-audit --no-fund --prefix \"$1\" hot-shots statsd-client statsd",
    },
];

/// Installs what is missing, where it may. What stays missing is for the tests to report.
pub fn install_missing() {
    for peer in &PEERS {
        let folder = step::root().join("target/peers").join(peer.folder);
        if folder.join(peer.marker_file).exists() {
            continue;
        }
        println!("peers: installing target/peers/{}", peer.folder);
        match install(peer, &folder) {
            true => println!("peers: installed target/peers/{}", peer.folder),
            false => println!(
                "peers: could not install target/peers/{}; going on without",
                peer.folder
            ),
        }
    }
}

fn install(peer: &PeerPackage, folder: &Path) -> bool {
    let made = std::fs::create_dir_all(folder);
    let status = Command::new("sh")
        .args(["-c", peer.install, "install"])
        .arg(folder)
        .stdin(Stdio::null())
        .status();
    made.is_ok() && status.is_ok_and(|status| status.success())
}
