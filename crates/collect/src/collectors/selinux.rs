//! State of SELinux, from `/sys/fs/selinux` and `/etc/selinux/config`.

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk_if_exists};
use crate::{CollectorEntry, Tier};

families! {
    ENABLED Gauge 2 "node_selinux_enabled" "" "1 if SELinux is enabled, otherwise 0.";
    CONFIGURED Gauge 2 "node_selinux_config_mode" "" "Configured mode: 1 enforcing, 0 permissive, -1 disabled.";
    CURRENT Gauge 2 "node_selinux_current_mode" "" "Current mode: 1 enforcing, 0 permissive.";
}

/// Opens the collector; it is never absent on a node with `/sys`, so that a disabled SELinux is
/// visible.
pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("selinux", Tier::Minute, FAMILIES, |context| {
        open_walk_if_exists(context, "", "sys", Selinux)
    });

#[derive(Debug)]
struct Selinux;

impl SysfsWalk for Selinux {
    fn walk(&mut self, root: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        let Some(mode) = root.number("sys/fs/selinux/enforce") else {
            return put.set(&ENABLED, &[], 0.0);
        };
        let config = root.text("etc/selinux/config").unwrap_or_default();
        put.set(&ENABLED, &[], 1.0)?;
        put.set(&CURRENT, &[], mode)?;
        put.set(&CONFIGURED, &[], configured(&config))
    }
}

fn configured(text: &str) -> f64 {
    let lines = text.lines().filter_map(|line| line.trim().split_once('='));
    let mut modes = lines.filter(|(key, _)| key.trim() == "SELINUX");
    match modes.next_back().map(|(_, mode)| mode.trim()) {
        Some("enforcing") => 1.0,
        Some("permissive") => 0.0,
        _ => -1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configured_mode_is_found_among_comments() {
        assert_eq!(
            configured("# SELINUX=disabled\nSELINUX=enforcing\nSELINUXTYPE=mls\n"),
            1.0
        );
        assert_eq!(configured("SELINUX = permissive\n"), 0.0);
        assert_eq!(configured("SELINUX=disabled\n"), -1.0);
        assert_eq!(configured(""), -1.0);
    }
}
