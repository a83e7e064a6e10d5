//! I/O of each block device, from `/proc/diskstats`, with properties of the device from the udev database
//! (`/run/udev/data`).
//!
//! Runs on the sampler's thread at every tick and allocates nothing per sample. Partitions, loop devices and RAM
//! disks are excluded, as in node_exporter. udev data is read once per device, and retried while it is missing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Clock, Family, MetricKind, SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::proc_file::{ProcFile, ReadMode};
use crate::proc_parse::{ProcParseError, Words, label_value, lines, parse_u64, parse_u64s};
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome,
    Tier,
};

use super::disk_udev_info::{self, UdevDiskInfo};

/// The number of columns after the device name. Kernels before 4.18 have the first 11, kernels before 5.5 the first 15.
const COLUMNS: usize = 17;
const COLUMNS_MIN: usize = 11;

macro_rules! columns {
    ($($static:ident $kind:ident $name:literal $unit:literal $scale:ident $help:literal;)*) => {
        $(static $static: Family =
            Family::new(concat!("node_disk_", $name), MetricKind::$kind, $unit, 2, $help);)*
        static FAMILIES: [(&Family, DiskColumnUnit); COLUMNS] = [$((&$static, DiskColumnUnit::$scale)),*];
        static ALL_FAMILIES: &[&Family] = &[
            $(&$static,)*
            &disk_udev_info::INFO, &disk_udev_info::FILE_SYSTEM, &disk_udev_info::DEVICE_MAPPER,
            &disk_udev_info::WRITE_CACHE, &disk_udev_info::WRITE_CACHE_ENABLED, &disk_udev_info::ROTATION,
        ];
    };
}

// In the order of the columns.
columns! {
    READS Counter "reads_completed_total" "" One "Total number of reads completed.";
    READS_MERGED Counter "reads_merged_total" "" One "Total number of reads merged.";
    READ_BYTES Counter "read_bytes_total" "bytes" Sectors "Total number of bytes read.";
    READ_TIME Counter "read_time_seconds_total" "seconds" Millis "Total time spent by all reads, in seconds.";
    WRITES Counter "writes_completed_total" "" One "Total number of writes completed.";
    WRITES_MERGED Counter "writes_merged_total" "" One "Total number of writes merged.";
    WRITTEN_BYTES Counter "written_bytes_total" "bytes" Sectors "Total number of bytes written.";
    WRITE_TIME Counter "write_time_seconds_total" "seconds" Millis "Total time spent by all writes, in seconds.";
    IO_NOW Gauge "io_now" "" One "Number of I/O requests in progress.";
    IO_TIME Counter "io_time_seconds_total" "seconds" Millis "Total time with I/O requests in progress, in seconds.";
    IO_WEIGHTED Counter "io_time_weighted_seconds_total" "seconds" Millis "Total time with I/O requests in progress, weighted by their number, in seconds.";
    DISCARDS Counter "discards_completed_total" "" One "Total number of discards completed.";
    DISCARDS_MERGED Counter "discards_merged_total" "" One "Total number of discards merged.";
    DISCARDED Counter "discarded_sectors_total" "" One "Total number of sectors discarded.";
    DISCARD_TIME Counter "discard_time_seconds_total" "seconds" Millis "Total time spent by all discards, in seconds.";
    FLUSHES Counter "flush_requests_total" "" One "Total number of flush requests completed.";
    FLUSH_TIME Counter "flush_requests_time_seconds_total" "seconds" Millis "Total time spent by all flush requests, in seconds.";
}

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "disk",
    tier: Tier::Fast,
    execution: Execution::Inline,
    level: 2,
    families: ALL_FAMILIES,
    open,
};

/// The unit of a column, and its conversion to a base unit.
#[derive(Debug, Clone, Copy)]
enum DiskColumnUnit {
    One,
    /// Always 512 bytes, independent of the device.
    Sectors,
    Millis,
}

impl DiskColumnUnit {
    #[inline]
    fn apply(self, value: u64) -> f64 {
        match self {
            DiskColumnUnit::One => value as f64,
            DiskColumnUnit::Sectors => value as f64 * 512.0,
            DiskColumnUnit::Millis => value as f64 / 1000.0,
        }
    }
}

/// Interval between retries: a device may appear before udev has processed it.
const UDEV_RETRY: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct DiskCollector {
    file: ProcFile,
    clock: Arc<dyn Clock>,
    readings: DiskReadings,
}

#[derive(Debug)]
struct DiskReadings {
    udev: PathBuf,
    families: Vec<Arc<Family>>,
    disks: CursorMap<DiskSlots>,
}

#[derive(Debug, Default)]
struct DiskSlots {
    /// One for each column of this kernel.
    slots: Vec<Slot>,
    /// Major and minor number, the key of the udev database.
    number: Option<(u64, u64)>,
    info: UdevDiskInfo,
    /// The monotonic time at which the udev data was last read.
    udev_read_at: Duration,
}

