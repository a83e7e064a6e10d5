//! I/O of each block device, from `/proc/diskstats`, with properties of the device from the udev
//! database (`/run/udev/data`).
//!
//! Runs on the sampler's thread at every tick and allocates nothing per sample. Partitions, loop
//! devices and RAM disks are excluded, as in node_exporter. udev data is read once per device, and
//! retried while it is missing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Clock, SampleGroup};

use super::disk_udev_info::UdevDiskInfo;
use crate::cursor_map::CursorMap;
use crate::families::families;
use crate::file_collector::{FileParser, open_list};
use crate::proc_parse::{ProcParseError, Words, label_value, lines, parse_u64, parse_u64s};
use crate::series_table::SeriesTable;
use crate::{CollectorEntry, Context, OpenResult, Tier};

/// The number of columns after the device name. Kernels before 4.18 have the first 11, kernels
/// before 5.5 the first 15.
const COLUMNS: usize = 17;
const COLUMNS_MIN: usize = 11;

// The columns in their order, then the properties from udev.
families! {
    sources: DiskColumnUnit;
    READS Counter 2 "node_disk_reads_completed_total" "" "Total number of reads completed." <- DiskColumnUnit::One;
    READS_MERGED Counter 2 "node_disk_reads_merged_total" "" "Total number of reads merged." <- DiskColumnUnit::One;
    READ_BYTES Counter 2 "node_disk_read_bytes_total" "bytes" "Total number of bytes read." <- DiskColumnUnit::Sectors;
    READ_TIME Counter 2 "node_disk_read_time_seconds_total" "seconds" "Total time spent by all reads, in seconds." <- DiskColumnUnit::Millis;
    WRITES Counter 2 "node_disk_writes_completed_total" "" "Total number of writes completed." <- DiskColumnUnit::One;
    WRITES_MERGED Counter 2 "node_disk_writes_merged_total" "" "Total number of writes merged." <- DiskColumnUnit::One;
    WRITTEN_BYTES Counter 2 "node_disk_written_bytes_total" "bytes" "Total number of bytes written." <- DiskColumnUnit::Sectors;
    WRITE_TIME Counter 2 "node_disk_write_time_seconds_total" "seconds" "Total time spent by all writes, in seconds." <- DiskColumnUnit::Millis;
    IO_NOW Gauge 2 "node_disk_io_now" "" "Number of I/O requests in progress." <- DiskColumnUnit::One;
    IO_TIME Counter 2 "node_disk_io_time_seconds_total" "seconds" "Total time with I/O requests in progress, in seconds." <- DiskColumnUnit::Millis;
    IO_WEIGHTED Counter 2 "node_disk_io_time_weighted_seconds_total" "seconds" "Total time with I/O requests in progress, weighted by their number, in seconds." <- DiskColumnUnit::Millis;
    DISCARDS Counter 2 "node_disk_discards_completed_total" "" "Total number of discards completed." <- DiskColumnUnit::One;
    DISCARDS_MERGED Counter 2 "node_disk_discards_merged_total" "" "Total number of discards merged." <- DiskColumnUnit::One;
    DISCARDED Counter 2 "node_disk_discarded_sectors_total" "" "Total number of sectors discarded." <- DiskColumnUnit::One;
    DISCARD_TIME Counter 2 "node_disk_discard_time_seconds_total" "seconds" "Total time spent by all discards, in seconds." <- DiskColumnUnit::Millis;
    FLUSHES Counter 2 "node_disk_flush_requests_total" "" "Total number of flush requests completed." <- DiskColumnUnit::One;
    FLUSH_TIME Counter 2 "node_disk_flush_requests_time_seconds_total" "seconds" "Total time spent by all flush requests, in seconds." <- DiskColumnUnit::Millis;
    INFO Gauge 2 "node_disk_info" "" "Model, serial number and path of the block device; always 1.";
    FILE_SYSTEM Gauge 2 "node_disk_filesystem_info" "" "File system on the block device; always 1.";
    DEVICE_MAPPER Gauge 2 "node_disk_device_mapper_info" "" "Device-mapper name, UUID and logical volume of the block device; always 1.";
    WRITE_CACHE Gauge 2 "node_disk_ata_write_cache" "" "1 if the ATA disk has a write cache, otherwise 0.";
    WRITE_CACHE_ENABLED Gauge 2 "node_disk_ata_write_cache_enabled" "" "1 if the write cache of the ATA disk is enabled, otherwise 0.";
    ROTATION Gauge 2 "node_disk_ata_rotation_rate_rpm" "" "Rotation rate of the ATA disk in revolutions per minute; 0 for SSDs.";
}

