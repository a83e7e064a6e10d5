//! Bonded network interfaces, from `/sys/class/net/bonding_masters` and `/sys/class/net/<bond>/bonding/slaves`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::attribute::attribute_text;
use crate::cursor_map::CursorMap;
use crate::device_slots::{DeviceSlots, shared_families};
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome,
    Tier,
};

static SLAVES: Family = Family::new(
    "node_bonding_slaves",
    MetricKind::Gauge,
    "",
    2,
    "Number of interfaces in the bond.",
);
static ACTIVE: Family = Family::new(
    "node_bonding_active",
    MetricKind::Gauge,
    "",
    2,
    "Number of interfaces in the bond whose link is up.",
);
static FAMILIES: [&Family; 2] = [&SLAVES, &ACTIVE];

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "bonding",
    tier: Tier::FiveSeconds,
    execution: Execution::Inline,
    level: 2,
    families: &FAMILIES,
    open,
};

#[derive(Debug)]
struct Bonding {
    folder: PathBuf,
    families: Vec<Arc<Family>>,
    masters: CursorMap<DeviceSlots>,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let folder = context.host.sys.join("class/net");
    let looked_for = folder.join("bonding_masters");
    if !looked_for.exists() {
        return Ok(OpenOutcome::Absent { looked_for });
    }
    Ok(OpenOutcome::Active(Box::new(Bonding {
        folder,
        families: shared_families(&FAMILIES),
        masters: CursorMap::new(),
    })))
}

impl Collector for Bonding {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        let list = self.folder.join("bonding_masters");
        let families = &self.families;
        self.masters.begin_pass();
        for master in attribute_text(&list).unwrap_or_default().split_whitespace() {
            let (slaves, active) = count_slaves(&self.folder.join(master));
            let set = self
                .masters
                .entry(master.as_bytes(), || Ok(DeviceSlots::new(families)))
                .and_then(|places| {
                    let labels = [("master", master)];
                    places.set(out, families, 0, &labels, slaves as f64)?;
                    Ok(places.set(out, families, 1, &labels, active as f64)?)
                });
            set.map_err(|fault| fault.at_path(&list))?;
        }
        self.masters.sweep(|places| places.retire(out));
        Ok(())
    }
}

/// Returns the number of interfaces in a bond and how many of them have a link.
fn count_slaves(master: &Path) -> (usize, usize) {
    let slaves = attribute_text(&master.join("bonding/slaves")).unwrap_or_default();
    let is_active = |slave: &&str| {
        // Kernels before 3.13 name the symlink to the interface `slave_<name>`.
        let status = ["lower_", "slave_"].iter().find_map(|prefix| {
            let slave = master.join(format!("{prefix}{slave}"));
            attribute_text(&slave.join("bonding_slave/mii_status"))
        });
        status.as_deref() == Some("up")
    };
    let active = slaves.split_whitespace().filter(is_active).count();
    (slaves.split_whitespace().count(), active)
}