#[derive(Debug, PartialEq, Eq)]
struct DiskLine<'a> {
    major: u64,
    minor: u64,
    device: &'a [u8],
    columns: [u64; COLUMNS],
    count: usize,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let path = context.host.proc.join("diskstats");
    let Some(file) = ProcFile::open(path.clone(), ReadMode::UntilEof)? else {
        return Ok(OpenOutcome::Absent { looked_for: path });
    };
    let readings = DiskReadings::new(context.host.udev.clone());
    Ok(OpenOutcome::Active(Box::new(DiskCollector {
        file,
        clock: context.clock.clone(),
        readings,
    })))
}

impl Collector for DiskCollector {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        let now = self.clock.monotonic();
        let text = self.file.read()?;
        self.readings
            .update(text, now, out)
            .map_err(|fault| fault.at_path(self.file.path()))
    }
}

impl DiskReadings {
    fn new(udev: PathBuf) -> DiskReadings {
        let families = FAMILIES
            .iter()
            .map(|(family, _)| Arc::new((*family).clone()))
            .collect();
        DiskReadings {
            udev,
            families,
            disks: CursorMap::new(),
        }
    }

    /// Parses the file. An empty file is valid: the node has no disks.
    fn update(
        &mut self,
        text: &[u8],
        now: Duration,
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        self.disks.begin_pass();
        for (number, line) in lines(text)? {
            let malformed = ProcParseError::Malformed {
                line: number,
                what: "expected a block device and its counters",
            };
            let mut words = Words(line);
            let [major, minor, device] = [words.next(), words.next(), words.next()];
            let device = device.ok_or(malformed.clone())?;
            if is_excluded(device) {
                continue;
            }
            let line = parse(major, minor, device, words).ok_or(malformed)?;
            self.update_disk(&line, now, out)?;
        }
        self.disks.sweep(|disk| {
            disk.slots.into_iter().for_each(|slot| out.retire(slot));
            disk.info.retire(out);
        });
        Ok(())
    }

    fn update_disk(
        &mut self,
        line: &DiskLine<'_>,
        now: Duration,
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        let (udev, families) = (&self.udev, &self.families);
        let disk = self.disks.entry(line.device, || Ok(DiskSlots::default()))?;
        if disk.slots.len() != line.count {
            // A missing column is absent, not zero.
            disk.slots.drain(..).for_each(|slot| out.retire(slot));
            let device = label_value(line.device);
            for family in &families[..line.count] {
                disk.slots
                    .push(out.declare(family, &[("device", &device)])?);
            }
        }
        // Another device may have taken the name between two passes.
        let number = (line.major, line.minor);
        let is_another = disk.number != Some(number);
        if is_another
            || !disk.info.has_udev_data() && now.saturating_sub(disk.udev_read_at) >= UDEV_RETRY
        {
            (disk.number, disk.udev_read_at) = (Some(number), now);
            disk.info.retire(out);
            disk.info = UdevDiskInfo::read_udev(
                udev,
                line.major,
                line.minor,
                &label_value(line.device),
                out,
            )?;
        }
        for ((&slot, &value), (_, scale)) in disk.slots.iter().zip(&line.columns).zip(&FAMILIES) {
            out.set(slot, scale.apply(value));
        }
        disk.info.set(out);
        Ok(())
    }
}

fn parse<'a>(
    major: Option<&[u8]>,
    minor: Option<&[u8]>,
    device: &'a [u8],
    words: Words<'_>,
) -> Option<DiskLine<'a>> {
    let (major, minor) = (parse_u64(major?)?, parse_u64(minor?)?);
    let mut columns = [0; COLUMNS];
    let count = parse_u64s(words, &mut columns)?;
    (count >= COLUMNS_MIN).then_some(DiskLine {
        major,
        minor,
        device,
        columns,
        count,
    })
}

/// Returns whether node_exporter excludes the device by default: RAM disks, loop devices, floppies and partitions, that
/// is `^(ram|loop|fd|(h|s|v|xv)d[a-z]|nvme\d+n\d+p)\d+$`.
fn is_excluded(device: &[u8]) -> bool {
    let digits = device
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let stem = &device[..device.len() - digits];
    if digits == 0 {
        return false;
    }
    match stem {
        b"ram" | b"loop" | b"fd" => true,
        [b'h' | b's' | b'v', b'd', letter] | [b'x', b'v', b'd', letter] => {
            letter.is_ascii_lowercase()
        }
        _ => is_nvme_partition(stem),
    }
}

