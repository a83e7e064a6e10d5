//! Input and output of each block device, from `/proc/diskstats`, and what udev knows about it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Clock, Family, Group, Kind, Slot};

use crate::procfile::{ProcFile, Shape};
use crate::roster::Roster;
use crate::scan::{Fault, Words, integer, integers, label, lines};
use crate::{CollectError, Collector, Context, Entry, OpenError, Opened, Pace, Tier};

use super::disk_udev_info::{self, UdevDiskInfo};

/// Columns after the device's name. Kernels before 4.18 have the first 11, before 5.5 the first 15.
const COLUMNS: usize = 17;
const COLUMNS_MIN: usize = 11;

macro_rules! columns {
    ($($static:ident $kind:ident $name:literal $unit:literal $scale:ident $help:literal;)*) => {
        $(static $static: Family =
            Family::new(concat!("node_disk_", $name), Kind::$kind, $unit, 2, $help);)*
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
    READS Counter "reads_completed_total" "" One "Reads completed.";
    READS_MERGED Counter "reads_merged_total" "" One "Reads merged with another one.";
    READ_BYTES Counter "read_bytes_total" "bytes" Sectors "Bytes read.";
    READ_TIME Counter "read_time_seconds_total" "seconds" Millis "Time spent by all reads.";
    WRITES Counter "writes_completed_total" "" One "Writes completed.";
    WRITES_MERGED Counter "writes_merged_total" "" One "Writes merged with another one.";
    WRITTEN_BYTES Counter "written_bytes_total" "bytes" Sectors "Bytes written.";
    WRITE_TIME Counter "write_time_seconds_total" "seconds" Millis "Time spent by all writes.";
    IO_NOW Gauge "io_now" "" One "Requests in progress.";
    IO_TIME Counter "io_time_seconds_total" "seconds" Millis "Time with requests in progress.";
    IO_WEIGHTED Counter "io_time_weighted_seconds_total" "seconds" Millis "Time with requests in progress, times their number.";
    DISCARDS Counter "discards_completed_total" "" One "Discards completed.";
    DISCARDS_MERGED Counter "discards_merged_total" "" One "Discards merged with another one.";
    DISCARDED Counter "discarded_sectors_total" "" One "Sectors discarded.";
    DISCARD_TIME Counter "discard_time_seconds_total" "seconds" Millis "Time spent by all discards.";
    FLUSHES Counter "flush_requests_total" "" One "Flushes completed.";
    FLUSH_TIME Counter "flush_requests_time_seconds_total" "seconds" Millis "Time spent by all flushes.";
}

pub static ENTRY: Entry = Entry {
    name: "disk",
    tier: Tier::Fast,
    pace: Pace::Here,
    level: 2,
    families: ALL_FAMILIES,
    open,
};

/// How a column becomes a base unit.
#[derive(Debug, Clone, Copy)]
enum DiskColumnUnit {
    One,
    /// Always of 512 bytes, whatever the device has.
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

/// A device may be there before udev has looked at it: how often to ask again.
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
    disks: Roster<DiskSlots>,
}

#[derive(Debug, Default)]
struct DiskSlots {
    /// One for each column that the kernel has.
    slots: Vec<Slot>,
    /// Major and minor, under which udev knows it.
    number: Option<(u64, u64)>,
    info: UdevDiskInfo,
    /// The monotonic time at which udev was asked.
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

fn open(context: &Context) -> Result<Opened, OpenError> {
    let path = context.host.proc.join("diskstats");
    let Some(file) = ProcFile::open(path.clone(), Shape::List)? else {
        return Ok(Opened::Absent { looked_for: path });
    };
    let readings = DiskReadings::new(context.host.udev.clone());
    Ok(Opened::Active(Box::new(DiskCollector {
        file,
        clock: context.clock.clone(),
        readings,
    })))
}

impl Collector for DiskCollector {
    fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
        let now = self.clock.monotonic();
        let text = self.file.read()?;
        self.readings
            .update(text, now, out)
            .map_err(|fault| fault.at(self.file.path()))
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
            disks: Roster::new(),
        }
    }

    /// A node without disks has an empty file.
    fn update(&mut self, text: &[u8], now: Duration, out: &mut Group) -> Result<(), Fault> {
        self.disks.begin();
        for (number, line) in lines(text)? {
            let malformed = Fault::Malformed {
                line: number,
                what: "not a device's counters",
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
        out: &mut Group,
    ) -> Result<(), Fault> {
        let (udev, families) = (&self.udev, &self.families);
        let disk = self.disks.entry(line.device, || Ok(DiskSlots::default()))?;
        if disk.slots.len() != line.count {
            // A column that is not there is absent, not zero.
            disk.slots.drain(..).for_each(|slot| out.retire(slot));
            let device = label(line.device);
            for family in &families[..line.count] {
                disk.slots
                    .push(out.declare(family, &[("device", &device)])?);
            }
        }
        // Between two passes another device may have got the name.
        let number = (line.major, line.minor);
        let is_another = disk.number != Some(number);
        if is_another
            || !disk.info.has_udev_data() && now.saturating_sub(disk.udev_read_at) >= UDEV_RETRY
        {
            (disk.number, disk.udev_read_at) = (Some(number), now);
            disk.info.retire(out);
            disk.info =
                UdevDiskInfo::read_udev(udev, line.major, line.minor, &label(line.device), out)?;
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
    let (major, minor) = (integer(major?)?, integer(minor?)?);
    let mut columns = [0; COLUMNS];
    let count = integers(words, &mut columns)?;
    (count >= COLUMNS_MIN).then_some(DiskLine {
        major,
        minor,
        device,
        columns,
        count,
    })
}

/// The devices that node_exporter leaves out: RAM disks, loops, floppies and partitions, that is
/// `^(ram|loop|fd|(h|s|v|xv)d[a-z]|nvme\d+n\d+p)\d+$`.
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

/// `nvme0n1p`: the number of the partition is already off.
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

    fn pass(readings: &mut DiskReadings, group: &mut Group, text: &[u8]) -> Vec<String> {
        group.clear();
        readings.update(text, Duration::ZERO, group).expect("valid");
        present_series(group)
    }

    #[test]
    fn partitions_and_loops_are_left_out() {
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
    fn each_kernel_has_its_columns() {
        for (count, expected) in [(11, 11), (15, 15), (17, 17), (20, 17)] {
            let columns: Vec<String> = (1..=count).map(|column| column.to_string()).collect();
            let text = format!("   8       0 sda {}\n", columns.join(" "));
            let mut group = Group::new("disk", 3, 1000);
            let found = pass(&mut readings(), &mut group, text.as_bytes());
            assert_eq!(found.len(), expected + 1, "and the info");
            assert_eq!(found[2], "node_disk_read_bytes_total{device=\"sda\"} 1536");
            assert_eq!(
                found[3],
                "node_disk_read_time_seconds_total{device=\"sda\"} 0.004"
            );
        }
    }

    #[test]
    fn columns_come_and_go() {
        let (mut readings, mut group) = (readings(), Group::new("disk", 3, 1000));
        for count in [17, 11, 15, 17, 17] {
            let columns = vec!["7"; count].join(" ");
            let found = pass(
                &mut readings,
                &mut group,
                format!("8 0 sda {columns}\n").as_bytes(),
            );
            assert_eq!(found.len(), count + 1, "and the info");
            assert!(!found.iter().any(|line| line.ends_with(" 0")), "{found:?}");
        }
        assert_eq!(group.members().series.len(), 18);
    }

    #[test]
    fn another_device_under_the_same_name_has_its_own_info() {
        let (mut readings, mut group) = (readings(), Group::new("disk", 3, 1000));
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
    fn disks_come_and_go_under_any_name() {
        let (mut readings, mut group) = (readings(), Group::new("disk", 3, 1000));
        let one = b"8 0 d\xff 18446744073709551615 2 3 4 5 6 7 8 9 10 11\n";
        let found = pass(&mut readings, &mut group, one);
        assert_eq!(
            found[0],
            "node_disk_reads_completed_total{device=\"d\\\\xff\"} 1.8446744073709552e19"
        );
        assert_eq!(
            pass(&mut readings, &mut group, b""),
            Vec::<String>::new(),
            "a diskless node"
        );
        assert_eq!(pass(&mut readings, &mut group, one).len(), 12);
        assert_eq!(
            group.members().series.len(),
            12,
            "its slots were used again"
        );
    }

    #[test]
    fn garbage_is_named_by_its_line() {
        let update =
            |text: &[u8]| readings().update(text, Duration::ZERO, &mut Group::new("disk", 3, 1000));
        let what = "not a device's counters";
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
