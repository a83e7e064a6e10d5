//! Installs the system packages with programs that the tests and benchmarks run.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

const MPI4PY: &str = "/usr/lib/python3/dist-packages/mpi4py/__init__.py";

/// Programs and the Debian packages that contain them.
const PROGRAMS: [(&str, &str); 45] = [
    ("apache2", "apache2-bin"),
    ("carbon-cache", "graphite-carbon"),
    ("collectd", "collectd-core"),
    ("c++", "g++"),
    ("cc", "gcc"),
    ("chromium", "chromium"),
    ("curl", "curl"),
    ("fish", "fish"),
    ("gfortran", "gfortran"),
    ("ip", "iproute2"),
    ("java", "default-jdk-headless"),
    ("javac", "default-jdk-headless"),
    // A file of the package, which has no program.
    (MPI4PY, "python3-mpi4py"),
    ("mpicc.mpich", "libmpich-dev"),
    ("mpicc.openmpi", "libopenmpi-dev"),
    ("mpirun.mpich", "mpich"),
    ("mpirun.openmpi", "openmpi-bin"),
    // Builds the static binary, together with the sources of Rust's standard library.
    ("munged", "munge"),
    ("musl-gcc", "musl-tools"),
    ("nm", "binutils"),
    ("openssl", "openssl"),
    ("pkg-config", "pkg-config"),
    ("prometheus", "prometheus"),
    ("prometheus-alertmanager", "prometheus-alertmanager"),
    ("prometheus-node-exporter", "prometheus-node-exporter"),
    ("promtool", "prometheus"),
    ("python3", "python3"),
    ("salloc", "slurm-client"),
    ("script", "bsdutils"),
    ("setpriv", "util-linux"),
    ("shellcheck", "shellcheck"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("srun", "slurm-client"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("sshd", "openssh-server"),
    ("strace", "strace"),
    ("systemd-analyze", "systemd"),
    ("tmux", "tmux"),
    ("unshare", "util-linux"),
    ("victoria-metrics", "victoria-metrics"),
    ("vmagent", "victoria-metrics"),
    ("xz", "xz-utils"),
    ("zsh", "zsh"),
];

/// Installs packages without starting their services: a temporary `policy-rc.d` prevents it, and an
/// existing policy is restored afterwards.
const INSTALL: &str = r#"
set -e
policy=/usr/sbin/policy-rc.d
before=$policy.before-pegel
restore() { rm -f "$policy"; if [ -e "$before" ]; then mv "$before" "$policy"; fi; }
if [ -e "$policy" ]; then mv "$policy" "$before"; fi
trap restore EXIT
trap 'exit 1' HUP INT TERM
printf '#!/bin/sh\nexit 101\n' > "$policy"
chmod 755 "$policy"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@"
"#;

/// Installs missing packages, best effort. Tests report programs that are still missing.
pub(crate) fn install_missing() {
    let mut missing: Vec<&str> = Vec::new();
    for (program, package) in PROGRAMS {
        if !is_installed(program) && !missing.contains(&package) {
            missing.push(package);
        }
    }
    if missing.is_empty() {
        println!(
            "packages: nothing to install; found {}",
            PROGRAMS.map(|(name, _)| name).join(", ")
        );
        return;
    }
    let list = missing.join(" ");
    if !is_installed("apt-get") {
        println!("packages: {list} missing and apt-get not found; install them manually");
        return;
    }
    let Some(mut command) = as_root() else {
        println!("packages: {list} missing; run: sudo apt-get install {list}");
        return;
    };
    println!("packages: running apt-get install {list} (services are not started)");
    let status = command
        .args(["sh", "-c", INSTALL, "install"])
        .args(&missing)
        .status();
    match status {
        Ok(status) if status.success() => println!("packages: installed {list}"),
        Ok(status) => println!("packages: cannot install {list} ({status}); continuing without"),
        Err(error) => println!("packages: cannot install {list}: {error}; continuing without"),
    }
}

/// Returns a prefix for a command that requires root: `env` if this process is root, `sudo` if it
/// needs no password, else `None`.
fn as_root() -> Option<Command> {
    use std::os::unix::fs::MetadataExt;
    // The owner of /proc/self is the user of this process.
    if Path::new("/proc/self")
        .metadata()
        .is_ok_and(|meta| meta.uid() == 0)
    {
        return Some(Command::new("env"));
    }
    let sudo = Command::new("sudo")
        .args(["-n", "true"])
        .stderr(Stdio::null())
        .status();
    sudo.is_ok_and(|status| status.success()).then(|| {
        let mut command = Command::new("sudo");
        command.arg("-n");
        command
    })
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
