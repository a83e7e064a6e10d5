//! Kernel version, architecture and host name of the node, from `/proc/sys/kernel`.

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk_if_exists};
use crate::{CollectorEntry, Tier};

families! {
    INFO Gauge 2 "node_uname_info" "" "Kernel version, architecture and host name of the node; always 1.";
}

/// Labels and the files they come from.
const FILES: [(&str, &str); 5] = [
    ("sysname", "ostype"),
    ("release", "osrelease"),
    ("version", "version"),
    ("nodename", "hostname"),
    ("domainname", "domainname"),
];

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("uname", Tier::Minute, FAMILIES, |context| {
        open_walk_if_exists(context, "proc/sys/kernel", "osrelease", UnameFiles)
    });

#[derive(Debug)]
struct UnameFiles;

impl SysfsWalk for UnameFiles {
    fn walk(
        &mut self,
        kernel: &SysfsDir,
        put: &mut SeriesWriter<'_>,
    ) -> Result<(), ProcParseError> {
        let text = |file| kernel.text(file).unwrap_or_default();
        let mut labels: Vec<(&str, String)> = FILES.map(|(label, file)| (label, text(file))).into();
        // The file exists since Linux 6.1; on older kernels use the architecture of the running
        // machine.
        let machine = kernel.text("arch").unwrap_or_else(|| {
            let uname = rustix::system::uname();
            uname.machine().to_string_lossy().into_owned()
        });
        labels.push(("machine", machine));
        put.set_info(&INFO, &[], &labels)
    }
}
