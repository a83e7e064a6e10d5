//! Traffic and operations of each NFS mount, from `/proc/self/mountstats`.
//!
//! Runs on the sampler's thread. An operation gets its series with its first request.

use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup};

use super::mountstats_parse::{NfsMountStats, OPERATION, parse};
use crate::cursor_map::CursorMap;
use crate::device_slots::{DeviceSlots, shared_families};
use crate::file_collector::{FileParser, open_files};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, label_value};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

/// The number of values per mount: its age, and its byte and page counts.
const MOUNT: usize = 9;

macro_rules! families {
    ($($static:ident $name:literal $unit:literal $help:literal;)*) => {
        $(static $static: Family = Family::new(
            concat!("node_mountstats_nfs_", $name, "_total"), MetricKind::Counter, $unit, 3, $help);)*
        static FAMILIES: [&Family; MOUNT + OPERATION] = [$(&$static),*];
    };
}

// In the order of the file.
families! {
    AGE "age_seconds" "seconds" "Age of the mount, in seconds.";
    READ "read_bytes" "bytes" "Total number of bytes read by programs through the page cache.";
    WRITE "write_bytes" "bytes" "Total number of bytes written by programs through the page cache.";
    DIRECT_READ "direct_read_bytes" "bytes" "Total number of bytes read by programs with O_DIRECT.";
    DIRECT_WRITE "direct_write_bytes" "bytes" "Total number of bytes written by programs with O_DIRECT.";
    TOTAL_READ "total_read_bytes" "bytes" "Total number of bytes read from the server.";
    TOTAL_WRITE "total_write_bytes" "bytes" "Total number of bytes written to the server.";
    READ_PAGES "read_pages" "" "Total number of pages read from the server.";
    WRITE_PAGES "write_pages" "" "Total number of pages written to the server.";
    REQUESTS "operations_requests" "" "Total number of requests, by operation.";
    TRANSMISSIONS "operations_transmissions" "" "Total number of transmissions of requests including retransmissions, by operation.";
    TIMEOUTS "operations_major_timeouts" "" "Total number of requests with a major timeout, by operation.";
    SENT "operations_sent_bytes" "bytes" "Total number of bytes sent, by operation.";
    RECEIVED "operations_received_bytes" "bytes" "Total number of bytes received, by operation.";
    QUEUED "operations_queue_time_seconds" "seconds" "Total time that requests waited before they were sent, by operation, in seconds.";
    ANSWERED "operations_response_time_seconds" "seconds" "Total time from sending a request to its response, by operation, in seconds.";
    TAKEN "operations_request_time_seconds" "seconds" "Total time from queueing a request to its completion, by operation, in seconds.";
}

/// Index of the first value of an operation that is a time, in milliseconds.
const FIRST_TIME: usize = 5;

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "mountstats",
    tier: Tier::FiveSeconds,
    execution: Execution::Inline,
    level: 3,
    families: &FAMILIES,
    open,
};

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let path = context.host.proc.join("self/mountstats");
    open_files([(path, ReadMode::UntilEof, MountstatsReadings::new())])
}

#[derive(Debug)]
struct MountstatsReadings {
    families: Vec<Arc<Family>>,
    /// By export, protocol and address of the mount.
    mounts: CursorMap<NfsMountSlots>,
    key: Vec<u8>,
}

/// The series of one mount.
#[derive(Debug)]
struct NfsMountSlots {
    mount: DeviceSlots,
    operations: CursorMap<DeviceSlots>,
}

impl MountstatsReadings {
    fn new() -> MountstatsReadings {
        MountstatsReadings {
            families: shared_families(&FAMILIES),
            mounts: CursorMap::new(),
            key: Vec::new(),
        }
    }
}

impl FileParser for MountstatsReadings {
    /// Parses the file. A node without NFS mounts has only lines about other file systems.
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        self.mounts.begin_pass();
        parse(text, |mount| {
            self.key.clear();
            for part in [mount.export, b"\n", mount.protocol, b"\n", mount.address] {
                self.key.extend_from_slice(part);
            }
            let families = &self.families;
            let slots = self.mounts.entry(&self.key, || {
                Ok(NfsMountSlots {
                    mount: DeviceSlots::new(families),
                    operations: CursorMap::new(),
                })
            })?;
            slots.set(mount, families, out)
        })?;
        self.mounts.sweep(|slots| slots.retire(out));
        Ok(())
    }
}

impl NfsMountSlots {
    fn set(
        &mut self,
        mount: &NfsMountStats<'_>,
        families: &[Arc<Family>],
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        let (export, protocol, address) = (
            label_value(mount.export),
            label_value(mount.protocol),
            label_value(mount.address),
        );
        let of_mount = [
            ("export", &*export),
            ("protocol", &*protocol),
            ("mountaddr", &*address),
        ];
        let values = [mount.age].into_iter().chain(mount.bytes);
        for (index, value) in values.enumerate() {
            self.mount
                .set(out, families, index, &of_mount, value as f64)?;
        }
        self.operations.begin_pass();
        for operation in mount.operations() {
            let (name, numbers) = operation?;
            // Skip operations without requests: they would be most of the series.
            if numbers[0] == 0 {
                continue;
            }
            let places = self
                .operations
                .entry(name, || Ok(DeviceSlots::new(families)))?;
            let name = label_value(name);
            let [a, b, c] = of_mount;
            let labels = [a, b, c, ("operation", &*name)];
            for (index, number) in numbers.into_iter().enumerate() {
                let scale = if index < FIRST_TIME { 1.0 } else { 1000.0 };
                places.set(out, families, MOUNT + index, &labels, number as f64 / scale)?;
            }
        }
        self.operations.sweep(|places| places.retire(out));
        Ok(())
    }

    fn retire(mut self, out: &mut SampleGroup) {
        self.mount.retire(out);
        self.operations.begin_pass();
        self.operations.sweep(|places| places.retire(out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::present_series;

    #[test]
    fn mounts_and_operations_appear_and_disappear() {
        let (mut readings, mut group) = (
            MountstatsReadings::new(),
            SampleGroup::new("mountstats", 3, 1000),
        );
        let text = "device proc mounted on /proc with fstype proc\n\
                    device srv:/home mounted on /home with fstype nfs4 statvers=1.1\n\
                    \topts:\trw,vers=4.2,proto=tcp,addr=192.0.2.1\n\tage:\t60\n\
                    \tbytes:\t1 2 3 4 5 6 7 8\n\tper-op statistics\n\
                    \t        NULL: 0 0 0 0 0 0 0 0\n\t        READ: 2 3 0 5 6 7 8 2500 0\n\n";
        readings.update(text.as_bytes(), &mut group).expect("valid");
        let found = present_series(&mut group);
        assert_eq!(found.len(), MOUNT + OPERATION, "{found:?}");
        let labels = "export=\"srv:/home\",mountaddr=\"192.0.2.1\"";
        assert_eq!(
            found[8],
            format!("node_mountstats_nfs_write_pages_total{{{labels},protocol=\"tcp\"}} 8")
        );
        let expected = format!(
            "node_mountstats_nfs_operations_request_time_seconds_total{{{labels},operation=\"READ\",protocol=\"tcp\"}} 2.5"
        );
        assert_eq!(found[16], expected);
        group.clear();
        let text = b"device proc mounted on /proc with fstype proc\n";
        readings.update(text, &mut group).expect("valid");
        assert!(present_series(&mut group).is_empty());
    }
}
