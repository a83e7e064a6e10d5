//! Programs that the tests run beside ours, from the system's packages.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

const MPI4PY: &str = "/usr/lib/python3/dist-packages/mpi4py/__init__.py";

/// Program, and the Debian package that brings it.
const PROGRAMS: [(&str, &str); 28] = [
    ("collectd", "collectd-core"),
    ("c++", "g++"),
    ("cc", "gcc"),
    ("chromium", "chromium"),
    ("curl", "curl"),
    ("gfortran", "gfortran"),
    ("ip", "iproute2"),
    ("java", "default-jdk-headless"),
    ("javac", "default-jdk-headless"),
    // Not a program: a package of Python that has none.
    (MPI4PY, "python3-mpi4py"),
    ("mpicc.mpich", "libmpich-dev"),
    ("mpicc.openmpi", "libopenmpi-dev"),
    ("mpirun.mpich", "mpich"),
    ("mpirun.openmpi", "openmpi-bin"),
    ("nm", "binutils"),
    ("openssl", "openssl"),
    ("pkg-config", "pkg-config"),
    ("prometheus", "prometheus"),
    ("prometheus-node-exporter", "prometheus-node-exporter"),
    ("promtool", "prometheus"),
    ("python3", "python3"),
    ("script", "bsdutils"),
    ("setpriv", "util-linux"),
    ("strace", "strace"),
    ("systemd-analyze", "systemd"),
    ("tmux", "tmux"),
    ("unshare", "util-linux"),
    ("victoria-metrics", "victoria-metrics"),
];

/// Installs packages without starting the services they bring: `policy-rc.d` forbids it meanwhile,
/// and whatever policy was there before comes back.
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

/// Installs what is missing, where it may. What stays missing is for the tests to report.
pub fn install_missing() {
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
        println!("packages: {list} missing, and this system has no apt-get; install them by hand");
        return;
    }
    let Some(mut command) = as_root() else {
        println!("packages: {list} missing; to install them: sudo apt-get install {list}");
        return;
    };
    println!("packages: apt-get install {list} (their services are not started)");
    let status = command
        .args(["sh", "-c", INSTALL, "install"])
        .args(&missing)
        .status();
    match status {
        Ok(status) if status.success() => println!("packages: installed {list}"),
        Ok(status) => println!("packages: could not install {list} ({status}); going on without"),
        Err(error) => println!("packages: could not install {list}: {error}; going on without"),
    }
}

/// A prefix for a command that needs root: `env` where we are root, `sudo` where it does not ask for a
/// password, else nothing.
fn as_root() -> Option<Command> {
    use std::os::unix::fs::MetadataExt;
    // The owner of our own entry in /proc is our user.
    if Path::new("/proc/self")
        .metadata()
        .is_ok_and(|meta| meta.uid() == 0)
    {
        return Some(Command::new("env"));
    }
    let asked = Command::new("sudo")
        .args(["-n", "true"])
        .stderr(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success()).then(|| {
        let mut command = Command::new("sudo");
        command.arg("-n");
        command
    })
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