pub static ENTRY: CollectorEntry = CollectorEntry::inline("disk", Tier::Fast, FAMILIES, open);

/// The unit of a column, and its conversion to a base unit.
#[derive(Debug, Clone, Copy)]
pub(super) enum DiskColumnUnit {
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

fn open(context: &Context) -> OpenResult {
    let readings = DiskReadings::new(context.host.udev.clone(), context.clock.clone());
    open_list(context, "proc/diskstats", readings)
}

#[derive(Debug)]
struct DiskReadings {
    udev: PathBuf,
    clock: Arc<dyn Clock>,
    columns: SeriesTable,
    disks: CursorMap<DiskProperties>,
}

#[derive(Debug, Default)]
struct DiskProperties {
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

impl DiskReadings {
    fn new(udev: PathBuf, clock: Arc<dyn Clock>) -> DiskReadings {
        DiskReadings {
            udev,
            clock,
            columns: SeriesTable::new(&FAMILIES[..COLUMNS]),
            disks: CursorMap::new(),
        }
    }

    fn update_disk(
        &mut self,
        line: &DiskLine<'_>,
        now: Duration,
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        // A missing column is absent, not zero.
        let columns = SOURCES.iter().zip(line.columns).take(line.count);
        let values = columns.map(|((_, unit), value)| Some(unit.apply(value)));
        self.columns
            .set_device(out, "device", line.device, values)?;
        let disk = self
            .disks
            .entry(line.device, || Ok(DiskProperties::default()))?;
        // Another device may have taken the name between two passes.
        let number = (line.major, line.minor);
        let is_another = disk.number != Some(number);
        if is_another
            || !disk.info.has_udev_data() && now.saturating_sub(disk.udev_read_at) >= UDEV_RETRY
        {
            (disk.number, disk.udev_read_at) = (Some(number), now);
            disk.info.retire(out);
            let device = label_value(line.device);
            disk.info = UdevDiskInfo::read_udev(&self.udev, line.major, line.minor, &device, out)?;
        }
        disk.info.set(out);
        Ok(())
    }
}

impl FileParser for DiskReadings {
    /// Parses the file. An empty file is valid: the node has no disks.
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let now = self.clock.monotonic();
        self.columns.begin_pass();
        self.disks.begin_pass();
        for (number, line) in lines(text)? {
            let malformed =
                ProcParseError::at_line(number, "expected a block device and its counters");
            let mut words = Words(line);
            let [major, minor, device] = [words.next(), words.next(), words.next()];
            let device = device.ok_or(malformed.clone())?;
            if is_excluded(device) {
                continue;
            }
            let line = parse(major, minor, device, words).ok_or(malformed)?;
            self.update_disk(&line, now, out)?;
        }
        self.columns.end_pass(out);
        self.disks.sweep(|disk| disk.info.retire(out));
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

/// Returns whether node_exporter excludes the device by default: RAM disks, loop devices, floppies
/// and partitions, that is `^(ram|loop|fd|(h|s|v|xv)d[a-z]|nvme\d+n\d+p)\d+$`.
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
    use std::sync::atomic::AtomicI64;

    use super::*;
    use crate::collectors::testing::{SettableClock, present_series, update_fails};

    fn readings() -> DiskReadings {
        let clock = Arc::new(SettableClock(AtomicI64::new(0)));
        DiskReadings::new(PathBuf::from("/nonexistent"), clock)
    }

    fn pass(readings: &mut DiskReadings, group: &mut SampleGroup, text: &[u8]) -> Vec<String> {
        group.clear();
        readings.update(text, group).expect("valid");
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
        let update = |text: &[u8]| readings().update(text, &mut SampleGroup::new("disk", 3, 1000));
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
