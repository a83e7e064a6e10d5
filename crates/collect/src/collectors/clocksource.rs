//! Available and current clock sources of the kernel, from `/sys/devices/system/clocksource`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::attribute::{attribute_text, directory_names};
use crate::info_series::InfoSeries;
use crate::proc_parse::{ProcParseError, label_value};
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome,
    Tier,
};

static AVAILABLE: Family = Family::new(
    "node_time_clocksource_available_info",
    MetricKind::Gauge,
    "",
    2,
    "Clock source that is available; always 1.",
);
static CURRENT: Family = Family::new(
    "node_time_clocksource_current_info",
    MetricKind::Gauge,
    "",
    2,
    "Clock source in use; always 1.",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "clocksource",
    tier: Tier::Minute,
    execution: Execution::Inline,
    level: 2,
    families: &[&AVAILABLE, &CURRENT],
    open,
};

#[derive(Debug)]
struct Clocksource {
    folder: PathBuf,
    /// By device; in practice there is one.
    devices: BTreeMap<OsString, ClocksourceDevice>,
}

#[derive(Debug)]
struct ClocksourceDevice {
    current: InfoSeries,
    available: Vec<InfoSeries>,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let folder = context.host.sys.join("devices/system/clocksource");
    if !folder.is_dir() {
        return Ok(OpenOutcome::Absent { looked_for: folder });
    }
    Ok(OpenOutcome::Active(Box::new(Clocksource {
        folder,
        devices: BTreeMap::new(),
    })))
}

impl Collector for Clocksource {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        for name in directory_names(&self.folder) {
            let Some(number) = name.as_bytes().strip_prefix(b"clocksource") else {
                continue;
            };
            let number = label_value(number).into_owned();
            let path = self.folder.join(&name);
            let device = self
                .devices
                .entry(name)
                .or_insert_with(|| ClocksourceDevice {
                    current: InfoSeries::new(&CURRENT),
                    available: Vec::new(),
                });
            let attribute = |name: &str| attribute_text(&path.join(name)).unwrap_or_default();
            let set = device.set(
                &number,
                &attribute("current_clocksource"),
                &attribute("available_clocksource"),
                out,
            );
            set.map_err(|fault| fault.at_path(&path))?;
        }
        Ok(())
    }
}

impl ClocksourceDevice {
    fn set(
        &mut self,
        number: &str,
        current: &str,
        available: &str,
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        let labels = |source: &str| {
            vec![
                ("device", number.to_owned()),
                ("clocksource", source.to_owned()),
            ]
        };
        if !current.is_empty() {
            self.current.set(out, labels(current), 1.0)?;
        }
        let count = available.split_whitespace().count();
        // A removed source shifts the following ones: retire all, so that no two series have the same labels for a moment.
        if count < self.available.len() {
            self.available
                .drain(..)
                .for_each(|mut fact| fact.retire(out));
        }
        self.available
            .resize_with(count, || InfoSeries::new(&AVAILABLE));
        for (fact, source) in self.available.iter_mut().zip(available.split_whitespace()) {
            fact.set(out, labels(source), 1.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::present_series;

    #[test]
    fn a_removed_source_is_retired() {
        let mut group = SampleGroup::new("clocksource", 3, 1000);
        let mut device = ClocksourceDevice {
            current: InfoSeries::new(&CURRENT),
            available: Vec::new(),
        };
        for (current, available, count) in [("tsc", "tsc hpet acpi_pm", 4), ("hpet", "hpet", 2)] {
            group.clear();
            device
                .set("0", current, available, &mut group)
                .expect("valid");
            let found = present_series(&mut group);
            assert_eq!(found.len(), count, "{found:?}");
            let expected = format!(
                "node_time_clocksource_current_info{{clocksource=\"{current}\",device=\"0\"}} 1"
            );
            assert!(found.contains(&expected), "{found:?}");
        }
    }
}