/// Matches names such as `nvme0n1p`, from which the partition number has been removed.
fn is_nvme_partition(stem: &[u8]) -> bool {
    let after_digits =
        |text: &'_ [u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let Some(rest) = stem.strip_prefix(b"nvme") else {
        return false;
    };
    let controller = after_digits(rest);
    let Some(rest) = rest[controller..].strip_prefix(b"n") else {
        return false;
    };
    let namespace = after_digits(rest);
    controller > 0 && namespace > 0 && &rest[namespace..] == b"p"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    fn readings() -> DiskReadings {
        DiskReadings::new(PathBuf::from("/nonexistent"))
    }

    fn pass(readings: &mut DiskReadings, group: &mut SampleGroup, text: &[u8]) -> Vec<String> {
        group.clear();
        readings.update(text, Duration::ZERO, group).expect("valid");
        present_series(group)
    }

    #[test]
    fn partitions_and_loop_devices_are_excluded() {
        for name in [
            "ram0",
            "loop12",
            "fd0",
            "sda1",
            "hdb12",
            "vdc3",
            "xvda1",
            "nvme0n1p1",
            "nvme10n2p15",
        ] {
            assert!(is_excluded(name.as_bytes()), "{name}");
        }
        for name in [
            "sda",
            "sdaa1",
            "nvme0n1",
            "nvme0c0n1",
            "dm-0",
            "md127",
            "vda",
            "xvda",
            "zram0",
            "sr0",
            "mmcblk0p1",
            "nvmen1p1",
            "nvme0np1",
            "nvme0n1px1",
            "loop",
            "sdA1",
            "1",
            "",
        ] {
            assert!(!is_excluded(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn old_kernels_have_fewer_columns() {
        for (count, expected) in [(11, 11), (15, 15), (17, 17), (20, 17)] {
            let columns: Vec<String> = (1..=count).map(|column| column.to_string()).collect();
            let text = format!("   8       0 sda {}\n", columns.join(" "));
            let mut group = SampleGroup::new("disk", 3, 1000);
            let found = pass(&mut readings(), &mut group, text.as_bytes());
            assert_eq!(found.len(), expected + 1, "plus the info");
            assert_eq!(found[2], "node_disk_read_bytes_total{device=\"sda\"} 1536");
            assert_eq!(
                found[3],
                "node_disk_read_time_seconds_total{device=\"sda\"} 0.004"
            );
        }
    }

    #[test]
    fn columns_appear_and_disappear() {
        let (mut readings, mut group) = (readings(), SampleGroup::new("disk", 3, 1000));
        for count in [17, 11, 15, 17, 17] {
            let columns = vec!["7"; count].join(" ");
            let found = pass(
                &mut readings,
                &mut group,
                format!("8 0 sda {columns}\n").as_bytes(),
            );
            assert_eq!(found.len(), count + 1, "plus the info");
            assert!(!found.iter().any(|line| line.ends_with(" 0")), "{found:?}");
        }
        assert_eq!(group.members().series.len(), 18);
    }

    #[test]
    fn another_device_under_the_same_name_has_its_own_info() {
        let (mut readings, mut group) = (readings(), SampleGroup::new("disk", 3, 1000));
        for minor in [0, 16, 0] {
            let text = format!("8 {minor} sda 1 2 3 4 5 6 7 8 9 10 11\n");
            let found = pass(&mut readings, &mut group, text.as_bytes());
            let info = found.last().expect("the info");
            assert!(info.contains(&format!("minor=\"{minor}\"")), "{info}");
            assert_eq!(found.len(), 12);
        }
        assert_eq!(group.members().series.len(), 12);
    }

    #[test]
    fn disks_with_any_name_appear_and_disappear() {
        let (mut readings, mut group) = (readings(), SampleGroup::new("disk", 3, 1000));
        let one = b"8 0 d\xff 18446744073709551615 2 3 4 5 6 7 8 9 10 11\n";
        let found = pass(&mut readings, &mut group, one);
        assert_eq!(
            found[0],
            "node_disk_reads_completed_total{device=\"d\\\\xff\"} 1.8446744073709552e19"
        );
        assert_eq!(
            pass(&mut readings, &mut group, b""),
            Vec::<String>::new(),
            "a node without disks"
        );
        assert_eq!(pass(&mut readings, &mut group, one).len(), 12);
        assert_eq!(group.members().series.len(), 12, "its slots are reused");
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let update = |text: &[u8]| {
            readings().update(text, Duration::ZERO, &mut SampleGroup::new("disk", 3, 1000))
        };
        let what = "expected a block device and its counters";
        update_fails(
            update,
            &[
                (
                    "8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n8 16 sdb 1 2",
                    2,
                    "the last line is cut off",
                ),
                ("8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n8 16 sdb 1 2\n", 2, what),
                ("8 0 sda 1 2 3 4 5 6 7 8 9 10 x\n", 1, what),
                ("8 x sda 1 2 3 4 5 6 7 8 9 10 11\n", 1, what),
                (
                    "8 0 sda 1 2 3 4 5 6 7 8 9 10 18446744073709551616\n",
                    1,
                    what,
                ),
                ("8 0\n", 1, what),
                ("\n", 1, what),
            ],
        );
    }
}
