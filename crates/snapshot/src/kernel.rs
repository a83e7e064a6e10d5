//! The kernel and the operating system: versions, boot time, clock sources, CPU vulnerability
//! mitigations.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::command_line::{self, KernelCommandLine};
use crate::timestamp::Timestamp;
use pegel_machine::{MachineFiles, boot_time_seconds, os_release_value};

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct KernelInfo {
    pub release: Option<String>,
    pub version: Option<String>,
    pub distribution: OsDistribution,
    /// Boot time. It shifts slightly when the clock is adjusted.
    pub boot_time: Option<Timestamp>,
    /// Random identifier, new with each boot.
    pub boot_id: Option<String>,
    pub command_line: KernelCommandLine,
    pub clock_source: Option<String>,
    pub clock_sources: Vec<String>,
    /// CPU vulnerabilities and the kernel's mitigation of each.
    pub mitigations: BTreeMap<String, String>,
    pub security_modules: Option<String>,
    /// Type of the container that the agent runs in.
    pub container: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OsDistribution {
    pub name: Option<String>,
    pub id: Option<String>,
    pub version: Option<String>,
}

pub(crate) fn read(machine: &MachineFiles) -> KernelInfo {
    const CLOCK: &str = "sys/devices/system/clocksource/clocksource0";
    let of_kernel = |file: &str| machine.text(format!("proc/sys/kernel/{file}"));
    let clock_sources = machine.text(format!("{CLOCK}/available_clocksource"));
    let os_release = machine
        .text("etc/os-release")
        .or_else(|| machine.text("usr/lib/os-release"));
    let command_line = machine.text("proc/cmdline").unwrap_or_default();
    KernelInfo {
        release: of_kernel("osrelease"),
        version: of_kernel("version"),
        distribution: distribution(os_release.as_deref().unwrap_or_default()),
        boot_time: boot_time(machine),
        boot_id: of_kernel("random/boot_id"),
        command_line: command_line::read(&command_line),
        clock_source: machine.text(format!("{CLOCK}/current_clocksource")),
        clock_sources: clock_sources
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        mitigations: mitigations(machine),
        security_modules: machine.text("sys/kernel/security/lsm"),
        container: container(machine),
    }
}

/// Returns the boot time: on the local machine the difference of two clocks, precise to the
/// millisecond; for a fixture tree `btime` in `/proc/stat`, which has whole seconds only.
fn boot_time(machine: &MachineFiles) -> Option<Timestamp> {
    if machine.is_local() {
        use rustix::time::{ClockId, clock_gettime};
        let millis = |clock| {
            let time = clock_gettime(clock);
            time.tv_sec * 1000 + time.tv_nsec / 1_000_000
        };
        return Some(Timestamp(
            millis(ClockId::Realtime) - millis(ClockId::Boottime),
        ));
    }
    let seconds = boot_time_seconds(machine.text("proc/stat")?.as_bytes())?;
    Some(Timestamp(i64::try_from(seconds).ok()?.checked_mul(1000)?))
}

fn distribution(os_release: &str) -> OsDistribution {
    let value = |key: &str| os_release_value(os_release, key);
    OsDistribution {
        name: value("PRETTY_NAME").or_else(|| value("NAME")),
        id: value("ID"),
        version: value("VERSION_ID"),
    }
}

fn mitigations(machine: &MachineFiles) -> BTreeMap<String, String> {
    const FOLDER: &str = "sys/devices/system/cpu/vulnerabilities";
    let read = |name: String| {
        let text = machine.text(format!("{FOLDER}/{name}"))?;
        Some((name, text))
    };
    machine.names(FOLDER).into_iter().filter_map(read).collect()
}

fn container(machine: &MachineFiles) -> Option<String> {
    if let Some(kind) = machine.text("run/systemd/container") {
        return Some(kind);
    }
    let markers = [(".dockerenv", "docker"), ("run/.containerenv", "podman")];
    let marker = markers.iter().find(|(path, _)| machine.exists(path));
    marker.map(|(_, kind)| (*kind).to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_local_boot_time_agrees_with_btime_and_uptime() {
        let machine = MachineFiles::at("/");
        let boot = boot_time(&machine).expect("known").0;
        let stat = std::fs::read_to_string("/proc/stat").expect("read");
        let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "));
        let seconds: i64 = seconds.expect("btime").trim().parse().expect("a number");
        assert!((boot - seconds * 1000).abs() < 2000, "{boot} and {seconds}");
        let uptime = std::fs::read_to_string("/proc/uptime").expect("read");
        let uptime: f64 = uptime
            .split(' ')
            .next()
            .and_then(|t| t.parse().ok())
            .expect("a number");
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        let other = now.as_millis() as i64 - (uptime * 1000.0) as i64;
        assert!((boot - other).abs() < 500, "{boot} and {other}");
    }

    #[test]
    fn os_release_gives_name_id_and_version() {
        let found = distribution(
            "PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\nVERSION_ID='12'\nNAME=\n",
        );
        assert_eq!(found.name.as_deref(), Some("Debian GNU/Linux 12"));
        assert_eq!(
            (found.id.as_deref(), found.version.as_deref()),
            (Some("debian"), Some("12"))
        );
        assert_eq!(distribution(""), OsDistribution::default());
    }
}
