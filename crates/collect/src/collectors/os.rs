//! Linux distribution of the node, from `/etc/os-release` or `/usr/lib/os-release`.

use pegel_machine::os_release_value;

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::{ProcParseError, parse_decimal};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk_if_exists};
use crate::{CollectorEntry, Context, OpenOutcome, OpenResult, Tier};

families! {
    INFO Gauge 2 "node_os_info" "" "Distribution and its version; always 1.";
    VERSION Gauge 2 "node_os_version" "" "Major and minor version of the distribution, as a number.";
}

#[rustfmt::skip]
const LABELS: [&str; 12] = [
    "build_id", "id", "id_like", "image_id", "image_version", "name", "pretty_name", "variant", "variant_id",
    "version", "version_codename", "version_id",
];
const VERSION_LABELS: [&str; 3] = ["id", "id_like", "name"];
const PATHS: [&str; 2] = ["etc/os-release", "usr/lib/os-release"];

pub static ENTRY: CollectorEntry = CollectorEntry::inline("os", Tier::Minute, FAMILIES, open);

/// The path of the file, relative to the root directory.
#[derive(Debug)]
struct OsRelease(&'static str);

fn open(context: &Context) -> OpenResult {
    let root = &context.host.root;
    match PATHS.into_iter().find(|path| root.join(path).exists()) {
        Some(path) => open_walk_if_exists(context, "", path, OsRelease(path)),
        None => OpenOutcome::absent(root.join(PATHS[0])),
    }
}

impl SysfsWalk for OsRelease {
    fn walk(&mut self, root: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        let text = root.text(self.0).unwrap_or_default();
        let value = |label: &str| os_release_value(&text, &label.to_ascii_uppercase());
        let labels = LABELS.map(|label| (label, value(label).unwrap_or_default()));
        put.set_info(&INFO, &[], &labels)?;
        if let Some(version) = version(&labels[LABELS.len() - 1].1) {
            let of_version = |(label, _): &&(&str, String)| VERSION_LABELS.contains(label);
            let labels = labels.iter().filter(of_version);
            let labels: Vec<(&str, &str)> = labels.map(|(label, text)| (*label, &**text)).collect();
            put.set(&VERSION, &labels, version)?;
        }
        Ok(())
    }
}

/// Returns the version as a number: `22.04.1` is 22.04. `None` if it does not start with a number.
fn version(id: &str) -> Option<f64> {
    let is_number = |character: char| character.is_ascii_digit() || character == '.';
    let end = id.find(|c| !is_number(c)).unwrap_or(id.len());
    let mut parts = id[..end].split('.').filter(|part| !part.is_empty());
    let major = parts.next()?;
    match parts.next() {
        Some(minor) => parse_decimal(format!("{major}.{minor}").as_bytes()),
        None => parse_decimal(major.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_start_with_a_number_are_numbers() {
        for (id, expected) in [
            ("12", Some(12.0)),
            ("22.04", Some(22.04)),
            ("15.6.1", Some(15.6)),
            ("9.4-rc1", Some(9.4)),
            ("9.", Some(9.0)),
            ("rolling", None),
            ("", None),
            (".", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(version(id), expected, "{id}");
        }
    }
}
