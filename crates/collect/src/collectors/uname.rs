//! Kernel version, architecture and host name of the node, from `/proc/sys/kernel`.

use std::path::PathBuf;

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::attribute::attribute_text;
use crate::info_series::InfoSeries;
use crate::proc_parse::ProcParseError;
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome,
    Tier,
};

static INFO: Family = Family::new(
    "node_uname_info",
    MetricKind::Gauge,
    "",
    2,
    "Kernel version, architecture and host name of the node; always 1.",
);

/// Labels and the files they come from.
const FILES: [(&str, &str); 5] = [
    ("sysname", "ostype"),
    ("release", "osrelease"),
    ("version", "version"),
    ("nodename", "hostname"),
    ("domainname", "domainname"),
];

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "uname",
    tier: Tier::Minute,
    execution: Execution::Inline,
    level: 2,
    families: &[&INFO],
    open,
};

#[derive(Debug)]
struct Uname {
    folder: PathBuf,
    info: InfoSeries,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let folder = context.host.proc.join("sys/kernel");
    let looked_for = folder.join("osrelease");
    if !looked_for.exists() {
        return Ok(OpenOutcome::Absent { looked_for });
    }
    Ok(OpenOutcome::Active(Box::new(Uname {
        folder,
        info: InfoSeries::new(&INFO),
    })))
}

impl Collector for Uname {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        let read = |name: &str| attribute_text(&self.folder.join(name));
        let mut labels: Vec<(&str, String)> = FILES
            .map(|(key, name)| (key, read(name).unwrap_or_default()))
            .into();
        // The file exists since Linux 6.1; on older kernels use the architecture of the running machine.
        let machine = read("arch").unwrap_or_else(|| {
            let uname = rustix::system::uname();
            uname.machine().to_string_lossy().into_owned()
        });
        labels.push(("machine", machine));
        let set = self.info.set(out, labels, 1.0);
        set.map_err(|error| ProcParseError::from(error).at_path(&self.folder))
    }
}
