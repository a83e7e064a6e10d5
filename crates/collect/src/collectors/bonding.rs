//! Bonded network interfaces, from `/sys/class/net/bonding_masters` and
//! `/sys/class/net/<bond>/bonding/slaves`.

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk_if_exists};
use crate::{CollectorEntry, Tier};

families! {
    SLAVES Gauge 2 "node_bonding_slaves" "" "Number of interfaces in the bond.";
    ACTIVE Gauge 2 "node_bonding_active" "" "Number of interfaces in the bond whose link is up.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("bonding", Tier::FiveSeconds, FAMILIES, |context| {
        open_walk_if_exists(context, "sys/class/net", "bonding_masters", Bonds)
    });

#[derive(Debug)]
struct Bonds;

impl SysfsWalk for Bonds {
    fn walk(&mut self, class: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        let masters = class.text("bonding_masters").unwrap_or_default();
        for master in masters.split_whitespace() {
            let (slaves, active) = count_slaves(class, master);
            let labels = [("master", master)];
            put.set(&SLAVES, &labels, slaves as f64)?;
            put.set(&ACTIVE, &labels, active as f64)?;
        }
        Ok(())
    }
}

/// Returns the number of interfaces in a bond and how many of them have a link.
fn count_slaves(class: &SysfsDir, master: &str) -> (usize, usize) {
    let slaves = class.text(&format!("{master}/bonding/slaves"));
    let slaves = slaves.unwrap_or_default();
    let is_active = |slave: &&str| {
        // Kernels before 3.13 name the symlink to the interface `slave_<name>`.
        let status = ["lower_", "slave_"].iter().find_map(|prefix| {
            class.text(&format!(
                "{master}/{prefix}{slave}/bonding_slave/mii_status"
            ))
        });
        status.as_deref() == Some("up")
    };
    let active = slaves.split_whitespace().filter(is_active).count();
    (slaves.split_whitespace().count(), active)
}
