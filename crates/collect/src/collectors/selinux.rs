//! State of SELinux, from `/sys/fs/selinux` and `/etc/selinux/config`.

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::attribute::{attribute_number, attribute_text};
use crate::proc_parse::ProcParseError;
use crate::unlabelled_series::UnlabelledSeries;
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, Execution, Host,
    OpenOutcome, Tier,
};

static ENABLED: Family = Family::new(
    "node_selinux_enabled",
    MetricKind::Gauge,
    "",
    2,
    "1 if SELinux is enabled, otherwise 0.",
);
static CONFIGURED: Family = Family::new(
    "node_selinux_config_mode",
    MetricKind::Gauge,
    "",
    2,
    "Configured mode: 1 enforcing, 0 permissive, -1 disabled.",
);
static CURRENT: Family = Family::new(
    "node_selinux_current_mode",
    MetricKind::Gauge,
    "",
    2,
    "Current mode: 1 enforcing, 0 permissive.",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "selinux",
    tier: Tier::Minute,
    execution: Execution::Inline,
    level: 2,
    families: &[&ENABLED, &CONFIGURED, &CURRENT],
    open,
};

#[derive(Debug)]
struct Selinux {
    host: Host,
    enabled: UnlabelledSeries,
    configured: UnlabelledSeries,
    current: UnlabelledSeries,
}

/// Opens the collector; it is never absent on a node with `/sys`, so that a disabled SELinux is visible.
fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let sys = context.host.sys.clone();
    if !sys.is_dir() {
        return Ok(OpenOutcome::Absent { looked_for: sys });
    }
    Ok(OpenOutcome::Active(Box::new(Selinux {
        host: context.host.clone(),
        enabled: UnlabelledSeries::new(&ENABLED),
        configured: UnlabelledSeries::new(&CONFIGURED),
        current: UnlabelledSeries::new(&CURRENT),
    })))
}

impl Collector for Selinux {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        let path = self.host.sys.join("fs/selinux/enforce");
        let set = self.set(attribute_number(&path), out);
        set.map_err(|fault| fault.at_path(&path))
    }
}

impl Selinux {
    fn set(&mut self, enforce: Option<f64>, out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let Some(mode) = enforce else {
            return Ok(self.enabled.set(out, 0.0)?);
        };
        self.enabled.set(out, 1.0)?;
        self.current.set(out, mode)?;
        let config = attribute_text(&self.host.root.join("etc/selinux/config")).unwrap_or_default();
        Ok(self.configured.set(out, configured(&config))?)
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
