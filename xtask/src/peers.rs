//! Installs third-party clients and servers for the tests and benchmarks from public registries,
//! below `target/peers`, so that the system is not changed.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::step;

/// Packages to install in a directory. `marker_file` exists if the installation is complete.
struct PeerPackage {
    folder: &'static str,
    marker_file: &'static str,
    /// Shell command, with the directory as `$1`.
    install: &'static str,
}

/// Downloads the package with the name of the folder from Debian unstable and unpacks it: Debian 12
/// has Prometheus 2, whose ranges are closed on the left, and a VictoriaMetrics without OTLP. The
/// only requirement of both is the C library of Debian 12.
const UNSTABLE: &str = r#"
set -e
name=$(basename "$1")
trap 'rm -f "$1/packages" "$1/package.deb"' EXIT
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | sed -n '1s/^http:/https:/;1p')
curl -sfL "$mirror/dists/sid/main/binary-$(dpkg --print-architecture)/Packages.xz" | xz -dc |
    sed -n "/^Package: $name\$/,/^\$/p" > "$1/packages"
curl -sfL -o "$1/package.deb" "$mirror/$(sed -n 's/^Filename: //p' "$1/packages")"
echo "$(sed -n 's/^SHA256: //p' "$1/packages")  $1/package.deb" | sha256sum -c --quiet
dpkg-deb -x "$1/package.deb" "$1"
"#;

const PEERS: [PeerPackage; 14] = [
    PeerPackage {
        folder: "prometheus",
        marker_file: "usr/bin/prometheus",
        install: UNSTABLE,
    },
    PeerPackage {
        folder: "victoria-metrics",
        marker_file: "usr/bin/victoria-metrics",
        install: UNSTABLE,
    },
    PeerPackage {
        folder: "prometheus-python",
        marker_file: "bin/prometheus-api-client",
        install: "python3 -m venv \"$1\" && \"$1/bin/pip\" install --quiet prometheus-api-client && touch \"$1/bin/prometheus-api-client\"",
    },
    PeerPackage {
        folder: "python",
        marker_file: "bin/statsd-clients",
        install: "python3 -m venv \"$1\" && \"$1/bin/pip\" install --quiet statsd datadog && touch \"$1/bin/statsd-clients\"",
    },
    PeerPackage {
        // Builds the Python package and runs its tests and examples.
        folder: "python-client",
        marker_file: "bin/pegel-tests",
        install: "python3 -m venv \"$1\" && \"$1/bin/pip\" install --quiet maturin pytest numpy pandas nbclient ipykernel mypy && touch \"$1/bin/pegel-tests\"",
    },
    PeerPackage {
        // Validates the bill of materials of the packages.
        folder: "cyclonedx",
        marker_file: "bin/cyclonedx-validation",
        install: "python3 -m venv \"$1\" && \"$1/bin/pip\" install --quiet 'cyclonedx-python-lib[json-validation]' && touch \"$1/bin/cyclonedx-validation\"",
    },
    PeerPackage {
        folder: "snakemake",
        marker_file: "bin/snakemake-hooks",
        install: "python3 -m venv \"$1\" && \"$1/bin/pip\" install --quiet snakemake && touch \"$1/bin/snakemake-hooks\"",
    },
    PeerPackage {
        folder: "node",
        marker_file: "node_modules/statsd/stats.js",
        install: "npm install --silent --no-audit --no-fund --prefix \"$1\" hot-shots statsd-client statsd",
    },
    // OpenTelemetry's SDKs: senders of metrics, and the messages for a receiver.
    PeerPackage {
        folder: "opentelemetry-python",
        marker_file: "bin/opentelemetry-sdk",
        install: "python3 -m venv \"$1\" && \"$1/bin/pip\" install --quiet opentelemetry-sdk opentelemetry-exporter-otlp-proto-http opentelemetry-exporter-otlp-proto-grpc && touch \"$1/bin/opentelemetry-sdk\"",
    },
    PeerPackage {
        folder: "opentelemetry-node",
        marker_file: "node_modules/@opentelemetry/exporter-metrics-otlp-http/package.json",
        install: "cd \"$1\" && echo '{}' > package.json && npm install --silent --no-audit --no-fund @opentelemetry/api @opentelemetry/sdk-metrics @opentelemetry/resources @opentelemetry/exporter-metrics-otlp-http",
    },
    // Readers of archives.
    PeerPackage {
        folder: "analysis",
        marker_file: "bin/archive-readers",
        install: "python3 -m venv \"$1\" && \"$1/bin/pip\" install --quiet pyarrow duckdb pandas && touch \"$1/bin/archive-readers\"",
    },
    // Storage for records.
    PeerPackage {
        folder: "azurite",
        marker_file: "node_modules/.bin/azurite-blob",
        install: "cd \"$1\" && echo '{}' > package.json && npm install --silent --no-audit --no-fund azurite",
    },
    PeerPackage {
        folder: "moto",
        marker_file: "bin/moto_server",
        install: "python3 -m venv \"$1\" && \"$1/bin/pip\" install --quiet 'moto[server]'",
    },
    PeerPackage {
        folder: "gcp-storage-emulator",
        marker_file: "bin/gcp-storage-emulator",
        install: "python3 -m venv \"$1\" && \"$1/bin/pip\" install --quiet gcp-storage-emulator",
    },
];

/// Installs missing packages, best effort. Tests report what is still missing.
pub(crate) fn install_missing() {
    PEERS.iter().for_each(install_if_missing);
}

/// Installs the packages of one folder, if they are missing.
pub(crate) fn install_folder(folder: &str) {
    let of_folder = PEERS.iter().filter(|peer| peer.folder == folder);
    of_folder.for_each(install_if_missing);
}

fn install_if_missing(peer: &PeerPackage) {
    let folder = step::root().join("target/peers").join(peer.folder);
    if folder.join(peer.marker_file).exists() {
        return;
    }
    println!("peers: installing target/peers/{}", peer.folder);
    if install(peer, &folder) {
        println!("peers: installed target/peers/{}", peer.folder);
    } else {
        println!(
            "peers: cannot install target/peers/{}; continuing without",
            peer.folder
        );
    }
}

fn install(peer: &PeerPackage, folder: &Path) -> bool {
    let created = std::fs::create_dir_all(folder);
    let status = Command::new("sh")
        .args(["-c", peer.install, "install"])
        .arg(folder)
        .stdin(Stdio::null())
        .status();
    created.is_ok() && status.is_ok_and(|status| status.success())
}
