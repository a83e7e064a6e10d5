//! Kernel and name of the node, from `/proc/sys/kernel`.

use std::path::PathBuf;

use pegel_metric::{Family, Group, Kind};

use crate::attribute::text;
use crate::fact::Fact;
use crate::scan::Fault;
use crate::{CollectError, Collector, Context, Entry, OpenError, Opened, Pace, Tier};

static INFO: Family = Family::new(
    "node_uname_info",
    Kind::Gauge,
    "",
    2,
    "Kernel, architecture and name of the node; always 1.",
);

/// Labels and the files that give them.
const FILES: [(&str, &str); 5] = [
    ("sysname", "ostype"),
    ("release", "osrelease"),
    ("version", "version"),
    ("nodename", "hostname"),
    ("domainname", "domainname"),
];

pub static ENTRY: Entry = Entry {
    name: "uname",
    tier: Tier::Minute,
    pace: Pace::Here,
    level: 2,
    families: &[&INFO],
    open,
};

#[derive(Debug)]
struct Uname {
    folder: PathBuf,
    info: Fact,
}

fn open(context: &Context) -> Result<Opened, OpenError> {
    let folder = context.host.proc.join("sys/kernel");
    let looked_for = folder.join("osrelease");
    if !looked_for.exists() {
        return Ok(Opened::Absent { looked_for });
    }
    Ok(Opened::Active(Box::new(Uname {
        folder,
        info: Fact::new(&INFO),
    })))
}

impl Collector for Uname {
    fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
        let said = |name: &str| text(&self.folder.join(name));
        let mut labels: Vec<(&str, String)> = FILES
            .map(|(key, name)| (key, said(name).unwrap_or_default()))
            .into();
        // Linux 6.1 and later say it in a file; before, it is that of the machine we run on.
        let machine = said("arch").unwrap_or_else(|| {
            let uname = rustix::system::uname();
            uname.machine().to_string_lossy().into_owned()
        });
        labels.push(("machine", machine));
        let set = self.info.set(out, labels, 1.0);
        set.map_err(|error| Fault::from(error).at(&self.folder))
    }
}
